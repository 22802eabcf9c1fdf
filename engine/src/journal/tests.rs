//! A ring on a pretended disk: groups are written, torn, damaged and read back.

use std::ops::Range;

use proptest::prelude::*;

use super::*;
use crate::format::journal::{DirectoryEntry, GroupKind, GroupLayout, JournalEntryKind, JournalSeed};
use crate::types::limits::BLOCK;
use crate::types::{Epoch, Generation, Offset, RangeId, SegmentId, ShardId};

const FILE_BYTES: usize = 64 << 10;
const FILES: u16 = 2;
const SECTOR: usize = 512;

type Entry = (DirectoryEntry, Vec<u8>);

#[derive(Clone, Debug)]
struct Written {
    before: Mark,
    closed: ClosedGroup,
    entries: Vec<Entry>,
    bytes: Vec<u8>,
}

impl Written {
    fn layout(&self) -> GroupLayout {
        GroupLayout::of(self.entries.len(), self.entries.iter().map(|e| e.1.len()).sum())
    }

    /// Where header and directory, their repetition with the tail mark, and the body lie.
    fn parts(&self) -> [Range<usize>; 3] {
        let layout = self.layout();
        let body: usize = self.entries.iter().map(|e| e.1.len()).sum();
        [0..layout.body, layout.repetition..layout.length, layout.body..layout.body + body]
    }
}

#[derive(Clone)]
struct Disk {
    files: Vec<Vec<u8>>,
    unreadable: Vec<Vec<Range<usize>>>,
    ring: Ring,
    seed: JournalSeed,
    live: Vec<Written>,
}

impl Disk {
    fn new(generation: u64, files: Vec<Vec<u8>>) -> Self {
        let ring = Ring::new(Geometry::new(FILES, FILE_BYTES as u64));
        let seed = JournalSeed::new(Generation(generation), ShardId(1));
        let mut disk = Self { unreadable: vec![vec![]; files.len()], files, ring, seed, live: vec![] };
        disk.write_empty(GroupKind::First);
        disk
    }

    fn blank(generation: u64) -> Self {
        Self::new(generation, vec![vec![0; FILE_BYTES]; usize::from(FILES)])
    }

    fn place(&self, closed: &ClosedGroup) -> (usize, usize) {
        let (file, offset) = self.ring.geometry().locate(closed.slot.position);
        (usize::from(file), usize::try_from(offset).unwrap())
    }

    fn bytes_of(&mut self, written: &Written) -> &mut [u8] {
        let (file, offset) = self.place(&written.closed);
        &mut self.files[file][offset..offset + written.closed.length]
    }

    fn put(&mut self, closed: ClosedGroup, entries: Vec<Entry>, bytes: Vec<u8>) {
        let before = self.ring.next();
        let written = Written { before, closed, entries, bytes };
        self.bytes_of(&written).copy_from_slice(&written.bytes);
        if closed.kind != GroupKind::Marker {
            self.ring.take(closed.slot, closed.length as u64, closed.digest);
            self.live.push(written);
        }
    }

    fn write_empty(&mut self, kind: GroupKind) {
        let slot = self.slot(BLOCK);
        let mut out = vec![0xaa; BLOCK];
        let closed = compose_empty(kind, self.seed, slot, &mut out);
        self.put(closed, vec![], out);
    }

    /// The next slot; where the ring is full, the older half of the live groups is checkpointed.
    fn slot(&mut self, length: usize) -> Slot {
        loop {
            if let Some(slot) = self.ring.slot(length as u64) {
                return slot;
            }
            self.checkpoint(self.live.len() / 2 + 1);
        }
    }

    fn checkpoint(&mut self, groups: usize) {
        self.live.drain(..groups.min(self.live.len()));
        self.ring.release(self.live.first().map_or_else(|| self.ring.next(), |w| w.before));
    }

    fn write(&mut self, entries: Vec<Entry>) {
        let mut group = OpenGroup::new(self.seed, FILE_BYTES);
        for (line, body) in &entries {
            group.add(*line, body);
        }
        let slot = self.slot(group.length());
        let mut out = vec![0xaa; group.length() + BLOCK];
        let closed = group.close(slot, &mut out, |i, part| part.copy_from_slice(&entries[i].1));
        assert_eq!(closed.length, group.length());
        out.truncate(closed.length);
        let entries = group.directory().iter().copied().zip(entries.into_iter().map(|e| e.1)).collect();
        self.put(closed, entries, out);
    }

