//! Replay of a ring of groups that the input wrote and then damaged: what is visited is what was written, in order and from the first
//! live group on; and as long as the last group stands, nothing before it goes missing without being told.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealog_engine::format::journal::{DirectoryEntry, GroupKind, JournalEntryKind, JournalSeed};
use sealog_engine::journal::{
    ClosedGroup, End, FileImage, Geometry, JournalImage, Mark, OpenGroup, Ring, compose_empty, replay,
};
use sealog_engine::types::limits::BLOCK;
use sealog_engine::types::{Generation, Offset, RangeId, SegmentId, ShardId};
use sealog_fuzz::Dice;

const FILES: u16 = 2;
const FILE_BYTES: usize = 8 * BLOCK;
const GROUPS_MAX: usize = 40;

type Entries = Vec<(DirectoryEntry, Vec<u8>)>;

struct Written {
    before: Mark,
    closed: ClosedGroup,
    entries: Entries,
}

struct Disk {
    seed: JournalSeed,
    ring: Ring,
    files: Vec<Vec<u8>>,
    live: Vec<Written>,
}

fuzz_target!(|bytes: &[u8]| {
    let mut dice = Dice(bytes);
    let mut disk = Disk {
        seed: JournalSeed::new(Generation(9), ShardId(0)),
        ring: Ring::new(Geometry::new(FILES, FILE_BYTES as u64)),
        files: vec![vec![0; FILE_BYTES]; usize::from(FILES)],
        live: Vec::new(),
    };
    disk.write_first();
    for _ in 0..usize::from(dice.byte()) % GROUPS_MAX {
        disk.write(&mut dice);
    }
    disk.judge(&[]);
    let mut damaged = Vec::new();
    while !dice.0.is_empty() && damaged.len() < 64 {
        let (file, at, bits) = (usize::from(dice.byte() & 1), usize::from(dice.short()) % FILE_BYTES, dice.byte());
        disk.files[file][at] ^= bits;
        if bits != 0 {
            damaged.push((file, at));
        }
    }
    disk.judge(&damaged);
});

impl Disk {
    fn put(&mut self, closed: ClosedGroup, entries: Entries, bytes: &[u8]) {
        let before = self.ring.next();
        let (file, at) = self.ring.geometry().locate(closed.slot.position);
        let at = usize::try_from(at).expect("a small file");
        self.files[usize::from(file)][at..][..bytes.len()].copy_from_slice(bytes);
        self.ring.take(closed.slot, bytes.len() as u64, closed.digest);
        self.live.push(Written { before, closed, entries });
    }

    fn write_first(&mut self) {
        let slot = self.ring.slot(BLOCK as u64).expect("an empty ring");
        let mut out = vec![0; BLOCK];
        let closed = compose_empty(GroupKind::First, self.seed, slot, &mut out);
        self.put(closed, Vec::new(), &out);
    }

    /// Writes a group; where there is no room, what is oldest is given up first.
    fn write(&mut self, dice: &mut Dice<'_>) {
        let mut group = OpenGroup::new(self.seed, FILE_BYTES);
        let mut bodies = Vec::new();
        for index in 0..dice.byte() % 5 {
            let kinds = [JournalEntryKind::Batch, JournalEntryKind::Table, JournalEntryKind::Change];
            let kind = kinds[usize::from(dice.byte()) % kinds.len()];
            let body = vec![dice.byte(); usize::from(dice.short()) % 5_000 + 1];
            if !group.fits(body.len()) {
                break;
            }
            let bytes = u32::try_from(body.len()).expect("a small body");
            let place = (RangeId(3), SegmentId(u64::from(index) + 1));
            group.add(DirectoryEntry::new(kind, place, (Offset(u64::from(index)), 6), bytes), &body);
            bodies.push(body);
        }
        let slot = loop {
            if let Some(slot) = self.ring.slot(group.length() as u64) {
                break slot;
            }
            self.live.remove(0);
            let live = self.live.first().map_or_else(|| self.ring.next(), |written| written.before);
            self.ring.release(live);
        };
        let mut out = vec![0xaa; group.length()];
        let closed = group.close(slot, &mut out, |at, part| part.copy_from_slice(&bodies[at]));
        let entries = group.directory().iter().copied().zip(bodies).collect();
        self.put(closed, entries, &out);
    }

    /// Replays what is there, damaged at these places.
    fn judge(&self, damaged: &[(usize, usize)]) {
        let images: Vec<_> = self.files.iter().map(|bytes| FileImage { bytes, unreadable: &[] }).collect();
        let image = JournalImage::new(&images).expect("files of one size");
        let mut visited = 0;
        let found = replay(&image, self.seed, self.ring.live(), |group| {
            let written = &self.live[visited];
            assert_eq!(group.header.sequence, written.closed.slot.sequence);
            let entries: Entries = group.entries().map(|(line, body)| (*line, body.to_vec())).collect();
            assert!(entries == written.entries, "group {} is not what was written", group.header.sequence);
            visited += 1;
        });
        assert_eq!(found.groups, visited as u64);
        if damaged.is_empty() {
            assert_eq!((visited, &found.last, found.end), (self.live.len(), &End::Certain, self.ring.next()));
        }
        let last_stands = self.live.last().is_some_and(|last| !self.is_damaged(last, damaged));
        if last_stands && visited < self.live.len() {
            assert!(matches!(found.last, End::Damaged(_) | End::Newer(_)), "{visited} groups and {:?}", found.last);
        }
    }

    fn is_damaged(&self, written: &Written, damaged: &[(usize, usize)]) -> bool {
        let (file, at) = self.ring.geometry().locate(written.closed.slot.position);
        let (file, at) = (usize::from(file), usize::try_from(at).expect("a small file"));
        damaged.iter().any(|(of, byte)| *of == file && (at..at + written.closed.length).contains(byte))
    }
}
