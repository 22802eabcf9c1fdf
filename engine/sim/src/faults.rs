//! When and how things go wrong: a schedule of faults that a seed draws.
//!
//! A crash comes at any event, or hot on the heels of a *moment* at which much is half done: a group was given to the disk, an
//! answer was sent, a catalog was written. A stop may be a kill or a power cut, and the next start may itself be stopped in any
//! of its calls to the store, again and again.
//!
//! Some ends come while a file of the catalog stalls: what must not be given up before that file is durable has by then been overwritten,
//! if it was given up.

use sealog_engine::types::ShardId;
use sealog_engine::types::time::MILLISECOND_NS;

use crate::check::Mode;
use crate::random::Random;

/// Everything that can go wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The process dies; the machine stays.
    Kill,
    /// The machine loses power.
    PowerCut,
    /// The next start is stopped in the middle.
    StopInRecovery,
    /// The next start has another number of shards.
    OtherShards,
    SlowDisk,
    /// A file of a shard's catalog is not made, written or synced for long, while journal groups go on; mostly the process ends just
    /// before it is.
    StalledCatalog,
    /// No file can be made for a while. Counted as beyond the model for now: a shard whose checkpoint found no room takes
    /// nothing more in this life.
    FullDisk,
    ConnectionReset,
    /// Bytes of one connection are held back.
    SlowConnection,
    ClientPause,
    /// A client's process dies and starts again; what it waited for it will never know.
    ClientRestart,
    /// The node does nothing for a while, and its clocks go on.
    NodePause,
    WallClockJump,
    /// Messages between shards and controller come twice.
    DuplicateMessage,
    /// Messages between shards and controller are late, and overtaken.
    LateMessage,
    /// A shard hears nothing of a seal for so long that a merge is given up.
    DeafShard,
    /// Beyond the model with one copy: bits change, blocks cannot be read, a sync or a write fails.
    BitRot,
    UnreadableBlock,
    FailedSync,
    FailedWrite,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 20] = [
        Self::Kill,
        Self::PowerCut,
        Self::StopInRecovery,
        Self::OtherShards,
        Self::SlowDisk,
        Self::StalledCatalog,
        Self::FullDisk,
        Self::ConnectionReset,
        Self::SlowConnection,
        Self::ClientPause,
        Self::ClientRestart,
        Self::NodePause,
        Self::WallClockJump,
        Self::DuplicateMessage,
        Self::LateMessage,
        Self::DeafShard,
        Self::BitRot,
        Self::UnreadableBlock,
        Self::FailedSync,
        Self::FailedWrite,
    ];

    /// Its name in the coverage table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::PowerCut => "power cut",
            Self::StopInRecovery => "stop in recovery",
            Self::OtherShards => "other shard count",
            Self::SlowDisk => "slow disk",
            Self::StalledCatalog => "stalled catalog",
            Self::FullDisk => "full disk",
            Self::ConnectionReset => "connection reset",
            Self::SlowConnection => "slow connection",
            Self::ClientPause => "client pause",
            Self::ClientRestart => "client restart",
            Self::NodePause => "node pause",
            Self::WallClockJump => "wall clock jump",
            Self::DuplicateMessage => "duplicate message",
            Self::LateMessage => "late message",
            Self::DeafShard => "deaf shard",
            Self::BitRot => "bit rot",
            Self::UnreadableBlock => "unreadable block",
            Self::FailedSync => "failed sync",
            Self::FailedWrite => "failed write",
        }
    }

    /// Its row in the coverage table.
    #[must_use]
    pub fn row(self) -> usize {
        self as usize
    }

    /// Whether one copy survives it without loss.
    #[must_use]
    pub fn mode(self) -> Mode {
        match self {
            // A shard does not go on by itself when space returns: it is a failed write like any other.
            Self::FullDisk | Self::BitRot | Self::UnreadableBlock | Self::FailedSync | Self::FailedWrite => {
                Mode::Beyond
            }
            Self::Kill
            | Self::PowerCut
            | Self::StopInRecovery
            | Self::OtherShards
            | Self::SlowDisk
            | Self::StalledCatalog
            | Self::ConnectionReset
            | Self::SlowConnection
            | Self::ClientPause
            | Self::ClientRestart
            | Self::NodePause
            | Self::WallClockJump
            | Self::DuplicateMessage
            | Self::LateMessage
            | Self::DeafShard => Mode::Within,
        }
    }
}

