//! The load that is recorded: lives of one node, with other numbers of shards and ways to sync, so that everything in the directory
//! goes round: journals wrap, segments roll, checkpoints are made, starts take over and write catalogs and the metadata anew.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use sealog_engine::format::batch::ReaderBatches;
use sealog_engine::io::journal_writer::SyncWay;
use sealog_engine::io::recorder::Recorder;
use sealog_engine::types::random::Generator;
use sealog_engine::types::{Offset, RangeId, ShardId};

use super::client::{BATCH_BYTES_MAX, Client, live, sleep_ms};

/// Shards and ways to sync.
const LIVES: [(u16, SyncWay); 3] = [(2, SyncWay::Linked), (1, SyncWay::Thread), (2, SyncWay::AsyncDsync)];
/// Producers in one life, over all shards.
const PRODUCERS: u16 = 4;
/// Between two rounds all is still for so long that an idle marker is written.
const ROUNDS: u64 = 6;
const PAUSE_MS: u64 = 6;
/// Batches of one producer in one range in one round.
const BATCHES: u64 = 26;

/// Runs the load in `dir` and records it in `recording`.
pub fn record(dir: &Path, recording: &Path) {
    let recorder = Recorder::create(recording).expect("a recording");
    for (life, (shards, way)) in LIVES.into_iter().enumerate() {
        let task = Arc::new(move |client| {
            let load = load(client, shards, life == 0);
            Box::pin(load) as std::pin::Pin<Box<dyn Future<Output = ()>>>
        });
        live(dir, shards, way, &recorder, task).expect("a healthy node serves its load");
    }
    recorder.flush();
}

async fn load(client: Rc<Client>, shards: u16, founds: bool) {
    if founds && client.shard == ShardId(0) {
        client.create_topic().await.expect("a new topic");
    }
    let routes = loop {
        match client.routes().await {
            Ok(routes) => break routes,
            Err(_) => sleep_ms(1).await,
        }
    };
    let readers: Vec<_> = routes.iter().map(|route| glommio::spawn_local(read(client.clone(), route.range))).collect();
    let mut producers = Vec::new();
    for _ in 0..PRODUCERS / shards {
        producers.push(client.open_producer().await.expect("a producer"));
    }
    for round in 0..ROUNDS {
        let mut lanes = Vec::new();
        for (at, producer) in producers.iter().enumerate() {
            for route in &routes {
                let (client, producer, range) = (client.clone(), *producer, route.range);
                let mut draw = Generator::new(producer.0.0 << 8 ^ range.0 ^ round << 20);
                let batches = (round * BATCHES, (round + 1) * BATCHES);
                lanes.push(glommio::spawn_local(async move {
                    if at > 0 {
                        sleep_ms(draw.draw() % 4).await;
                    }
                    client.produce(producer, range, batches, &mut draw).await.expect("a healthy node stores");
                }));
            }
        }
        for lane in lanes {
            lane.await;
        }
        sleep_ms(PAUSE_MS).await;
    }
    client.stop.set(true);
    for reader in readers {
        reader.await;
    }
}

/// Follows a range, and takes down what it is given: it must never change again.
async fn read(client: Rc<Client>, range: RangeId) {
    let mut offset = Offset(0);
    while !client.stop.get() {
        let fetched = client.fetch(range, offset, 20).await.expect("a healthy node is read");
        assert_eq!(fetched.gaps, [], "nothing is lost while nothing fails");
        for batch in ReaderBatches::new(&fetched.entries, BATCH_BYTES_MAX as usize) {
            let batch = batch.expect("what is served verifies");
            let (offset, stamp) = (batch.place().offset, batch.batch().stamp());
            client.recorder.note(&format!("read {} {} {} {}", offset.0, stamp.producer.0, range.0, stamp.sequence.0));
        }
        offset = fetched.next;
    }
}
