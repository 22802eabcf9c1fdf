//! A whole run: floor, load, floor, reading back, and the report of all that.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use sealog_engine::api::request::ShardRequest;
use sealog_engine::api::response::Stored;
use sealog_engine::format::BatchBuilder;
use sealog_engine::format::batch::Stamp;
use sealog_engine::format::record::RecordKey;
use sealog_engine::types::limits::BATCH_BYTES_CEILING;
use sealog_engine::types::{Epoch, ProducerEpoch, ProducerId, RangeId, Run as ProducerRun, Sequence};
use sealog_net::client::blocking::{Admin, RequestError};
use sealog_net::wire::client::{append_request, append_stored};
use thiserror::Error;

use crate::floor::echo::EchoSizes;
use crate::floor::{FloorPlan, MeasureError};
use crate::load::consumers::verify;
use crate::load::content::{self, LoadRun};
use crate::load::disturb::{Disturbed, Disturber, Victim};
use crate::load::driver::Clock;
use crate::load::ledger::{Ledger, LedgerError};
use crate::load::producers::{LoadError, OnDisconnect, Phases, ProduceLoad};
use crate::load::reader::ReaderError;
use crate::load::samples::Span;
use crate::load::settings::{KeyDist, Pace, Settings};
use crate::load::status::StatusSource;
use crate::load::watch::Watch;
use crate::machine::Machine;
use crate::report::disturbance::SplitsAndMerges;
pub use crate::report::files::{make_folder, save};
use crate::report::page::ReadError;
use crate::report::summary::{FloorPair, Host, Phase, Report, Verification};

/// Number of the refusal *topic exists*.
const TOPIC_EXISTS: u16 = 2;

