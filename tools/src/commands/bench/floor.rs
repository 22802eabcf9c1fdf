//! `sealog bench floor`: the device and the loopback alone.

use std::fmt;
use std::path::PathBuf;

use clap::Args;
use sealog_bench::load::settings::Settings;
use sealog_bench::report::summary::FloorPair;
use sealog_bench::run::FloorAround;
use serde::Serialize;

use super::FloorArgs;
use crate::commands::client::size;
use crate::exit::{Exit, Outcome};
use crate::output::Format;

/// Measure what the device and the loopback can do with nothing in between.
#[derive(Debug, Args)]
pub(crate) struct BenchFloor {
    /// A folder on the device.
    #[arg(long, value_name = "DIR", default_value = ".")]
    data_dir: PathBuf,
    /// Bytes of a value, which decide the frames of the echo.
    #[arg(long, value_name = "SIZE", default_value = "1024", value_parser = size)]
    size: usize,
    #[command(flatten)]
    floor: FloorArgs,
    /// Whom to print for.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Serialize)]
#[serde(transparent)]
struct Measured(FloorPair);

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl BenchFloor {
    pub(super) fn run(&self) -> Outcome {
        let settings = Settings { value_bytes: self.size, ..Settings::default() };
        settings.check()?;
        let around = FloorAround::before(&self.data_dir, &settings, self.floor.settings())?;
        self.format.print(&Measured(around.found()))?;
        Ok(Exit::Done)
    }
}
