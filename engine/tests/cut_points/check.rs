//! Starts a node on what a power cut left, reads all of it, stores more, and compares with what it had told before.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use sealog_engine::api::response::GapCause;
use sealog_engine::format::batch::ReaderBatches;
use sealog_engine::io::journal_writer::SyncWay;
use sealog_engine::io::recorder::Recorder;
use sealog_engine::types::random::Generator;
use sealog_engine::types::{Offset, RangeId, ShardId};

use super::client::{BATCH_BYTES_MAX, Client, live};
use super::history::{BatchId, History};

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    pub violations: Vec<String>,
    /// Acknowledged batches that had to be there.
    pub acknowledged: u64,
    /// Records read back.
    pub records: u64,
    /// Batches read back that had not been acknowledged.
    pub unacknowledged: u64,
    pub gaps: u64,
    pub gap_records: u64,
}

impl Findings {
    fn violation(&mut self, text: String) {
        self.violations.push(text);
    }
}

/// Checks the directory against what was known when the power went.
pub fn check(dir: &Path, history: &Arc<History>, recorder: &Recorder, draw: &mut Generator) -> Findings {
    let shards = if draw.draw().is_multiple_of(2) { 1 } else { 2 };
    #[expect(clippy::cast_possible_truncation, reason = "0 or 1")]
    let (asked, seed) = (ShardId((draw.draw() % u64::from(shards)) as u16), draw.draw());
    let history = history.clone();
    let task = Arc::new(move |client: Rc<Client>| {
        let history = history.clone();
        let examine = async move {
            if client.shard == asked {
                Examiner::new(client, &history).examine(seed).await
            } else {
                Findings::default()
            }
        };
        Box::pin(examine) as Pin<Box<dyn Future<Output = Findings>>>
    });
    match live(dir, shards, SyncWay::Linked, recorder, task) {
        Ok(found) => found
            .into_iter()
            .max_by_key(|found| found.violations.len() as u64 + found.acknowledged + found.records)
            .unwrap_or_default(),
        Err(why) => Findings { violations: vec![why], ..Findings::default() },
    }
}

struct Examiner<'a> {
    client: Rc<Client>,
    history: &'a History,
    /// What is sent and stored here, besides.
    own: BTreeSet<BatchId>,
    found: Findings,
}

/// What one range gave.
#[derive(Default)]
struct RangeRead {
    next: Offset,
    batches: BTreeMap<u64, BatchId>,
    gaps: Vec<(u64, u64)>,
}

impl<'a> Examiner<'a> {
    fn new(client: Rc<Client>, history: &'a History) -> Self {
        Self { client, history, own: BTreeSet::new(), found: Findings::default() }
    }

    async fn examine(mut self, seed: u64) -> Findings {
        let mut draw = Generator::new(seed);
        if let Err(refusal) = self.examine_all(&mut draw).await {
            self.found.violation(format!("refused: {refusal:?}"));
        }
        self.found
    }

    async fn examine_all(&mut self, draw: &mut Generator) -> Result<(), sealog_engine::api::error::Refusal> {
        let routes = match self.client.routes().await {
            Ok(routes) => routes,
            Err(refusal) => {
                if self.history.topic {
                    self.found.violation(format!("the topic is lost: {refusal:?}"));
                }
                self.client.create_topic().await?;
                self.client.routes().await?
            }
        };
        let producer = self.client.open_producer().await?;
        if self.history.producers.contains(&producer.0.0) {
            self.found.violation(format!("{} is given out again", producer.0));
        }
        let (reads_first, ranges) = (draw.draw().is_multiple_of(2), routes.len());
        let mut seen = BTreeSet::new();
        for route in routes {
            let mut read = RangeRead::default();
            if reads_first {
                // This settles the tail that an earlier life left.
                self.read(route.range, &mut read).await?;
                self.client.fetch(route.range, read.next, 0).await?;
            }
            let id = BatchId { producer: producer.0.0, range: route.range.0, sequence: 0 };
            self.own.insert(id);
            self.client.produce(producer, route.range, (0, 1), draw).await?;
            self.read(route.range, &mut read).await?;
            self.judge(route.range, &read);
            if read.batches.last_key_value().map(|(_, last)| *last) != Some(id) {
                self.found.violation(format!("{}: the batch stored now is not the last", route.range));
            }
            seen.extend(read.batches.into_values());
        }
        let stored = &self.history.stored;
        self.found.acknowledged = stored.len() as u64;
        for id in stored.difference(&seen) {
            self.found.violations.push(format!("acknowledged batch [{id}] is lost ({ranges} ranges)"));
        }
        self.found.unacknowledged =
            seen.iter().filter(|id| !stored.contains(id) && !self.own.contains(id)).count() as u64;
        Ok(())
    }

