#![allow(clippy::cast_possible_truncation, reason = "the tests count in small numbers")]

use proptest::prelude::*;

use super::*;
use crate::format::segment::RollMark;
use crate::segment::reader::{Scanned, SegmentReader, Wanted};
use crate::segment::samples::{batch, empty_table, header};

const BASE: u64 = 1_000;

/// An appender, what went into it, and the file that its chunks are written to.
struct Bench {
    pool: ChunkPool,
    appender: Appender,
    file: Vec<u8>,
    /// First offset, end and entry of each batch.
    batches: Vec<(Offset, Offset, Vec<u8>)>,
    digest: Digest,
}

impl Bench {
    fn new() -> Self {
        let mut pool = ChunkPool::new(4 << 20);
        let mut appender = Appender::create(&mut pool, &header(5, BASE));
        appender.append_table(&mut pool, &empty_table());
        let digest = Digest::start(SegmentId(5), Offset(BASE), &empty_table());
        Self { pool, appender, file: Vec::new(), batches: Vec::new(), digest }
    }

    fn append(&mut self, records: u32, value_bytes: usize) {
        let bytes = batch(1, self.batches.len() as u64, records, value_bytes);
        let from = self.appender.end();
        let batch = BatchRef::verify(&bytes, bytes.len()).unwrap();
        let placed = self.appender.append_batch(&mut self.pool, Epoch(2), 99, batch);
        let entry = self.appender.entry(placed).to_vec();
        let found = PlacedBatch::verify(&entry, self.appender.seed).unwrap();
        assert_eq!((found.place().offset, found.end()), (from, self.appender.end()));
        assert!(found.continues(self.digest));
        self.digest = found.digest();
        assert_eq!(self.appender.digest(), self.digest);
        self.batches.push((from, found.end(), entry));
    }

    /// Writes what is closed below `cut` and drops it from memory.
    fn checkpoint(&mut self, cut: Cut) {
        while let Some(chunk) = self.appender.next_unwritten(cut.position) {
            let at = usize::try_from(chunk.position).unwrap();
            assert_eq!((at, at % BLOCK, chunk.length % BLOCK), (self.file.len(), 0, 0), "no block is written twice");
            self.file.extend_from_slice(&chunk.buffer[..chunk.length]);
        }
        self.appender.checkpointed(&mut self.pool, cut.position);
    }

    /// What a reader should get, and where it goes on.
    fn expected(&self, from: Offset, below: Offset, bytes_max: usize) -> (Vec<u8>, Offset) {
        let (mut out, mut next) = (Vec::new(), from);
        for (_, end, entry) in self.batches.iter().filter(|(_, end, _)| *end > from) {
            if *end > below || (!out.is_empty() && out.len() + entry.len() > bytes_max) {
                break;
            }
            out.extend_from_slice(entry);
            next = *end;
        }
        (out, next)
    }