    fn last(&self) -> Written {
        self.live.last().unwrap().clone()
    }

    /// Replays from the live mark; gives the groups visited as (sequence, entries).
    fn replay(&self) -> (Vec<(u64, Vec<Entry>)>, Replay) {
        let images: Vec<_> = self
            .files
            .iter()
            .zip(&self.unreadable)
            .map(|(bytes, unreadable)| FileImage { bytes, unreadable })
            .collect();
        let image = JournalImage::new(&images).unwrap();
        let mut groups = vec![];
        let replayed = replay(&image, self.seed, self.ring.live(), |group| {
            let entries = group.entries().map(|(line, body)| (*line, body.to_vec())).collect();
            groups.push((group.header.sequence, entries));
        });
        assert_eq!(replayed.groups, groups.len() as u64);
        (groups, replayed)
    }

    /// What a replay has to visit of the first `groups` live groups.
    fn expected(&self, groups: usize) -> Vec<(u64, Vec<Entry>)> {
        self.live[..groups].iter().map(|w| (w.closed.slot.sequence, w.entries.clone())).collect()
    }

    fn assert_whole(&self, last: &End) {
        let (groups, replayed) = self.replay();
        assert_eq!(groups, self.expected(self.live.len()));
        assert_eq!(replayed.end, self.ring.next());
        assert_eq!(&replayed.last, last);
    }

    fn assert_damaged(&self, at: usize) {
        let (groups, replayed) = self.replay();
        assert_eq!(groups, self.expected(at));
        let End::Damaged(damage) = replayed.last else { panic!("{:?}", replayed.last) };
        assert_eq!(damage.mark, self.live[at].before);
        assert!(matches!(damage.cause, DamageCause::Proved { .. }), "{damage}");
    }
}

fn line(kind: JournalEntryKind, bytes: usize) -> DirectoryEntry {
    DirectoryEntry::new(kind, (RangeId(3), SegmentId(4)), (Offset(5), 6), bytes.try_into().unwrap())
}

fn body(bytes: usize) -> Entry {
    (line(JournalEntryKind::Batch, bytes), vec![0x5a; bytes])
}

fn promise() -> Entry {
    (DirectoryEntry::promise(RangeId(3), SegmentId(4), Epoch(7)), vec![])
}

fn entry() -> impl Strategy<Value = Entry> {
    let kinds = vec![JournalEntryKind::Batch, JournalEntryKind::Table, JournalEntryKind::Change];
    let with_body = (prop::sample::select(kinds), prop_oneof![1usize..200, 1usize..9000], any::<u8>())
        .prop_map(|(kind, bytes, fill)| (line(kind, bytes), (0..=fill).cycle().take(bytes).collect()));
    prop_oneof![4 => with_body, 1 => Just(promise())]
}

#[derive(Clone, Debug)]
enum Step {
    Write(Vec<Entry>),
    Marker,
    Checkpoint(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => prop::collection::vec(entry(), 0..5).prop_map(Step::Write),
        2 => Just(Step::Marker),
        1 => (0usize..4).prop_map(Step::Checkpoint),
    ]
}