    /// Reads a range from where it was left to its end.
    async fn read(&mut self, range: RangeId, read: &mut RangeRead) -> Result<(), sealog_engine::api::error::Refusal> {
        loop {
            let fetched = self.client.fetch(range, read.next, 15).await?;
            for gap in &fetched.gaps {
                self.found.gaps += 1;
                self.found.gap_records += gap.records_at_most;
                if gap.cause != GapCause::Interrupted {
                    self.found.violation(format!("{range}: a gap {gap:?} though nothing rotted"));
                }
                read.gaps.push((gap.from.0, gap.to.0));
                self.client.recorder.note(&format!("gap {} {} {}", range.0, gap.from.0, gap.to.0));
            }
            for batch in ReaderBatches::new(&fetched.entries, BATCH_BYTES_MAX as usize) {
                let Ok(batch) = batch else {
                    self.found.violation(format!("{range}: a batch that does not verify at {}", read.next));
                    break;
                };
                let stamp = batch.batch().stamp();
                let id = BatchId { producer: stamp.producer.0, range: range.0, sequence: stamp.sequence.0 };
                let offset = batch.place().offset.0;
                self.client.recorder.note(&format!("read {offset} {id}"));
                if read.batches.insert(offset, id).is_some() {
                    self.found.violation(format!("{range}: offset {offset} was given twice"));
                }
                let values: Result<Vec<_>, _> =
                    batch.batch().records().map(|record| record.map(|record| record.value)).collect();
                let values = values.unwrap_or_default();
                self.found.records += values.len() as u64;
                let expected = id.values();
                if !values.into_iter().eq(expected.iter().map(|value| Some(&value[..]))) {
                    self.found.violation(format!("{range}: batch [{id}] holds other records than were sent"));
                }
            }
            let is_end = fetched.next == read.next;
            read.next = fetched.next;
            if is_end || fetched.next == fetched.end && self.own_is_read(read) {
                return Ok(());
            }
        }
    }

    fn own_is_read(&self, read: &RangeRead) -> bool {
        read.batches.last_key_value().is_some_and(|(_, id)| self.own.contains(id))
    }

    fn judge(&mut self, range: RangeId, read: &RangeRead) {
        let mut spans = read.gaps.clone();
        spans.extend(read.batches.iter().map(|(offset, id)| (*offset, offset + id.values().len() as u64)));
        spans.sort_unstable();
        let mut next = 0;
        for (from, to) in spans {
            if from != next {
                self.found.violation(format!("{range}: from {next} to {from} nothing was said"));
            }
            next = to;
        }
        let mut last: BTreeMap<u64, u64> = BTreeMap::new();
        for id in read.batches.values() {
            if !self.history.sent.contains(id) && !self.own.contains(id) {
                self.found.violation(format!("batch [{id}] was never sent"));
            }
            let expected = last.get(&id.producer).map_or(0, |last| last + 1);
            if id.sequence != expected {
                self.found.violation(format!("{range}: batch [{id}] stands where {expected} was due"));
            }
            last.insert(id.producer, id.sequence);
        }
        for ((_, offset), id) in self.history.read.range((range.0, 0)..(range.0 + 1, 0)) {
            if read.batches.get(offset) != Some(id) {
                let now = read.batches.get(offset);
                self.found.violation(format!("{range}: a reader was given [{id}] at {offset}, and now {now:?}"));
            }
        }
        for ((_, from), to) in self.history.gaps.range((range.0, 0)..(range.0 + 1, 0)) {
            if let Some((offset, id)) = read.batches.range(from..to).next() {
                self.found.violation(format!("{range}: [{id}] at {offset}, which a reader was told to be gone"));
            }
        }
    }
}