    /// From the file as far as it goes, `step` bytes more than needed at a time, then from memory.
    fn read(&self, from: Offset, below: Offset, bytes_max: usize, step: usize) -> (Vec<u8>, Offset) {
        let mut out = Vec::new();
        let mut next = match self.appender.read(from, below, bytes_max, &mut out) {
            TailRead::Read { next } => return (out, next),
            TailRead::Older { .. } => from,
        };
        let memory_from = self.appender.memory_from();
        if next < memory_from {
            let wanted = Wanted { from, below: below.min(memory_from), until: self.file.len() as u64 };
            let start = self.appender.index().find_offset(from);
            let mut reader = SegmentReader::new(SegmentId(5), header(5, BASE).random, Offset(BASE), start, wanted);
            let (mut position, mut length) = (reader.read_position(), BLOCK);
            next = loop {
                let at = usize::try_from(position).unwrap();
                let piece = &self.file[at..(at + length + step * BLOCK).min(self.file.len())];
                match reader.feed(position, piece, bytes_max, &mut out) {
                    Scanned::Enough { next } => break next,
                    Scanned::More { position: p, length: l } => (position, length) = (p, l),
                    Scanned::Bad { position, offset, cause } => panic!("{offset} at {position}: {cause}"),
                }
            };
            if next < memory_from || next >= below {
                return (out, next);
            }
        }
        match self.appender.read(next, below, bytes_max, &mut out) {
            TailRead::Read { next } => (out, next),
            TailRead::Older { .. } => panic!("the file was read up to memory"),
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Append { records: u32, value_bytes: usize },
    Checkpoint,
    CutThenAppendThenCheckpoint,
    Read { from: prop::sample::Index, below: prop::sample::Index, bytes_max: usize, step: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let value_bytes = prop_oneof![8 => 0usize..3_000, 1 => 60_000usize..70_000, 1 => 250_000usize..300_000];
    let step = prop_oneof![
        8 => (1u32..4, value_bytes).prop_map(|(records, value_bytes)| Step::Append { records, value_bytes }),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::CutThenAppendThenCheckpoint),
        3 => (any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0usize..100_000, 0usize..20)
            .prop_map(|(from, below, bytes_max, step)| Step::Read { from, below, bytes_max, step }),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn every_batch_reads_back_from_memory_and_from_the_file(steps in steps()) {
        let mut bench = Bench::new();
        for step in steps {
            match step {
                Step::Append { records, value_bytes } => bench.append(records, value_bytes),
                Step::Checkpoint => {
                    let cut = bench.appender.cut();
                    prop_assert_eq!((cut.end, cut.digest), (bench.appender.end(), bench.digest));
                    bench.checkpoint(cut);
                    prop_assert_eq!(bench.appender.memory_bytes(), 0);
                    prop_assert_eq!(bench.appender.unwritten_bytes(), 0);
                }
                Step::CutThenAppendThenCheckpoint => {
                    let cut = bench.appender.cut();
                    bench.append(1, 100);
                    bench.checkpoint(cut);
                    prop_assert_eq!(bench.appender.memory_from(), cut.end);
                }
                Step::Read { from, below, bytes_max, step } => {
                    let records = bench.appender.end().since(Offset(BASE)) as usize;
                    let from = Offset(BASE + from.index(records + 1) as u64);
                    // A committed end lies between batches.
                    let below = bench.batches.get(below.index(bench.batches.len() + 1)).map_or_else(|| bench.appender.end(), |b| b.1);
                    let read = bench.read(from, below, bytes_max, step);
                    prop_assert_eq!(read, bench.expected(from, below, bytes_max));
                }
            }
        }
        let all = bench.read(Offset(BASE), bench.appender.end(), usize::MAX, 3);
        prop_assert_eq!(all, bench.expected(Offset(BASE), bench.appender.end(), usize::MAX));
    }
}

#[test]
fn memory_comes_back_to_the_pool_and_is_used_again() {
    let mut bench = Bench::new();
    for _ in 0..3 {
        (0..40).for_each(|_| bench.append(1, 10_000));
        let cut = bench.appender.cut();
        bench.checkpoint(cut);
    }
    let kept = bench.pool.bytes();
    assert!(kept > 0);
    for _ in 0..20 {
        (0..40).for_each(|_| bench.append(1, 10_000));
        let cut = bench.appender.cut();
        bench.checkpoint(cut);
    }
    assert_eq!(bench.pool.bytes(), kept, "steady state takes no new memory");
}

#[test]
fn a_roll_mark_and_a_footer_lie_behind_the_batches_and_are_passed_over() {
    let mut bench = Bench::new();
    bench.append(2, 10);
    let digest = bench.digest;
    let mark = RollMark { end: Offset(BASE + 2), digest, successor: SegmentId(6), successor_table: Digest(1) };
    let placed = bench.appender.append_roll_mark(&mut bench.pool, &mark.encode());
    let entry = read_entry(bench.appender.entry(placed), bench.appender.seed).unwrap();
    assert_eq!((entry.kind, RollMark::decode(entry.payload)), (EntryKind::RollMark, Ok(mark)));
    bench.appender.append_footer(&mut bench.pool, &[1; 96]);
    let cut = bench.appender.cut();
    assert_eq!((cut.end, cut.digest), (Offset(BASE + 2), digest), "neither has an offset or a part in the digest");
    bench.checkpoint(cut);
    assert_eq!(
        bench.read(Offset(BASE), Offset(BASE + 2), 1 << 20, 0),
        bench.expected(Offset(BASE), Offset(BASE + 2), 1 << 20)
    );
}

#[test]
fn a_cut_without_news_stays_where_it_is() {
    let mut bench = Bench::new();
    let first = bench.appender.cut();
    assert_eq!(bench.appender.cut(), first);
    bench.checkpoint(first);
    assert_eq!(bench.appender.cut(), first);
    assert!(bench.appender.next_unwritten(u64::MAX).is_none());
}

#[test]
#[should_panic(expected = "only 0 was written")]
fn what_was_never_written_is_not_checkpointed() {
    let mut bench = Bench::new();
    let cut = bench.appender.cut();
    bench.appender.checkpointed(&mut bench.pool, cut.position);
}
