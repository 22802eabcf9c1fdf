//! `sealog produce`: lines in, records stored.
//!
//! ```text
//! reader thread: lines ──(bounded channel)──> main thread: record of a line ──> client library ──> how each ended
//! ```
//! A thread of its own reads, so that a slow input keeps no record waiting and no answer unread.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use sealog_bench::report::causes;
use sealog_engine::api::Outcome as Fate;
use sealog_net::client::blocking::{Done, ProduceError, Producer};
use sealog_net::client::core::ProducerSettings;
use sealog_net::client::core::producer;
use thiserror::Error;

use super::client::{Client, time};
use super::json_record::{LineError, Record};
use crate::exit::{Exit, Failure, Outcome};

/// Lines that are read ahead.
const LINES_AHEAD: usize = 4096;
/// How often answers are looked for while no line comes and some are under way.
const LOOK: Duration = Duration::from_millis(1);
/// How long to wait for a line while nothing is under way.
const IDLE: Duration = Duration::from_millis(200);

/// How a line is a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum InputFormat {
    /// The line is the value.
    #[default]
    Text,
    /// The line is a record in JSON, as `consume --format json` prints it.
    Json,
}

/// Store records, one a line.
#[derive(Debug, Args)]
pub(crate) struct Produce {
    /// The topic to store them in; it must exist.
    topic: String,
    /// Key of every record.
    #[arg(long, value_name = "KEY", conflicts_with_all = ["key_separator", "key_column"])]
    key: Option<String>,
    /// What stands between key and value of a line.
    #[arg(long, value_name = "TEXT", conflicts_with = "key_column")]
    key_separator: Option<String>,
    /// The column (from 1) that is the key; the value is the whole line.
    #[arg(long, value_name = "N", requires = "delimiter")]
    key_column: Option<usize>,
    /// What stands between columns.
    #[arg(long, value_name = "TEXT", requires = "key_column")]
    delimiter: Option<String>,
    /// How a line is a record.
    #[arg(long, value_enum, default_value_t, conflicts_with_all = ["key", "key_separator", "key_column"])]
    format: InputFormat,
    /// Read from this file instead of standard input.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// How long a batch waits for more records, such as 5ms.
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = time)]
    linger: Duration,
    #[command(flatten)]
    client: Client,
}

/// A line is no record.
#[derive(Debug, Error)]
enum NoRecord {
    #[error("the separator {0:?} is not in it")]
    NoSeparator(String),
    #[error("it has no column {0}")]
    NoColumn(usize),
    #[error(transparent)]
    Json(#[from] LineError),
}

/// How the records ended.
#[derive(Default)]
struct Tally {
    stored: u64,
    not_stored: u64,
    unknown: u64,
    /// Number of the last refusal.
    code: Option<u16>,
}

impl Produce {
    pub(super) fn run(&self) -> Outcome {
        let lines = self.lines()?;
        let settings = ProducerSettings {
            linger_us: u64::try_from(self.linger.as_micros()).unwrap_or(u64::MAX),
            timeout_ms: self.client.timeout_ms(),
            ..ProducerSettings::new(&self.topic, seed())
        };
        let mut producer =
            Producer::open(&self.client.addr, settings).map_err(|error| Failure::of_topic(error, &self.topic))?;
        let mut tally = Tally::default();
        let sent = self.send_all(&lines, &mut producer, &mut tally);
        // Whatever ended the input: what was taken is waited for and told.
        let flushed = producer.flush();
        tally.add(&producer.take_done());
        let failed = sent
            .err()
            .or_else(|| flushed.err().map(|error| Failure::of_topic(Failure::new(Exit::Failed, error), &self.topic)));
        tally.finish(failed)
    }

    fn send_all(
        &self,
        lines: &Receiver<io::Result<Vec<u8>>>,
        producer: &mut Producer,
        tally: &mut Tally,
    ) -> Result<(), Failure> {
        let mut number = 0u64;
        loop {
            let line = match lines.try_recv() {
                Ok(line) => line,
                Err(_) => {
                    producer.poll();
                    tally.add(&producer.take_done());
                    // No line need come any more for it to be of no use.
                    if let Some(failure) = producer.failure() {
                        return Err(Failure::of_topic(Failure::new(Exit::Failed, failure.clone()), &self.topic));
                    }
                    match lines.recv_timeout(if producer.in_flight() > 0 { LOOK } else { IDLE }) {
                        Ok(line) => line,
                        Err(RecvTimeoutError::Timeout) => continue,
                        Err(RecvTimeoutError::Disconnected) => return Ok(()),
                    }
                }
            };
            number += 1;
            let line = line.context("reading the input")?;
            let mut wrong = |error: anyhow::Error| {
                tally_line(tally, error.context(format!("line {number} is not stored, nor is any behind it")))
            };
            let record = match self.record(line) {
                Ok(record) => record,
                Err(error) => return Err(wrong(error.into())),
            };
            match send(producer, &record) {
                Ok(_) => {}
                Err(error @ ProduceError::TooLarge { .. }) => return Err(wrong(error.into())),
                Err(error @ ProduceError::Failed(_)) => {
                    return Err(Failure::of_topic(Failure::new(Exit::Failed, error), &self.topic));
                }
            }
            if number.is_multiple_of(1024) {
                tally.add(&producer.take_done());
            }
        }
    }