/// A point at which much is half done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// Any event at all.
    Event,
    GroupSubmitted,
    /// A group was handed out behind one that is being written.
    GroupBehind,
    GroupWritten,
    MarkerWritten,
    /// The node said *stored*.
    Stored,
    /// The node said *stored* of a repeat.
    Repeat,
    /// A fetch gave records.
    Served,
    CatalogWritten,
    SegmentWritten,
    SegmentSynced,
    FileCreated,
    FileRemoved,
    MetadataGroupWritten,
    /// A shard was told something by the controller, or the other way round.
    Message,
    Started,
    /// The beginning of a seal is committed, and a shard is told so.
    SealAsked,
    /// A shard has answered a seal.
    Promised,
    /// What follows from an answered seal was given to the disk: an end, and with a split or a merge the children.
    EndProposed,
    /// Children are committed, and the shard of what they were made of is told so.
    Retired,
}

/// Those that come with splits and merges.
const RESHAPE_MOMENTS: [Moment; 4] = [Moment::SealAsked, Moment::Promised, Moment::EndProposed, Moment::Retired];
/// Where ranges are split and merged, of 100 crashes so many come at such a moment.
const RESHAPE_CRASH_PERCENT: u64 = 40;
/// Such moments that are let pass, at most.
const RESHAPE_PASS_MOST: u64 = 6;
/// Where ranges are split and merged, at so many of 1,000 seals their shard hears of none for so long that a merge is given up.
const DEAF_PERMILLE: u64 = 20;
/// How long, in ms.
const DEAF_MS_MIN: u64 = 1_900;
const DEAF_MS_MAX: u64 = 3_500;

const MOMENTS: [Moment; 16] = [
    Moment::Event,
    Moment::GroupSubmitted,
    Moment::GroupBehind,
    Moment::GroupWritten,
    Moment::MarkerWritten,
    Moment::Stored,
    Moment::Repeat,
    Moment::Served,
    Moment::CatalogWritten,
    Moment::SegmentWritten,
    Moment::SegmentSynced,
    Moment::FileCreated,
    Moment::FileRemoved,
    Moment::MetadataGroupWritten,
    Moment::Message,
    Moment::Started,
];

/// A crash that waits for its moment.
#[derive(Clone, Copy, Debug)]
struct Armed {
    fault: Fault,
    moment: Moment,
    /// Moments of that kind that are let pass.
    pass: u64,
    /// Events after the moment.
    after: u64,
    hit: bool,
}

/// A file of the catalog that stalls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stall {
    /// How much longer it takes.
    pub ns: u64,
    /// How the process ends just before it is done; `None`: it goes on.
    pub ends_by: Option<Fault>,
}

/// What the weather is like in one seed.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Mean time between small faults, in µs; 0 for none.
    pub fault_every_us: u64,
    /// Mean number of events between crashes; 0 for none.
    pub crash_every: u64,
    /// Of 100 crashes, how many are power cuts.
    pub power_cut_percent: u64,
    /// Of 100 starts, how many are stopped in the middle.
    pub stop_in_recovery_percent: u64,
    /// Of 100 processes, in how many a file of the catalog stalls.
    pub stalled_catalog_percent: u64,
    pub duplicate_percent: u64,
    pub late_percent: u64,
    pub mode: Mode,
    /// Beyond the model: the one kind of damage that comes. With all of them at once every disk is soon so damaged that its node refuses
    /// to start, and nothing is read.
    pub damage: Fault,
    /// How often it still comes.
    pub damage_left: u64,
}

/// The schedule.
pub struct Faults {
    random: Random,
    /// Chance for stalls alone.
    stalls: Random,
    /// Chance for what comes with splits and merges alone.
    reshapes: Random,
    /// Ranges are split and merged.
    has_reshapes: bool,
    /// Of the last shard that heard of no seal: until when, in virtual time.
    deaf: Option<(ShardId, u64)>,
    pub weather: Weather,
    armed: Option<Armed>,
    /// So many operations on files of the catalog are let pass, and the next one stalls.
    stall_after: Option<u64>,
}

