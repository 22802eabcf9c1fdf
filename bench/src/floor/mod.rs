//! What the device and the loopback can do with nothing in between: every figure of a run stands beside it.
//!
//! ```text
//! write   4 KiB made durable in a zero-filled file of the data directory, by the fastest way there is
//! echo    a round trip of frames of the same sizes to a server that does nothing
//! sum     the n-th write and the n-th echo added up: the least that a durable answer over TCP can cost
//! ```
//! The sum is of pairs, not of percentiles: a p99 of sums is less than the sum of two p99s, so this is the stricter measure.

pub mod echo;

use std::io;
use std::path::Path;
use std::time::Duration;

use sealog_engine::io::device::{self, WriteCache};
use sealog_engine::io::floor::{FloorError, Load, Measurement, Method, Scratch, Until};
use sealog_engine::types::limits::BLOCK;
use thiserror::Error;

use self::echo::EchoSizes;
use crate::load::recorder::histogram;
use crate::report::summary::{Floor, FloorPair, Quantiles};

/// Bytes of the file that is written to.
const SCRATCH_BYTES: u64 = 32 << 20;
/// Time that each way is given to show how fast it is.
const TRIAL: Duration = Duration::from_millis(300);

/// What is measured, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct FloorPlan<'a> {
    /// The device under this directory.
    pub dir: &'a Path,
    pub sizes: EchoSizes,
    /// The core that the writer and the echo server are kept on.
    pub cpu: Option<usize>,
    /// Of the write and of the echo, each.
    pub duration: Duration,
}

/// The floor could not be measured.
#[derive(Debug, Error)]
pub enum MeasureError {
    #[error("the device's floor: {0}")]
    Device(#[from] FloorError),
    #[error("the loopback's floor: {0}")]
    Echo(io::Error),
}

impl FloorPlan<'_> {
    /// The floor now.
    ///
    /// # Errors
    /// The directory takes no direct I/O, or there is no socket or executor.
    pub fn measure(&self) -> Result<Floor, MeasureError> {
        let scratch = Scratch::new(self.dir, SCRATCH_BYTES)?;
        let write = |method, duration| {
            scratch.measure(Measurement {
                method,
                block_bytes: BLOCK,
                until: Until::Elapsed(duration),
                load: Load::Idle,
                cpu: self.cpu,
            })
        };
        let mut fastest: Option<(f64, Method)> = None;
        for method in Method::ALL {
            let p50 = quantiles(write(method, TRIAL)?.into_iter()).p50_us.unwrap_or(f64::INFINITY);
            if fastest.is_none_or(|(least, _)| p50 < least) {
                fastest = Some((p50, method));
            }
        }
        let (_, method) = fastest.expect("there is at least one method");
        let writes = write(method, self.duration)?;
        let echoes = echo::round_trips(self.sizes, self.cpu, self.duration).map_err(MeasureError::Echo)?;
        let sums = writes.iter().zip(&echoes).map(|(write, echo)| write + echo);
        Ok(Floor {
            method: method.to_string(),
            sum: quantiles(sums),
            write: quantiles(writes.iter().copied()),
            echo: quantiles(echoes.iter().copied()),
        })
    }

    /// The floor before a load; [`FloorPair::after`] is still to come.
    ///
    /// # Errors
    /// As [`measure`](Self::measure).
    pub fn before(&self) -> Result<FloorPair, MeasureError> {
        Ok(FloorPair {
            before: self.measure()?,
            after: None,
            device_cache: device::write_cache(self.dir).map(|cache| {
                match cache {
                    WriteCache::WriteBack => "write back",
                    WriteCache::WriteThrough => "write through",
                }
                .to_owned()
            }),
            request_bytes: self.sizes.request_bytes,
            reply_bytes: self.sizes.reply_bytes,
        })
    }
}

fn quantiles(times_ns: impl Iterator<Item = u64>) -> Quantiles {
    let mut histogram = histogram();
    times_ns.for_each(|ns| histogram.saturating_record(ns));
    Quantiles::of(&histogram)
}
