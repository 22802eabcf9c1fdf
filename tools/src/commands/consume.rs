//! `sealog consume`: records out, one a line.
//!
//! **Invariant**: a cursor is saved only behind records that were given to standard output, so that nothing is skipped; what was printed
//! and not yet saved is printed again by the next run.

use std::fs::{self, File};
use std::io::{self, BufWriter, StdoutLock, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use sealog_bench::load::consumers::cause_name;
use sealog_engine::api::{Gap, response::GapCause};
use sealog_engine::format::record::RecordRef;
use sealog_engine::types::RangeId;
use sealog_net::client::blocking::{ConsumeError, Consumer, Ended};
use sealog_net::client::core::consumer::{ConsumerSettings, Delivery, End, Flow, Start};
use sealog_net::client::{Cursor, CursorError};
use serde_json::json;
use thiserror::Error;

use super::client::Client;
use super::json_record::Record;
use super::produce::seed;
use crate::daemon::signals::stop_flag;
use crate::exit::{Exit, Failure, Outcome};

/// How often output is flushed, the cursor saved and a request to stop noticed.
const TURN: Duration = Duration::from_millis(200);

/// How a record is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum OutputFormat {
    /// Its value.
    #[default]
    Value,
    /// Its key, a tabulator, its value.
    Kv,
    /// JSON, as `produce --format json` takes it.
    Json,
}

/// Where to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Earliest,
    Latest,
    /// At the first record of each range that is not older, in ms since the Unix epoch.
    Time(u64),
    Cursor(Cursor),
}

/// Which gaps end the reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FailOn {
    /// Gaps in which stored records were lost.
    Lost,
    /// Also gaps of writes that were interrupted and may never have been acknowledged.
    All,
}

/// Print records, one a line.
#[derive(Debug, Args)]
pub(crate) struct Consume {
    /// The topic to read.
    topic: String,
    /// Where to begin: earliest, latest, time:MS (milliseconds since 1970; of each range from the first record that is not earlier) or cursor:TEXT.
    #[arg(long, value_name = "PLACE", default_value = "earliest")]
    from: Place,
    /// Begin at the cursor in this file if it exists, else where --from says, and save the cursor to it. A
    /// cursor knows no time: one that was saved before a range came to its first record of --from time:MS begins that range a little earlier.
    #[arg(long, value_name = "FILE")]
    cursor_file: Option<PathBuf>,
    /// Do not end: print what comes.
    #[arg(long)]
    follow: bool,
    /// End behind so many records.
    #[arg(long, value_name = "N")]
    max: Option<u64>,
    /// How a record is printed.
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
    /// Print nothing on standard error but errors.
    #[arg(long)]
    quiet: bool,
    /// End with 5 at a gap.
    #[arg(long, value_enum, num_args = 0..=1, default_missing_value = "lost", require_equals = true, value_name = "WHICH")]
    fail_on_gap: Option<FailOn>,
    #[command(flatten)]
    client: Client,
}

/// A text is no place to begin.
#[derive(Debug, Error)]
enum FromError {
    #[error("write earliest, latest, time:MS or cursor:TEXT")]
    Unknown,
    #[error(transparent)]
    Cursor(#[from] CursorError),
}

/// Prints, counts, and decides when it is enough.
struct Printer<'a> {
    options: &'a Consume,
    out: BufWriter<StdoutLock<'static>>,
    records: u64,
    failed: Option<io::Error>,
    met_gap: bool,
    /// What the cursor file holds.
    saved: Option<Cursor>,
}

impl FromStr for Place {
    type Err = FromError;

    fn from_str(text: &str) -> Result<Self, FromError> {
        match text {
            "earliest" => Ok(Self::Earliest),
            "latest" => Ok(Self::Latest),
            _ => {
                if let Some(ms) = text.strip_prefix("time:") {
                    return ms.parse().map(Self::Time).map_err(|_| FromError::Unknown);
                }
                let cursor = text.strip_prefix("cursor:").ok_or(FromError::Unknown)?;
                Ok(Self::Cursor(Cursor::parse(cursor)?))
            }
        }
    }
}

impl Consume {
    pub(super) fn run(&self) -> Outcome {
        let start = self.start()?;
        let settings = ConsumerSettings {
            start,
            end: if self.follow { End::Never } else { End::Committed },
            ..ConsumerSettings::new(&self.topic, seed())
        };
        let stop = stop_flag()?;
        let mut consumer = Consumer::new(&self.client.addr, settings, self.client.timeout);
        let out = BufWriter::with_capacity(1 << 18, io::stdout().lock());
        let mut printer = Printer { options: self, out, records: 0, failed: None, met_gap: false, saved: None };
        let ended = self.print_all(&mut consumer, &mut printer, &stop);
        // What was printed before an error is printed, and its cursor kept.
        self.keep(&consumer, &mut printer)?;
        let exit = ended?;
        if !self.quiet {
            eprintln!("printed {} records", printer.records);
        }
        Ok(exit)
    }

    fn print_all(
        &self,
        consumer: &mut Consumer,
        printer: &mut Printer<'_>,
        stop: &AtomicBool,
    ) -> Result<Exit, Failure> {
        if self.max == Some(0) {
            return Ok(Exit::Done);
        }
        loop {
            let turn = Instant::now() + TURN;
            match consumer.run(Some(turn), &mut |delivery| printer.take(delivery)) {
                Ok(Ended::Done) => return Ok(Exit::Done),
                Ok(Ended::Broke) => {
                    return match printer.failed.take() {
                        Some(error) => Err(error.into()),
                        None if printer.met_gap => Ok(Exit::NotVerified),
                        None => Ok(Exit::Done),
                    };
                }
                Ok(Ended::TimedOut) => {}
                Err(ConsumeError::Expired { range, next, resume }) => {
                    if printer.expired(&range.to_string(), resume.since(next))?.is_break() {
                        return Ok(Exit::NotVerified);
                    }
                    consumer.go_on(range, resume);
                }
                Err(error) => return Err(Failure::of_topic(failure(error), &self.topic)),
            }
            self.keep(consumer, printer)?;
            if stop.load(Ordering::Relaxed) {
                return Ok(Exit::Interrupted);
            }
        }
    }