/// The shortest stall of a file of the catalog, and the longest.
const STALL_MS_MIN: u64 = 20;
const STALL_MS_MAX: u64 = 250;
/// Operations on files of the catalog within which one stalls: those of one checkpoint. Few processes live to see two.
const STALL_WITHIN: u64 = 4;

impl Faults {
    /// The weather of a seed.
    #[must_use]
    pub fn new(mut random: Random, mode: Mode) -> Self {
        let (stalls, reshapes) = (random.fork("stalls"), random.fork("reshapes"));
        let damage = *random.pick(&Self::DAMAGE);
        let lasts = matches!(damage, Fault::BitRot | Fault::UnreadableBlock);
        let weather = Weather {
            fault_every_us: random.spread_between(2_000, 50_000),
            crash_every: random.spread_between(400, 8_000),
            power_cut_percent: *random.pick(&[30, 60, 90]),
            stop_in_recovery_percent: *random.pick(&[0, 10, 40]),
            stalled_catalog_percent: 0,
            duplicate_percent: *random.pick(&[0, 5, 20]),
            late_percent: *random.pick(&[0, 5, 20]),
            mode,
            damage,
            damage_left: if lasts { random.between(1, 2) } else { u64::MAX },
        };
        Self { random, stalls, reshapes, has_reshapes: false, deaf: None, weather, armed: None, stall_after: None }
    }

    /// No fault of its own accord: scripts say what happens.
    #[must_use]
    pub fn none(random: Random) -> Self {
        let weather = Weather {
            fault_every_us: 0,
            crash_every: 0,
            power_cut_percent: 0,
            stop_in_recovery_percent: 0,
            stalled_catalog_percent: 0,
            duplicate_percent: 0,
            late_percent: 0,
            mode: Mode::Within,
            damage: Fault::BitRot,
            damage_left: 0,
        };
        let (stalls, reshapes) = (random.fork("stalls"), random.fork("reshapes"));
        Self { random, stalls, reshapes, has_reshapes: false, deaf: None, weather, armed: None, stall_after: None }
    }

    /// Chance for the details of a fault.
    pub fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// Ranges are split and merged from now on: crashes come in each step of that, and some shards are deaf for a while.
    pub fn expect_reshapes(&mut self) {
        self.has_reshapes = true;
    }

    /// The process ends so many moments of this kind from now.
    pub fn arm_at(&mut self, moment: Moment, pass: u64, fault: Fault) {
        self.armed = Some(Armed { fault, moment, pass, after: 0, hit: false });
    }

    /// A shard is told to seal something: when that comes to it at the earliest, in virtual time, if it is deaf now.
    pub fn deaf_until_ns(&mut self, now_ns: u64, shard: ShardId) -> Option<u64> {
        if let Some((deaf, until_ns)) = self.deaf.filter(|(_, until_ns)| now_ns < *until_ns) {
            return (deaf == shard).then_some(until_ns);
        }
        if !self.has_reshapes || self.weather.crash_every == 0 || self.reshapes.below(1_000) >= DEAF_PERMILLE {
            return None;
        }
        let until_ns = now_ns + self.reshapes.between(DEAF_MS_MIN, DEAF_MS_MAX) * MILLISECOND_NS;
        self.deaf = Some((shard, until_ns));
        Some(until_ns)
    }

    /// From now on nothing goes wrong.
    pub fn stop(&mut self) {
        let mode = self.weather.mode;
        *self = Self::none(self.random.clone());
        self.weather.mode = mode;
    }

