//! What a seed decides before its first event: node, disk, network, weather, topics, and who uses them.

use sealog_engine::api::EngineConfig;

use super::Options;
use crate::check::Mode;
use crate::disk::DiskProfile;
use crate::faults::Faults;
use crate::network::NetworkProfile;
use crate::random::Random;
use crate::trace::Trace;
use crate::workload::{Keys, WriterPlan};
use crate::world::{Parts, World};

/// Mean number of events between crashes where a file of the catalog stalls, at least.
const STALLED_CRASH_EVERY: u64 = 4_000;
/// In one of so many runs an operator splits and merges ranges; where disks are damaged in one of so many of those.
const RESHAPER_ONE_IN: u64 = 3;

/// Everything that a seed decides before its first event.
pub(super) fn draw(seed: u64, options: &Options) -> World {
    let random = Random::new(seed);
    let mut draws = random.fork("scenario");
    let drawn = if draws.one_in(8) { Mode::Beyond } else { Mode::Within };
    let mode = options.mode.unwrap_or(drawn);
    let shards_most = u16::try_from(draws.between(1, 3)).expect("few shards");
    let mut config = draw_config(&mut draws, shards_most);
    let mut stalls = random.fork("stalls");
    let stall_one_in = if mode == Mode::Within && stalls.one_in(5) { *stalls.pick(&[2, 4, 8]) } else { 0 };
    let catalogs_stall = mode == Mode::Within && stall_one_in == 0 && stalls.one_in(6);
    if stall_one_in > 0 || catalogs_stall {
        // More than the journal holds: what fills while a stalled sync is waited for is the journal, and it goes round.
        config.memory_bytes = 16 << 20;
    }
    if catalogs_stall {
        config.batch_bytes_max = 128 << 10;
    }
    let slowness = *draws.pick(&[1, 1, 1, 4, 20]);
    let profile = DiskProfile { slowness, sync_covers_write_only: draws.one_in(4), stall_one_in };
    let network =
        NetworkProfile { delay_us_max: *draws.pick(&[20, 100, 1_000]), pieces_percent: *draws.pick(&[0, 5, 30]) };
    let mut topics = draw_topics(&mut draws, &config);
    let mut faults = Faults::new(random.fork("faults"), mode);
    if catalogs_stall {
        // A journal goes round in one process only if that lives long and much is sent.
        faults.weather.stalled_catalog_percent = 75;
        faults.weather.crash_every = faults.weather.crash_every.max(STALLED_CRASH_EVERY);
        let writer = &mut topics[0].writers[0];
        *writer = flooding(writer.clone());
    }
    let mut reshapes = random.fork("splits and merges");
    let has_reshapes = reshapes.one_in(RESHAPER_ONE_IN) && (mode == Mode::Within || reshapes.one_in(RESHAPER_ONE_IN));
    let has_operators = has_reshapes && !reshapes.one_in(4);
    if has_reshapes && (!has_operators || reshapes.one_in(3)) {
        let topic = &mut topics[0];
        topic.auto_split = Some(topic.ranges.max(16));
        if reshapes.one_in(2) {
            let writer = &mut topic.writers[0];
            *writer = flooding(writer.clone());
        }
    }
    let mut world = World::new(Parts {
        faults,
        trace: Trace::new(options.loud, options.keeps),
        config,
        disk: profile,
        network,
        mode,
        shards_most,
        topics,
        random,
    });
    (world.has_reshapes, world.has_operators) = (has_reshapes, has_operators);
    world.trace.mix(seed);
    world
}

fn draw_config(draws: &mut Random, shards: u16) -> EngineConfig {
    let config = EngineConfig {
        shards,
        journal_files: u16::try_from(draws.between(2, 3)).expect("few files"),
        journal_file_bytes: 1 << 20,
        segment_bytes: 256 << 10,
        segment_age_ms: *draws.pick(&[20, 500, 3_600_000]),
        memory_bytes: 4 << 20,
        batch_bytes_max: *draws.pick(&[4 << 10, 32 << 10, 128 << 10]),
        connection_bytes_max: *draws.pick(&[128 << 10, 64 << 20]),
        idle_marker_us: *draws.pick(&[200, 2_000, 20_000]),
        group_ahead_bytes: *draws.pick(&[4 << 10, 16 << 10, 64 << 10]),
        metadata_file_bytes: 1 << 20,
    };
    config.check().expect("the drawn configuration can work");
    config
}

/// A topic of a run.
#[derive(Clone, Debug)]
pub struct Topic {
    pub name: String,
    pub ranges: u32,
    /// It splits and merges by itself, up to so many ranges.
    pub auto_split: Option<u32>,
    pub writers: Vec<WriterPlan>,
    pub readers: u32,
}

fn draw_topics(draws: &mut Random, config: &EngineConfig) -> Vec<Topic> {
    let topics = draws.between(1, 3);
    (0..topics)
        .map(|topic| {
            let name = format!("topic-{topic}");
            let ranges = *draws.pick(&[1, 1, 2, 4, 8]);
            let keys = match draws.below(4) {
                0 => Keys::Shared(1),
                1 => Keys::Shared(5),
                2 => Keys::Shared(500),
                _ => Keys::None,
            };
            let topic = u32::try_from(topic).expect("few topics");
            let writers = (0..draws.between(1, 3)).map(|_| draw_writer(draws, config, topic, &name, keys)).collect();
            Topic {
                name,
                ranges,
                auto_split: None,
                writers,
                readers: u32::try_from(draws.between(1, 2)).expect("few readers"),
            }
        })
        .collect()
}

fn draw_writer(draws: &mut Random, config: &EngineConfig, topic: u32, name: &str, keys: Keys) -> WriterPlan {
    let largest = config.batch_bytes_max - 256;
    WriterPlan {
        topic,
        topic_name: name.to_owned(),
        expected: None,
        keys,
        value_bytes_most: (*draws.pick(&[64, 1_000, 8_000, 60_000])).min(largest),
        value_bytes_max: largest,
        zeros_percent: *draws.pick(&[0, 5, 50]),
        burst_most: *draws.pick(&[1, 10, 50]),
        pause_us_most: *draws.pick(&[500, 5_000, 50_000]),
        batch_bytes: *draws.pick(&[1, 2_000, 1 << 20]),
        one_record_a_batch: draws.one_in(3),
        linger_us: *draws.pick(&[0, 0, 300]),
        records_in_flight: *draws.pick(&[1, 20, 1_000]),
        timeout_ms: *draws.pick(&[300, 2_000, 20_000]),
        direct: draws.one_in(2),
    }
}

/// One that fills a journal in a few milliseconds.
fn flooding(plan: WriterPlan) -> WriterPlan {
    WriterPlan {
        value_bytes_most: plan.value_bytes_max.min(60_000),
        burst_most: 50,
        pause_us_most: 500,
        batch_bytes: 1 << 20,
        records_in_flight: 1_000,
        ..plan
    }
}