/// A run could not be made.
#[derive(Debug, Error)]
pub enum RunError {
    #[error("cannot find {address}: {error}")]
    Address { address: String, error: io::Error },
    #[error("topic {topic}: {error}")]
    Topic { topic: String, error: RequestError },
    #[error(transparent)]
    Floor(#[from] MeasureError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("reading the topic: {0}")]
    Reading(#[from] ReaderError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("cannot write {path}: {error}")]
    Output { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("{what}")]
    Settings { what: &'static str },
}

/// The node under load, as far as it is known.
#[derive(Clone)]
pub struct Target {
    /// `host:port`.
    pub addresses: Vec<String>,
    /// Facts and counters, if they can be had.
    pub status: Option<StatusSource>,
    /// Its data directory, if it is on this machine: the device whose floor is measured.
    pub data_dir: Option<PathBuf>,
}

impl Target {
    /// The first socket address of each of its addresses.
    ///
    /// # Errors
    /// A name that has none.
    pub fn sockets(&self) -> Result<Vec<SocketAddr>, RunError> {
        let resolve = |address: &String| {
            let wrong = |error| RunError::Address { address: address.clone(), error };
            let mut found = address.to_socket_addrs().map_err(wrong)?;
            found.next().ok_or_else(|| wrong(io::ErrorKind::NotFound.into()))
        };
        self.addresses.iter().map(resolve).collect()
    }

    /// Makes the topic of a load, unless it exists.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make_topic(&self, settings: &Settings) -> Result<(), RunError> {
        let failed = |error| RunError::Topic { topic: settings.topic.clone(), error };
        let timeout = Duration::from_millis(settings.timeout_ms.into());
        let mut admin = Admin::connect(&self.addresses, timeout).map_err(failed)?;
        match admin.create_topic(&settings.topic, settings.ranges) {
            Ok(_) => Ok(()),
            Err(RequestError::Refused(refused)) if refused.code == TOPIC_EXISTS => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    /// One load, timed and counted. The topic exists. It ends early when `stop` is set.
    ///
    /// # Errors
    /// It could not begin.
    pub fn load(
        &self,
        name: &str,
        settings: &Settings,
        on_disconnect: OnDisconnect,
        stop: &AtomicBool,
    ) -> Result<(Phase, Ledger), RunError> {
        let (phase, ledger, _) = self.load_as(name, settings, on_disconnect, stop, LoadRun::draw(), Clock::start())?;
        Ok((phase, ledger))
    }

    /// As [`load`](Self::load), with records of this run and times on this clock; gives the measured time as well.
    pub(crate) fn load_as(
        &self,
        name: &str,
        settings: &Settings,
        on_disconnect: OnDisconnect,
        stop: &AtomicBool,
        run: LoadRun,
        clock: Clock,
    ) -> Result<(Phase, Ledger, Span), RunError> {
        let source = self.status.clone().filter(|_| settings.disturbance);
        let watch = Watch::start(source, clock).map_err(LoadError::Io)?;
        let mut machine = Machine::new(self.data_dir.as_deref());
        let mut acts = Vec::new();
        let load = ProduceLoad { settings, addresses: self.sockets()?, on_disconnect, run, clock, stop };
        let produced = match self.disturber(settings, clock)? {
            None => load.run(&mut machine)?,
            Some(disturber) => {
                let mut both = Disturbing { machine: &mut machine, disturber: &disturber };
                let produced = load.run(&mut both);
                acts = disturber.finish();
                produced?
            }
        };
        let mut watched = watch.finish();
        watched.note_acts(&acts);
        let mut phase = machine.phase(name, settings, &produced, &watched, clock);
        let (origin_ns, samples) = (produced.window.begin_ns, produced.samples.as_ref());
        phase.disturbed = acts.into_iter().map(|act| Disturbed::new(act, origin_ns, samples)).collect();
        phase.splits_and_merges = samples.and_then(|samples| SplitsAndMerges::new(&watched, &phase.disturbed, samples));
        Ok((phase, produced.ledger, produced.window))
    }

    fn disturber(&self, settings: &Settings, clock: Clock) -> Result<Option<Disturber>, RunError> {
        if settings.disturb.is_empty() {
            return Ok(None);
        }
        let victim = Victim {
            addresses: self.addresses.clone(),
            topic: settings.topic.clone(),
            timeout: Duration::from_millis(settings.timeout_ms.into()),
        };
        Ok(Some(Disturber::start(victim, settings.disturb.clone(), clock).map_err(LoadError::Io)?))
    }
}

/// Reads the machine's counters, and lets the disturbances begin.
struct Disturbing<'a, 'b> {
    machine: &'a mut Machine<'b>,
    disturber: &'a Disturber,
}

impl Phases for Disturbing<'_, '_> {
    fn begin(&mut self) {
        self.machine.begin();
        self.disturber.begin();
    }

    fn end(&mut self) {
        self.machine.end();
    }
}

impl LoadRun {
    /// A new one, different from all others but by a chance of 2^-64.
    pub(crate) fn draw() -> Self {
        use std::hash::{BuildHasher, RandomState};
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self(RandomState::new().hash_one(now))
    }
}

/// The sizes of the frames of a load: a produce of one batch, of a mix of the mean size, and its answer.
///
/// # Panics
/// If a batch of the settings is larger than any may be.
#[must_use]
pub fn frame_sizes(settings: &Settings) -> EchoSizes {
    let value = vec![0; settings.value_bytes];
    let mut builder = BatchBuilder::new(BATCH_BYTES_CEILING);
    for number in 0..settings.batch {
        let key = content::key(number);
        builder.push(RecordKey::Key(&key), Some(&value), &[], 0).expect("a batch below the ceiling");
    }
    let stamp = Stamp {
        producer: ProducerId(1),
        epoch: ProducerEpoch(1),
        run: ProducerRun(0),
        sequence: Sequence(0),
        last: false,
    };
    let request = ShardRequest::Produce { range: RangeId(1), epoch: Epoch(1), batch: builder.finish(stamp) };
    let (mut produce, mut stored) = (Vec::new(), Vec::new());
    append_request(&mut produce, 0, 0, &request);
    append_stored(&mut stored, 0, Stored { records: settings.batch, repeat: false });
    EchoSizes { request_bytes: produce.len(), reply_bytes: stored.len() }
}

/// How the floor is measured around the loads.
#[derive(Clone, Copy, Debug)]
pub struct FloorSettings {
    /// Seconds for the write and for the echo, each, before and after.
    pub seconds: f64,
    /// The core that the writer and the echo server are kept on.
    pub cpu: Option<usize>,
}

/// The floor around the loads of a run.
pub struct FloorAround<'a> {
    plan: FloorPlan<'a>,
    pair: FloorPair,
}

impl<'a> FloorAround<'a> {
    /// Measures before.
    ///
    /// # Errors
    /// It cannot be measured.
    pub fn before(dir: &'a Path, settings: &Settings, floor: FloorSettings) -> Result<Self, RunError> {
        let duration = Duration::from_secs_f64(floor.seconds);
        let plan = FloorPlan { dir, sizes: frame_sizes(settings), cpu: floor.cpu, duration };
        Ok(Self { plan, pair: plan.before()? })
    }

    /// What is known so far.
    #[must_use]
    pub fn found(self) -> FloorPair {
        self.pair
    }

    /// Measures after.
    ///
    /// # Errors
    /// It cannot be measured.
    pub fn after(mut self) -> Result<FloorPair, RunError> {
        self.pair.after = Some(self.plan.measure()?);
        Ok(self.pair)
    }
}

/// What a produce run is asked for beside its load.
#[derive(Clone, Debug)]
pub struct ProduceRun {
    pub settings: Settings,
    pub on_disconnect: OnDisconnect,
    /// How many times the load is made; the median run by p99 is the result.
    pub repeat: u32,
    /// Where the ledger is written, for a later judgement.
    pub ledger: Option<PathBuf>,
    /// Once set the run ends, with what was measured so far.
    pub stop: Arc<AtomicBool>,
}

impl ProduceRun {
    /// Floor, load, floor, reading back. `tell` is told what begins.
    ///
    /// # Errors
    /// A part of it could not be made. Saturation, lost records and missed objectives are no errors but findings in the report.
    pub fn run(
        &self,
        target: &Target,
        floor: Option<FloorSettings>,
        tell: &mut dyn FnMut(&str),
    ) -> Result<Report, RunError> {
        let settings = &self.settings;
        let mut ledgers = Vec::new();
        let around = Surroundings { target, settings, floor, stop: &self.stop };
        let mut report = around.measure(tell, &mut |report, tell| self.loads(target, report, &mut ledgers, tell))?;
        if settings.verify && !self.stop.load(Ordering::Relaxed) {
            tell("reading back");
            report.verification = Some(judge_all(target, &ledgers, settings.timeout_ms)?);
        }
        Ok(report)
    }

    fn loads(
        &self,
        target: &Target,
        report: &mut Report,
        ledgers: &mut Vec<Ledger>,
        tell: &mut dyn FnMut(&str),
    ) -> Result<(), RunError> {
        let mut runs = Vec::new();
        for number in 1..=self.repeat.max(1) {
            tell(&if self.repeat > 1 { format!("load, run {number} of {}", self.repeat) } else { "load".to_owned() });
            let (phase, ledger) = target.load("load", &self.settings, self.on_disconnect, &self.stop)?;
            runs.push(phase);
            ledgers.push(ledger);
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
        }
        report.take_runs(runs);
        if let (Some(path), [ledger]) = (&self.ledger, ledgers.as_slice()) {
            ledger.save(path)?;
        }
        Ok(())
    }
}

/// What stands around every measurement of a node.
pub struct Surroundings<'a> {
    pub target: &'a Target,
    pub settings: &'a Settings,
    /// The floor is measured before and after, if the node's directory is on this machine.
    pub floor: Option<FloorSettings>,
    pub stop: &'a AtomicBool,
}

/// Told what begins.
pub type Tell<'a> = dyn FnMut(&str) + 'a;

impl Surroundings<'_> {
    /// Makes the topic, measures the floor, lets `measure` fill the report, and measures the floor again.
    ///
    /// # Errors
    /// A part of it could not be made.
    pub fn measure(
        &self,
        tell: &mut Tell<'_>,
        measure: &mut dyn FnMut(&mut Report, &mut Tell<'_>) -> Result<(), RunError>,
    ) -> Result<Report, RunError> {
        self.settings.check()?;
        let mut report = Report::new(self.settings.clone(), Host::read(), wall_ms());
        self.target.make_topic(self.settings)?;
        let around = match (self.floor, &self.target.data_dir) {
            (Some(floor), Some(dir)) => {
                tell("floor of the device and of the loopback");
                Some(FloorAround::before(dir, self.settings, floor)?)
            }
            (Some(_), None) | (None, _) => None,
        };
        measure(&mut report, tell)?;
        if let Some(around) = around {
            report.floor = Some(if self.stop.load(Ordering::Relaxed) {
                around.found()
            } else {
                tell("floor again");
                around.after()?
            });
        }
        report.server = self.target.status.as_ref().and_then(|status| status());
        report.relate_to_floor();
        Ok(report)
    }
}

/// Reads the ledgers' topic back and judges them all. Each reading meets the records of the others, which are not foreign.
fn judge_all(target: &Target, ledgers: &[Ledger], timeout_ms: u32) -> Result<Verification, RunError> {
    let mut found = Verification::default();
    for ledger in ledgers {
        let last = judge(target, ledger, timeout_ms)?;
        // Each reading meets all gaps.
        found.gaps.clear();
        found.add(&last);
        let of_others = (found.read + found.damaged) - (last.read + last.damaged);
        found.foreign = last.foreign.saturating_sub(of_others);
    }
    Ok(found)
}

/// Reads a ledger's topic back and judges it. Acknowledged records are waited for as long as something comes within the timeout.
///
/// # Errors
/// It cannot be read to its end.
pub fn judge(target: &Target, ledger: &Ledger, timeout_ms: u32) -> Result<Verification, RunError> {
    Ok(verify(ledger, target.sockets()?, Duration::from_millis(timeout_ms.into()))?)
}

impl Settings {
    /// Checks what a load needs.
    ///
    /// # Errors
    /// The first setting that makes no load.
    pub fn check(&self) -> Result<(), RunError> {
        let wrong = |what| Err(RunError::Settings { what });
        let (least, most) = self.value_bytes_range();
        if least < content::VALUE_BYTES_MIN {
            return wrong("a value has at least 40 bytes, which say whose it is");
        }
        if self.connections == 0 || self.batch == 0 || self.keys < self.connections {
            return wrong("a load has at least one connection, one record a batch and one key a connection");
        }
        let shares = self.sizes.iter().map(|share| share.percent);
        if !self.sizes.is_empty() && (shares.sum::<f64>() - 100.0).abs() > 1e-6 {
            return wrong("the shares of a mix of sizes add up to 100 %");
        }
        if matches!(self.key_dist, KeyDist::Zipf { exponent } if !(exponent > 0.0 && exponent.is_finite())) {
            return wrong("the exponent of a Zipf distribution is positive");
        }
        if (most + content::KEY_BYTES + 64) * self.batch as usize + 4_096 > BATCH_BYTES_CEILING {
            return wrong("a batch of that many records of that size is larger than any batch may be");
        }
        let paced = match self.pace {
            Pace::Open { rate, .. } => rate > 0.0,
            Pace::Closed { inflight } => inflight >= self.batch,
        };
        if self.disturb.iter().any(|disturb| !(0.0..self.seconds).contains(&disturb.at_seconds)) {
            return wrong("a disturbance lies within the measured time");
        }
        if !paced || self.seconds <= 0.0 || self.warmup_seconds < 0.0 {
            return wrong("rate and duration are positive, and at least one batch may be unanswered");
        }
        Ok(())
    }
}

/// Now, in milliseconds since the Unix epoch.
#[must_use]
pub fn wall_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::settings::SizeShare;

    #[test]
    fn the_frames_of_the_echo_are_those_of_a_produce_and_its_answer() {
        let one = frame_sizes(&Settings::default());
        let ten = frame_sizes(&Settings { batch: 10, ..Settings::default() });
        assert!(one.request_bytes > 1024 + 32 && one.request_bytes < 1024 + 256, "{one:?}");
        assert!(ten.request_bytes > 10 * 1024 && ten.reply_bytes == one.reply_bytes, "{ten:?}");
    }

    #[test]
    fn settings_that_make_no_load_are_refused() {
        let share = |bytes, percent| SizeShare { bytes, percent };
        let wrong = [
            Settings { value_bytes: 39, ..Settings::default() },
            Settings { connections: 0, ..Settings::default() },
            Settings { connections: 2, keys: 1, ..Settings::default() },
            Settings { batch: 20_000, ..Settings::default() },
            Settings { batch: 2, pace: Pace::Closed { inflight: 1 }, ..Settings::default() },
            Settings { seconds: 0.0, ..Settings::default() },
            Settings { sizes: vec![share(128, 70.0), share(1024, 29.0)], ..Settings::default() },
            Settings { sizes: vec![share(39, 70.0), share(1024, 30.0)], ..Settings::default() },
            Settings { batch: 1_000, sizes: vec![share(40, 99.0), share(20_000, 1.0)], ..Settings::default() },
            Settings { key_dist: KeyDist::Zipf { exponent: 0.0 }, ..Settings::default() },
        ];
        for settings in wrong {
            assert!(settings.check().is_err(), "{settings:?}");
        }
        let mix = vec![share(40, 33.4), share(64, 33.3), share(1024, 33.3)];
        assert!(Settings { sizes: mix, ..Settings::default() }.check().is_ok());
        assert!(Settings::default().check().is_ok());
    }
}