    /// A process has begun: draws when it ends.
    pub fn arm(&mut self) {
        if self.weather.crash_every == 0 {
            return;
        }
        let cut = self.random.percent(self.weather.power_cut_percent);
        let fault = if cut { Fault::PowerCut } else { Fault::Kill };
        let mean = self.weather.crash_every;
        let moment = if self.random.one_in(3) { Moment::Event } else { *self.random.pick(&MOMENTS) };
        let pass = match moment {
            Moment::Event => self.random.below(2 * mean),
            Moment::GroupSubmitted
            | Moment::GroupBehind
            | Moment::GroupWritten
            | Moment::MarkerWritten
            | Moment::Stored
            | Moment::Repeat
            | Moment::Served
            | Moment::CatalogWritten
            | Moment::SegmentWritten
            | Moment::SegmentSynced
            | Moment::FileCreated
            | Moment::FileRemoved
            | Moment::MetadataGroupWritten
            | Moment::Message
            | Moment::SealAsked
            | Moment::Promised
            | Moment::EndProposed
            | Moment::Retired
            | Moment::Started => {
                let most = self.random.spread_between(1, (mean / 10).max(2));
                self.random.below(most)
            }
        };
        let after = *self.random.pick(&[0, 0, 1, 2, 5]);
        self.armed = Some(Armed { fault, moment, pass, after, hit: false });
        if self.has_reshapes && self.reshapes.percent(RESHAPE_CRASH_PERCENT) {
            let moment = *self.reshapes.pick(&RESHAPE_MOMENTS);
            let pass = self.reshapes.between(0, RESHAPE_PASS_MOST);
            self.armed = Some(Armed { fault, moment, pass, after, hit: false });
        }
        let stalls = self.stalls.percent(self.weather.stalled_catalog_percent);
        self.stall_after = stalls.then(|| self.stalls.below(STALL_WITHIN));
    }

    /// A file of the catalog is about to be made, written or synced: whether that stalls. Where it ends the process, nothing else does
    /// before: the journal goes on until then.
    pub fn stall_catalog(&mut self) -> Option<Stall> {
        let pass = self.stall_after?;
        self.stall_after = pass.checked_sub(1);
        if pass > 0 {
            return None;
        }
        let ns = self.stalls.spread_between(STALL_MS_MIN, STALL_MS_MAX) * MILLISECOND_NS;
        let cut = self.stalls.percent(self.weather.power_cut_percent);
        let fault = if cut { Fault::PowerCut } else { Fault::Kill };
        let ends_by = (!self.stalls.one_in(4)).then_some(fault);
        if ends_by.is_some() {
            self.armed = None;
        }
        Some(Stall { ns, ends_by })
    }

    /// A moment has come.
    pub fn moment(&mut self, moment: Moment) {
        if let Some(armed) = &mut self.armed
            && !armed.hit
            && armed.moment == moment
        {
            armed.hit = armed.pass == 0;
            armed.pass = armed.pass.saturating_sub(1);
        }
    }

    /// An event has been dealt with: whether the node crashes now, and how.
    pub fn take_crash(&mut self, life_events: u64) -> Option<Fault> {
        self.moment(Moment::Event);
        let armed = self.armed.as_mut()?;
        // A moment that never comes must not make a life without a crash.
        let overdue = self.weather.crash_every > 0 && life_events > 4 * self.weather.crash_every;
        if !armed.hit && !overdue {
            return None;
        }
        if armed.after > 0 && !overdue {
            armed.after -= 1;
            return None;
        }
        let fault = armed.fault;
        self.armed = None;
        Some(fault)
    }

    /// After how many calls the next start stops, if it does.
    pub fn recovery_stop(&mut self) -> Option<u64> {
        let percent = self.weather.stop_in_recovery_percent;
        self.random.percent(percent).then(|| self.random.spread_between(1, 400))
    }

    /// After how long the next small fault comes, in ns.
    pub fn next_small_ns(&mut self) -> Option<u64> {
        let mean_us = self.weather.fault_every_us;
        (mean_us > 0).then(|| self.random.between(1, 2 * mean_us) * 1_000)
    }

    /// Which small fault comes.
    pub fn small(&mut self) -> Fault {
        let weather = &mut self.weather;
        if weather.mode == Mode::Within {
            return *self.random.pick(&Self::SMALL);
        }
        if weather.damage_left > 0 && self.random.one_in(2) {
            weather.damage_left -= 1;
            return weather.damage;
        }
        *self.random.pick(&Self::BESIDE_DAMAGE)
    }