fn run(disk: &mut Disk, steps: &[Step]) {
    for step in steps {
        match step {
            Step::Write(entries) => disk.write(entries.clone()),
            Step::Marker => {
                if disk.ring.slot(BLOCK as u64).is_some() {
                    disk.write_empty(GroupKind::Marker);
                }
            }
            Step::Checkpoint(groups) => disk.checkpoint((*groups).min(disk.live.len().saturating_sub(1))),
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn whole_groups_are_replayed_in_order_from_the_first_live_one(steps in steps()) {
        let mut disk = Disk::blank(9);
        run(&mut disk, &steps);
        disk.assert_whole(&End::Certain);
        if disk.ring.slot(BLOCK as u64).is_some() {
            disk.write_empty(GroupKind::Stop);
            disk.assert_whole(&End::Stopped);
        }
    }

    #[test]
    fn what_another_generation_left_changes_nothing(before in steps(), after in steps()) {
        let mut old = Disk::blank(8);
        run(&mut old, &before);
        let mut disk = Disk::new(9, old.files);
        run(&mut disk, &after);
        disk.assert_whole(&End::Certain);
    }

    #[test]
    fn a_torn_last_group_is_whole_uncertain_or_absent_by_what_verifies(
        steps in steps(),
        last in prop::collection::vec(entry(), 1..5),
        marker: bool,
        kept in prop::collection::vec(any::<bool>(), 1..300),
        garbage: bool,
    ) {
        let mut disk = Disk::blank(9);
        run(&mut disk, &steps);
        if marker {
            run(&mut disk, &[Step::Marker]);
        }
        let before = disk.files.clone();
        disk.write(last);
        let written = disk.last();
        let (file, offset) = disk.place(&written.closed);
        for (sector, at) in (0..written.closed.length).step_by(SECTOR).enumerate() {
            if !kept[sector % kept.len()] {
                let old = &before[file][offset + at..][..SECTOR];
                let new = &mut disk.files[file][offset + at..][..SECTOR];
                if garbage { new.fill(0xdb) } else { new.copy_from_slice(old) }
            }
        }
        let parts = written.parts();
        let now = disk.bytes_of(&written).to_vec();
        let [front, repetition, body] = parts.map(|part| now[part.clone()] == written.bytes[part]);
        let count = disk.live.len();
        let (groups, replayed) = disk.replay();
        if (front || repetition) && body {
            prop_assert_eq!(groups, disk.expected(count));
            prop_assert_eq!(replayed.last, End::Certain);
        } else {
            prop_assert_eq!(groups, disk.expected(count - 1));
            prop_assert_eq!(replayed.end, written.before);
            match replayed.last {
                End::Uncertain(uncertain) => {
                    prop_assert!(front || repetition);
                    prop_assert_eq!(uncertain.header.sequence, written.closed.slot.sequence);
                    let directory: Vec<_> = written.entries.iter().map(|e| e.0).collect();
                    prop_assert_eq!(uncertain.directory, directory);
                }
                End::Certain => prop_assert!(!front && !repetition),
                other @ (End::Stopped | End::Unknown(_) | End::Damaged(_) | End::Newer(_)) => {
                    prop_assert!(false, "{:?}", other);
                }
            }
        }
    }

    #[test]
    fn a_flipped_bit_is_mended_by_the_repetition_or_told_as_damage_never_cut(
        steps in steps(),
        which: prop::sample::Index,
        byte: prop::sample::Index,
        bit in 0u8..8,
    ) {
        let mut disk = Disk::blank(9);
        run(&mut disk, &steps);
        disk.write(vec![body(100)]);
        let which = which.index(disk.live.len() - 1);
        let written = disk.live[which].clone();
        let at = byte.index(written.closed.length);
        disk.bytes_of(&written)[at] ^= 1 << bit;
        let [_, _, body] = written.parts();
        if body.contains(&at) {
            disk.assert_damaged(which);
        } else {
            disk.assert_whole(&End::Certain);
        }
    }

    #[test]
    fn a_group_that_is_gone_is_damage_wherever_a_later_one_stands(
        steps in steps(),
        which: prop::sample::Index,
        zeros: bool,
        by_marker: bool,
    ) {
        let mut disk = Disk::blank(9);
        run(&mut disk, &steps);
        disk.write(vec![body(100)]);
        let which = if by_marker && disk.ring.slot(BLOCK as u64).is_some() {
            disk.write_empty(GroupKind::Marker);
            which.index(disk.live.len())
        } else {
            which.index(disk.live.len() - 1)
        };
        let written = disk.live[which].clone();
        disk.bytes_of(&written).fill(if zeros { 0 } else { 0x77 });
        disk.assert_damaged(which);
    }

    #[test]
    fn what_cannot_be_read_is_never_an_end(steps in steps(), file in 0..usize::from(FILES), block in 0..FILE_BYTES / BLOCK) {
        let mut disk = Disk::blank(9);
        run(&mut disk, &steps);
        let span = block * BLOCK..(block + 1) * BLOCK;
        disk.files[file][span.clone()].fill(0);
        disk.unreadable[file].push(span.clone());
        let (groups, replayed) = disk.replay();
        prop_assert_eq!(&groups[..], &disk.expected(groups.len())[..]);
        if groups.len() < disk.live.len() {
            prop_assert!(!matches!(replayed.last, End::Certain | End::Stopped), "{:?}", replayed.last);
        }
    }

    #[test]
    fn any_bytes_are_judged(bytes in prop::collection::vec(any::<u8>(), 2 * BLOCK), sequence in 0u64..3) {
        let files = [FileImage { bytes: &bytes[..BLOCK], unreadable: &[] }, FileImage { bytes: &bytes[BLOCK..], unreadable: &[] }];
        let image = JournalImage::new(&files).unwrap();
        let seed = JournalSeed::new(Generation(1), ShardId(0));
        let mark = Mark { sequence, ..Mark::BEGIN };
        prop_assert!(matches!(replay(&image, seed, mark, |_| ()).last, End::Damaged(_)));
    }
}

#[test]
fn a_journal_without_its_first_group_is_damaged_and_not_empty() {
    let cause = |disk: &Disk| {
        let last = disk.replay().1.last;
        let End::Damaged(damage) = last else { panic!("{last:?}") };
        damage.cause
    };
    let mut disk = Disk::blank(9);
    disk.files[0].fill(0);
    assert_eq!(cause(&disk), DamageCause::FirstMissing);
    let mut disk = Disk::blank(9);
    disk.write(vec![body(10)]);
    disk.checkpoint(2);
    disk.assert_whole(&End::Certain);
    disk.files[0].fill(0);
    assert_eq!(cause(&disk), DamageCause::NothingLeft);
}

#[test]
fn an_unreadable_first_group_leaves_the_end_unknown() {
    let mut disk = Disk::blank(9);
    disk.files[0][..BLOCK].fill(0);
    disk.unreadable[0].push(0..BLOCK);
    assert_eq!(disk.replay().1.last, End::Unknown(None));
}

#[test]
fn an_unreadable_block_inside_verified_groups_or_their_gaps_is_no_doubt() {
    let mut disk = Disk::blank(9);
    for _ in 0..4 {
        disk.write(vec![body(15 << 10)]);
    }
    assert_eq!(disk.last().closed.slot.position, Position(FILE_BYTES as u64), "a gap was left in the first file");
    let gap = FILE_BYTES - BLOCK..FILE_BYTES;
    disk.unreadable[0].push(gap);
    disk.assert_whole(&End::Certain);
}

#[test]
fn an_uncertain_group_behind_which_something_is_unreadable_leaves_the_end_unknown() {
    let mut disk = Disk::blank(9);
    disk.write(vec![body(20_000)]);
    let last = disk.last();
    disk.bytes_of(&last)[BLOCK] ^= 1;
    assert!(matches!(disk.replay().1.last, End::Uncertain(_)));
    let (file, offset) = disk.place(&last.closed);
    let inside = offset + BLOCK..offset + 2 * BLOCK;
    disk.unreadable[file].push(inside);
    assert!(matches!(disk.replay().1.last, End::Uncertain(_)));
    let behind = offset + last.closed.length..offset + last.closed.length + BLOCK;
    disk.unreadable[file].push(behind);
    let End::Unknown(Some(uncertain)) = disk.replay().1.last else { panic!() };
    assert_eq!(uncertain.directory.len(), 1);
}

#[test]
fn a_marker_makes_the_last_group_certain_and_is_overwritten_by_the_next() {
    let mut disk = Disk::blank(9);
    disk.write(vec![body(5000)]);
    let first = disk.last();
    disk.write_empty(GroupKind::Marker);
    disk.assert_whole(&End::Certain);
    let mut rotten = disk.clone();
    rotten.bytes_of(&first)[1000] ^= 1;
    rotten.assert_damaged(1);
    disk.write(vec![body(100)]);
    assert_eq!(disk.last().closed.slot.sequence, first.closed.slot.sequence + 1);
    disk.assert_whole(&End::Certain);
}

#[test]
fn the_group_behind_a_marker_may_lie_in_the_next_file() {
    let mut disk = Disk::blank(9);
    disk.write(vec![body(50_000)]);
    disk.write_empty(GroupKind::Marker);
    disk.write(vec![body(30_000)]);
    assert_eq!(disk.last().closed.slot.position, Position(FILE_BYTES as u64));
    disk.assert_whole(&End::Certain);
}

#[test]
fn a_group_torn_over_its_marker_is_found_by_its_repetition() {
    let mut disk = Disk::blank(9);
    disk.write_empty(GroupKind::Marker);
    let before = disk.files.clone();
    disk.write(vec![body(9000)]);
    let (file, offset) = disk.place(&disk.last().closed);
    disk.files[file][offset..offset + BLOCK].copy_from_slice(&before[file][offset..offset + BLOCK]);
    let (groups, replayed) = disk.replay();
    assert_eq!(groups.len(), 1);
    assert!(matches!(replayed.last, End::Uncertain(u) if u.directory.len() == 1));
}

#[test]
fn a_group_that_does_not_follow_from_the_one_before_is_damage() {
    let mut disk = Disk::blank(9);
    disk.write(vec![body(100)]);
    let mut other = Disk::blank(9);
    other.write(vec![body(200)]);
    other.write(vec![body(300)]);
    let foreign = other.last();
    disk.bytes_of(&foreign).copy_from_slice(&foreign.bytes);
    let (groups, replayed) = disk.replay();
    assert_eq!(groups.len(), 2);
    let End::Damaged(damage) = replayed.last else { panic!("{:?}", replayed.last) };
    assert_eq!(damage.mark, disk.ring.next());
}

#[test]
fn reused_memory_leaves_nothing_of_an_earlier_group_in_a_later_one() {
    let mut disk = Disk::blank(9);
    disk.write(vec![body(10)]);
    let last = disk.last();
    let [front, repetition, body] = last.parts();
    assert!(last.bytes[body.end..repetition.start].iter().all(|b| *b == 0));
    assert_eq!(front.end, body.start);
}

#[test]
fn a_misdirected_group_is_damage() {
    let mut disk = Disk::blank(9);
    disk.write(vec![body(100)]);
    let last = disk.last();
    disk.bytes_of(&last).fill(0);
    let elsewhere = 10 * BLOCK;
    disk.files[1][elsewhere..elsewhere + last.bytes.len()].copy_from_slice(&last.bytes);
    disk.assert_damaged(1);
}

#[test]
fn a_copy_of_a_journal_inside_a_record_proves_nothing() {
    let mut disk = Disk::blank(9);
    disk.write(vec![body(100)]);
    let mut copy = disk.files[0][..2 * BLOCK].to_vec();
    // So that the copied group begins on a block.
    let front = GroupLayout::of(1, copy.len()).body;
    copy.splice(0..0, vec![0; BLOCK - front]);
    disk.write(vec![(line(JournalEntryKind::Batch, copy.len()), copy)]);
    disk.assert_whole(&End::Certain);
}

#[test]
fn a_group_of_one_small_record_takes_one_block() {
    let mut group = OpenGroup::new(JournalSeed::new(Generation(1), ShardId(0)), FILE_BYTES);
    let body = vec![1; crate::format::batch::entry_length(80 + 1024 + 40)];
    group.add(line(JournalEntryKind::Batch, body.len()), &body);
    assert_eq!(group.length(), BLOCK);
}

#[test]
fn a_full_group_takes_no_more_but_one_entry_alone_may_be_longer() {
    let mut group = OpenGroup::new(JournalSeed::new(Generation(1), ShardId(0)), 2 * BLOCK);
    assert!(group.fits(100_000));
    group.add(line(JournalEntryKind::Batch, 100_000), &[1; 100_000]);
    assert!(!group.fits(1));
    group.clear();
    group.add(line(JournalEntryKind::Batch, 5_000), &[1; 5_000]);
    assert!(group.fits(2_000) && !group.fits(4_000));
    assert_eq!(group::group_bytes_max(1 << 20), GroupLayout::of(1, crate::format::batch::entry_length(1 << 20)).length);
}

#[test]
fn files_of_different_sizes_are_no_ring() {
    let bytes = vec![0; 3 * BLOCK];
    let file = |blocks: usize| FileImage { bytes: &bytes[..blocks * BLOCK], unreadable: &[] };
    assert!(JournalImage::new(&[file(1), file(2)]).is_none());
    assert!(JournalImage::new(&[]).is_none());
    assert!(JournalImage::new(&[file(0)]).is_none());
    assert!(JournalImage::new(&[file(2), file(2)]).is_some());
}
