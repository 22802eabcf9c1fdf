//! A whole run: floor, load, floor, reading back, and the report of all that.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use sealog_engine::api::request::ShardRequest;
use sealog_engine::api::response::Stored;
use sealog_engine::format::BatchBuilder;
use sealog_engine::format::batch::Stamp;
use sealog_engine::format::record::RecordKey;
use sealog_engine::io::{cpu, device};
use sealog_engine::types::limits::BATCH_BYTES_CEILING;
use sealog_engine::types::{Epoch, ProducerEpoch, ProducerId, RangeId, Run as ProducerRun, Sequence};
use sealog_net::client::blocking::{Admin, RequestError};
use sealog_net::wire::client::{append_request, append_stored};
use thiserror::Error;

use crate::floor::echo::EchoSizes;
use crate::floor::{FloorPlan, MeasureError};
use crate::load::consumers::{VerifyError, verify};
use crate::load::content::{self, LoadRun};
use crate::load::ledger::{Ledger, LedgerError};
use crate::load::producers::{LoadError, OnDisconnect, Phases, ProduceLoad, Produced};
use crate::load::settings::{Pace, Settings};
use crate::load::status::{StatusSource, Watch};
use crate::report::causes;
use crate::report::summary::{Disturbance, Errors, FloorPair, Host, Phase, Quantiles, Report, Verification};

/// Number of the refusal *topic exists*.
const TOPIC_EXISTS: u16 = 2;
/// Hundredths of a second: the unit of `/proc/stat`.
const TICKS_A_SECOND: f64 = 100.0;

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
    #[error("reading back: {0}")]
    Verify(#[from] VerifyError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("cannot write {path}: {error}")]
    Output { path: PathBuf, error: io::Error },
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

/// Counters of the machine at a moment.
#[derive(Clone, Copy, Default)]
struct Reading {
    steal_ticks: Option<u64>,
    flushes: Option<u64>,
}

/// Reads them when the measured time begins and ends.
struct Measured<'a> {
    data_dir: Option<&'a Path>,
    begin: Reading,
    end: Reading,
}

impl Measured<'_> {
    fn read(&self) -> Reading {
        Reading { steal_ticks: cpu::steal_ticks(), flushes: self.data_dir.and_then(device::flushes) }
    }
}

impl Phases for Measured<'_> {
    fn begin(&mut self) {
        self.begin = self.read();
    }

    fn end(&mut self) {
        self.end = self.read();
    }
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
        let watch = match &self.status {
            Some(source) if settings.disturbance => Some(Watch::start(source.clone()).map_err(LoadError::Io)?),
            Some(_) | None => None,
        };
        let mut measured =
            Measured { data_dir: self.data_dir.as_deref(), begin: Reading::default(), end: Reading::default() };
        let load = ProduceLoad { settings, addresses: self.sockets()?, on_disconnect, run: LoadRun::draw(), stop };
        let produced = load.run(&mut measured)?;
        let mut phase = phase(name, settings, &produced);
        if let (Some(watch), Some(samples)) = (watch, &produced.samples) {
            let events = watch.finish();
            let (near, others) = samples.split(&events.spans(produced.clock.wall_start_ms()));
            phase.disturbance = Some(Disturbance::new(&events, &near, &others));
        }
        phase.add_machine(&measured.begin, &measured.end);
        Ok((phase, produced.ledger))
    }
}

impl LoadRun {
    /// A new one, different from all others but by a chance of 2^-64.
    fn draw() -> Self {
        use std::hash::{BuildHasher, RandomState};
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self(RandomState::new().hash_one(now))
    }
}

impl Phase {
    #[expect(clippy::cast_precision_loss, reason = "counts of a run are far below 2^53")]
    fn add_machine(&mut self, begin: &Reading, end: &Reading) {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let steal = end.steal_ticks.zip(begin.steal_ticks).map(|(end, begin)| end.saturating_sub(begin));
        self.steal = steal.map(|ticks| ticks as f64 / TICKS_A_SECOND / cpus / self.seconds);
        self.device_flushes = end.flushes.zip(begin.flushes).map(|(end, begin)| end.saturating_sub(begin));
        let stored = (self.achieved_rate * self.seconds).max(1.0);
        self.flushes_per_record = self.device_flushes.map(|flushes| flushes as f64 / stored);
    }
}

fn phase(name: &str, settings: &Settings, produced: &Produced) -> Phase {
    let offered = match settings.pace {
        Pace::Open { rate, .. } => Some(rate),
        Pace::Closed { .. } => None,
    };
    let mut phase = Phase::new(name, produced.seconds, offered, produced.achieved_rate, &produced.times);
    phase.records = produced.records;
    phase.bytes = produced.records * (settings.value_bytes + content::KEY_BYTES) as u64;
    phase.errors = Errors {
        not_stored: produced.not_stored,
        unknown: produced.unknown,
        disconnects: produced.disconnects,
        by_cause: produced.causes.iter().map(|(code, count)| (causes::name(*code), *count)).collect(),
    };
    phase
}