    /// The record of a line.
    fn record(&self, line: Vec<u8>) -> Result<Record, NoRecord> {
        if self.format == InputFormat::Json {
            return Ok(Record::parse(&line)?);
        }
        let plain = |key: Option<Vec<u8>>, value: Vec<u8>| Record { key, value: Some(value), ..Record::default() };
        if let Some(separator) = &self.key_separator {
            let at = find(&line, separator.as_bytes()).ok_or_else(|| NoRecord::NoSeparator(separator.clone()))?;
            return Ok(plain(Some(line[..at].to_vec()), line[at + separator.len()..].to_vec()));
        }
        if let (Some(column), Some(delimiter)) = (self.key_column, &self.delimiter) {
            let key = nth(&line, delimiter.as_bytes(), column).ok_or(NoRecord::NoColumn(column))?.to_vec();
            return Ok(plain(Some(key), line));
        }
        Ok(plain(self.key.as_ref().map(|key| key.clone().into_bytes()), line))
    }

    /// The lines of the input, without their ends, as a thread reads them.
    fn lines(&self) -> Result<Receiver<io::Result<Vec<u8>>>, Failure> {
        let input: Box<dyn BufRead + Send> = match &self.file {
            Some(path) => Box::new(BufReader::with_capacity(1 << 18, open(path)?)),
            None => Box::new(BufReader::with_capacity(1 << 18, io::stdin())),
        };
        let (give, take) = sync_channel(LINES_AHEAD);
        std::thread::Builder::new().name("input".to_owned()).spawn(move || {
            for line in input.split(b'\n') {
                let failed = line.is_err();
                if give.send(line).is_err() || failed {
                    return;
                }
            }
        })?;
        Ok(take)
    }
}

/// One more that is not stored, and the end.
fn tally_line(tally: &mut Tally, error: anyhow::Error) -> Failure {
    tally.not_stored += 1;
    Failure::new(Exit::Failed, error)
}

fn open(path: &Path) -> Result<File, Failure> {
    Ok(File::open(path).with_context(|| format!("cannot open {}", path.display()))?)
}

fn send(producer: &mut Producer, record: &Record) -> Result<u64, ProduceError> {
    let headers: Vec<(&[u8], &[u8])> = record.headers.iter().map(|(n, v)| (n.as_slice(), v.as_slice())).collect();
    producer.send(&producer::Record {
        key: record.key.as_deref(),
        value: record.value.as_deref(),
        headers: &headers,
        timestamp_ms: record.timestamp_ms,
    })
}

fn find(line: &[u8], what: &[u8]) -> Option<usize> {
    if what.is_empty() { None } else { line.windows(what.len()).position(|window| window == what) }
}

/// The column of this number, from 1.
fn nth<'a>(line: &'a [u8], delimiter: &[u8], column: usize) -> Option<&'a [u8]> {
    let mut rest = line;
    for _ in 1..column {
        rest = &rest[find(rest, delimiter)? + delimiter.len()..];
    }
    (column > 0).then(|| find(rest, delimiter).map_or(rest, |end| &rest[..end]))
}

/// Different for each process, so that two producers spread keyless records differently.
pub(crate) fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

impl Tally {
    fn add(&mut self, done: &[Done]) {
        for done in done {
            let count = u64::from(done.count);
            match done.outcome {
                Fate::Stored => self.stored += count,
                Fate::NotStored => self.not_stored += count,
                Fate::Unknown => self.unknown += count,
            }
            if done.outcome != Fate::Stored {
                self.code = Some(done.code);
            }
        }
    }

    /// Tells the figures on standard error, and how to end.
    fn finish(&self, failed: Option<Failure>) -> Outcome {
        eprintln!("stored {} records", self.stored);
        if self.not_stored + self.unknown > 0 {
            eprintln!("not stored: {}, unknown: {}", self.not_stored, self.unknown);
        }
        if let Some(code) = self.code {
            eprintln!("last refusal: {}", causes::name(code));
        }
        match failed {
            Some(failure) => Err(failure),
            None if self.not_stored > 0 => Ok(Exit::Failed),
            None if self.unknown > 0 => Ok(Exit::TryAgain),
            None => Ok(Exit::Done),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        produce: Produce,
    }

    fn record(args: &[&str], line: &str) -> Result<(Option<String>, String), String> {
        let line_args = ["produce", "t"].iter().chain(args);
        let produce = Line::try_parse_from(line_args).map_err(|error| error.kind().to_string())?.produce;
        let record = produce.record(line.as_bytes().to_vec()).map_err(|error| error.to_string())?;
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("a text");
        Ok((record.key.map(text), text(record.value.expect("a value"))))
    }

    fn keyed(key: &str, value: &str) -> Result<(Option<String>, String), String> {
        Ok((Some(key.to_owned()), value.to_owned()))
    }

    #[test]
    fn a_line_gets_its_key_as_it_was_asked_for() {
        assert_eq!(record(&[], "a b"), Ok((None, "a b".to_owned())));
        assert_eq!(record(&["--key", "k"], "a b"), keyed("k", "a b"));
        assert_eq!(record(&["--key-separator", "=>"], "a=>b=>c"), keyed("a", "b=>c"));
        assert_eq!(record(&["--key-column", "2", "--delimiter", ","], "a,b,c"), keyed("b", "a,b,c"));
        assert_eq!(record(&["--key-column", "3", "--delimiter", ","], "a,b,"), keyed("", "a,b,"));
        assert_eq!(record(&["--format", "json"], r#"{"key":"k","value":"v"}"#), keyed("k", "v"));
    }

    #[test]
    fn a_line_without_what_was_asked_for_is_no_record() {
        assert_eq!(record(&["--key-separator", "="], "a"), Err("the separator \"=\" is not in it".to_owned()));
        assert_eq!(record(&["--key-column", "4", "--delimiter", ","], "a,b,c"), Err("it has no column 4".to_owned()));
        assert!(record(&["--key", "k", "--format", "json"], "").is_err(), "they exclude each other");
        assert!(record(&["--key-column", "1"], "").is_err(), "a column needs a delimiter");
    }
}