    /// The sync of a journal group has failed: half of the times the power is cut as soon as the node says *stored*, which it must not
    /// say of what that group held.
    pub fn group_sync_failed(&mut self) {
        if self.random.one_in(2) {
            self.armed = Some(Armed { fault: Fault::PowerCut, moment: Moment::Stored, pass: 0, after: 0, hit: false });
        }
    }

    const SMALL: [Fault; 9] = [
        Fault::ConnectionReset,
        Fault::ConnectionReset,
        Fault::ConnectionReset,
        Fault::SlowConnection,
        Fault::ClientPause,
        Fault::ClientRestart,
        Fault::NodePause,
        Fault::SlowDisk,
        Fault::WallClockJump,
    ];

    const BESIDE_DAMAGE: [Fault; 4] =
        [Fault::ConnectionReset, Fault::SlowConnection, Fault::SlowDisk, Fault::WallClockJump];

    const DAMAGE: [Fault; 5] =
        [Fault::FullDisk, Fault::BitRot, Fault::UnreadableBlock, Fault::FailedSync, Fault::FailedWrite];

    /// How often a message between a shard and the controller comes, and how late each time, in ns.
    pub fn deliveries_ns(&mut self) -> (u64, Option<u64>) {
        let random = &mut self.random;
        let late = random.percent(self.weather.late_percent);
        let first = if late { random.spread_between(1_000, 20_000_000) } else { random.between(100, 3_000) };
        let twice = random.percent(self.weather.duplicate_percent);
        (first, twice.then(|| first + random.spread_between(100, 30_000_000)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_a_row_and_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = Fault::ALL.iter().map(|fault| fault.name()).collect();
        assert_eq!(names.len(), Fault::ALL.len());
        for (row, fault) in Fault::ALL.iter().enumerate() {
            assert_eq!(fault.row(), row);
        }
    }

    #[test]
    fn a_life_ends_even_if_its_moment_never_comes() {
        for seed in 0..50 {
            let mut faults = Faults::new(Random::new(seed), Mode::Within);
            faults.arm();
            let most = 4 * faults.weather.crash_every + 2;
            assert!((0..most).any(|events| faults.take_crash(events).is_some()));
            assert!(faults.take_crash(u64::MAX).is_none());
        }
    }

    #[test]
    fn a_file_of_the_catalog_stalls_once_a_life_where_the_weather_says_so() {
        let mut faults = Faults::new(Random::new(1), Mode::Within);
        let mut stalls = |percent| {
            faults.weather.stalled_catalog_percent = percent;
            faults.arm();
            (0..2 * STALL_WITHIN).filter_map(|_| faults.stall_catalog()).collect::<Vec<_>>()
        };
        assert_eq!(stalls(0), []);
        let all: Vec<_> = (0..100).flat_map(|_| stalls(100)).collect();
        assert_eq!(all.len(), 100);
        assert!(all.iter().all(|stall| (STALL_MS_MIN..=STALL_MS_MAX).contains(&(stall.ns / MILLISECOND_NS))));
        for ends_by in [None, Some(Fault::Kill), Some(Fault::PowerCut)] {
            assert!(all.iter().any(|stall| stall.ends_by == ends_by));
        }
    }

    #[test]
    fn a_process_that_a_stall_ends_has_no_other_end() {
        let mut faults = Faults::new(Random::new(1), Mode::Within);
        faults.weather.stalled_catalog_percent = 100;
        let ends = (0..50).filter(|_| {
            faults.arm();
            let stall = (0..STALL_WITHIN).find_map(|_| faults.stall_catalog()).expect("one stalls");
            let crashes = faults.take_crash(u64::MAX).is_some();
            assert_eq!(crashes, stall.ends_by.is_none());
            !crashes
        });
        assert!((1..50).contains(&ends.count()));
    }

    #[test]
    fn once_stopped_nothing_goes_wrong() {
        let mut faults = Faults::new(Random::new(1), Mode::Within);
        faults.stop();
        faults.arm();
        assert!(faults.take_crash(u64::MAX).is_none());
        assert_eq!((faults.recovery_stop(), faults.next_small_ns()), (None, None));
        assert_eq!(faults.deliveries_ns().1, None);
        assert_eq!(faults.stall_catalog(), None);
    }
}