impl Disturbance {
    fn new(
        events: &crate::load::status::Events,
        near: &hdrhistogram::Histogram<u64>,
        others: &hdrhistogram::Histogram<u64>,
    ) -> Self {
        let (near, others) = (Quantiles::of(near), Quantiles::of(others));
        Self {
            rolls: events.rolls,
            checkpoints: events.checkpoints,
            events_seen: events.seen_ms.len() as u64,
            near,
            others,
            ratio_p999: near.p999_us.zip(others.p999_us).map(|(near, others)| near / others),
        }
    }
}

/// The sizes of the frames of a load: a produce of one batch, and its answer.
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
        settings.check()?;
        let mut report = Report::new(settings.clone(), Host::read(), wall_ms());
        target.make_topic(settings)?;
        let around = match (floor, &target.data_dir) {
            (Some(floor), Some(dir)) => {
                tell("floor of the device and of the loopback");
                Some(FloorAround::before(dir, settings, floor)?)
            }
            (Some(_), None) | (None, _) => None,
        };
        tell("load");
        let (phase, ledger) = target.load("load", settings, self.on_disconnect, &self.stop)?;
        report.phases.push(phase);
        if let Some(path) = &self.ledger {
            ledger.save(path)?;
        }
        let stopped = self.stop.load(Ordering::Relaxed);
        if let Some(around) = around {
            report.floor = Some(if stopped {
                around.found()
            } else {
                tell("floor again");
                around.after()?
            });
        }
        report.server = target.status.as_ref().and_then(|status| status());
        if settings.verify && !stopped {
            tell("reading back");
            report.verification = Some(judge(target, &ledger, settings.timeout_ms)?);
        }
        report.relate_to_floor();
        Ok(report)
    }
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
        if self.value_bytes < content::VALUE_BYTES_MIN {
            return wrong("a value has at least 40 bytes, which say whose it is");
        }
        if self.connections == 0 || self.batch == 0 || self.keys < self.connections {
            return wrong("a load has at least one connection, one record a batch and one key a connection");
        }
        if (self.value_bytes + content::KEY_BYTES + 64) * self.batch as usize + 4_096 > BATCH_BYTES_CEILING {
            return wrong("a batch of that many records of that size is larger than any batch may be");
        }
        let paced = match self.pace {
            Pace::Open { rate, .. } => rate > 0.0,
            Pace::Closed { inflight } => inflight >= self.batch,
        };
        if !paced || self.seconds <= 0.0 || self.warmup_seconds < 0.0 {
            return wrong("rate and duration are positive, and at least one batch may be unanswered");
        }
        Ok(())
    }
}

/// Writes `report.json` into a folder, which is made if need be, and a line to a history file.
///
/// # Errors
/// A file cannot be written.
pub fn save(report: &Report, out: Option<&Path>, history: Option<&Path>) -> Result<(), RunError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error| RunError::Output { path, error }
    };
    if let Some(out) = out {
        fs::create_dir_all(out).map_err(failed(out))?;
        let path = out.join("report.json");
        let text = serde_json::to_string_pretty(report).expect("a report is plain data");
        fs::write(&path, text + "\n").map_err(failed(&path))?;
    }
    if let Some(path) = history {
        use std::io::Write as _;
        let line = serde_json::to_string(&crate::report::history::Line::of(report)).expect("a line is plain data");
        let file = fs::OpenOptions::new().create(true).append(true).open(path);
        file.and_then(|mut file| writeln!(file, "{line}")).map_err(failed(path))?;
    }
    Ok(())
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

    #[test]
    fn the_frames_of_the_echo_are_those_of_a_produce_and_its_answer() {
        let one = frame_sizes(&Settings::default());
        let ten = frame_sizes(&Settings { batch: 10, ..Settings::default() });
        assert!(one.request_bytes > 1024 + 32 && one.request_bytes < 1024 + 256, "{one:?}");
        assert!(ten.request_bytes > 10 * 1024 && ten.reply_bytes == one.reply_bytes, "{ten:?}");
    }

    #[test]
    fn settings_that_make_no_load_are_refused() {
        let wrong = [
            Settings { value_bytes: 39, ..Settings::default() },
            Settings { connections: 0, ..Settings::default() },
            Settings { connections: 2, keys: 1, ..Settings::default() },
            Settings { batch: 20_000, ..Settings::default() },
            Settings { batch: 2, pace: Pace::Closed { inflight: 1 }, ..Settings::default() },
            Settings { seconds: 0.0, ..Settings::default() },
        ];
        assert!(wrong.iter().all(|settings| settings.check().is_err()));
        assert!(Settings::default().check().is_ok());
    }
}