    /// Gives everything printed to whoever reads, then saves the cursor.
    fn keep(&self, consumer: &Consumer, printer: &mut Printer<'_>) -> Result<(), Failure> {
        printer.out.flush()?;
        if let (Some(path), Some(cursor)) = (&self.cursor_file, consumer.cursor())
            && printer.saved.as_ref() != Some(&cursor)
        {
            save(path, &cursor).with_context(|| format!("cannot save the cursor to {}", path.display()))?;
            printer.saved = Some(cursor);
        }
        Ok(())
    }

    fn start(&self) -> Result<Start, Failure> {
        let saved = match &self.cursor_file {
            None => None,
            Some(path) => match fs::read_to_string(path) {
                Ok(text) => Some(Cursor::parse(&text).map_err(|error| {
                    let error = anyhow::Error::from(error).context(format!("the cursor in {}", path.display()));
                    Failure::new(Exit::Failed, error)
                })?),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => {
                    return Err(anyhow::Error::from(error).context(format!("cannot read {}", path.display())).into());
                }
            },
        };
        Ok(match (saved, &self.from) {
            (Some(cursor), _) => Start::Cursor(cursor),
            (None, Place::Cursor(cursor)) => Start::Cursor(cursor.clone()),
            (None, Place::Earliest) => Start::Earliest,
            (None, Place::Time(ms)) => Start::Time(*ms),
            (None, Place::Latest) => Start::Latest,
        })
    }
}

/// Replaces the file as a whole, durably. Crash before the rename: the old cursor is there. Crash after it: the old one or the new one, each
/// whole, for the new file was synced under its other name.
fn save(path: &Path, cursor: &Cursor) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let mut file = File::create(&new)?;
    file.write_all(format!("{cursor}\n").as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    File::open(folder)?.sync_all()
}

fn failure(error: ConsumeError) -> Failure {
    let exit = match &error {
        ConsumeError::Unreachable(_) => Exit::TryAgain,
        ConsumeError::Damaged { .. } => Exit::NotVerified,
        ConsumeError::Expired { .. }
        | ConsumeError::RangeFailed { .. }
        | ConsumeError::BadCursor(_)
        | ConsumeError::Failed(_) => Exit::Failed,
    };
    Failure::new(exit, error)
}

impl Printer<'_> {
    fn take(&mut self, delivery: Delivery<'_>) -> Flow {
        let printed = match delivery {
            Delivery::Record { record, .. } => {
                self.records += 1;
                self.record(&record)
            }
            Delivery::Gap { range, gap } => self.gap(range, &gap),
        };
        if let Err(error) = printed {
            self.failed = Some(error);
            return Flow::Break(());
        }
        if self.met_gap || self.options.max == Some(self.records) { Flow::Break(()) } else { Flow::Continue(()) }
    }

    fn record(&mut self, record: &RecordRef<'_>) -> io::Result<()> {
        let value = record.value.unwrap_or_default();
        match self.options.format {
            OutputFormat::Value => self.out.write_all(value)?,
            OutputFormat::Kv => {
                self.out.write_all(record.key.key().unwrap_or_default())?;
                self.out.write_all(b"\t")?;
                self.out.write_all(value)?;
            }
            OutputFormat::Json => {
                self.out.write_all(Record::of(record).line().as_bytes())?;
            }
        }
        self.out.write_all(b"\n")
    }

    fn gap(&mut self, range: RangeId, gap: &Gap) -> io::Result<()> {
        self.met_gap = match self.options.fail_on_gap {
            None => false,
            Some(FailOn::All) => true,
            Some(FailOn::Lost) => gap.cause != GapCause::Interrupted,
        };
        self.tell_gap(&range.to_string(), gap.records_at_most, cause_name(gap.cause))
    }

    /// Records that retention has deleted are a gap too.
    fn expired(&mut self, range: &str, records_at_most: u64) -> io::Result<Flow> {
        self.tell_gap(range, records_at_most, "expired")?;
        Ok(if self.options.fail_on_gap.is_some() { Flow::Break(()) } else { Flow::Continue(()) })
    }

    fn tell_gap(&mut self, range: &str, records_at_most: u64, cause: &str) -> io::Result<()> {
        if self.options.format == OutputFormat::Json {
            let line = json!({"gap": {"range": range, "records_at_most": records_at_most, "cause": cause}});
            writeln!(self.out, "{line}")?;
        } else if !self.options.quiet {
            eprintln!("gap in {range}: at most {records_at_most} records, {cause}");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_earliest_latest_a_time_or_a_cursor_and_a_forged_cursor_is_refused() {
        assert_eq!("earliest".parse::<Place>().expect("a place"), Place::Earliest);
        assert_eq!("latest".parse::<Place>().expect("a place"), Place::Latest);
        assert!(matches!("cursor:AAAA".parse::<Place>(), Err(FromError::Cursor(CursorError::Forged))));
        assert_eq!("time:1500".parse::<Place>().expect("a place"), Place::Time(1500));
        assert!(matches!("time:yesterday".parse::<Place>(), Err(FromError::Unknown)));
        assert!(matches!("oldest".parse::<Place>(), Err(FromError::Unknown)));
    }
}
