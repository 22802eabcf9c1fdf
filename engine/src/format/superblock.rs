//! The superblock of a data directory: whose it is, what it takes to read it, and which generation of journals is the living one.
//!
//! Two copies, a block each, in files of their own. They are written and synced one after the other, the one with the smaller sequence
//! first, so that one of them is always whole.
//!
//! ```text
//!   0 magic "SEALOGSB"   8 format version u32   12 shards u16   14 phase u8   15 reserved   16 must-know bits u64   24 may-read bits u64
//!  32 may-ignore bits u64   40 cluster, 16 bytes   56 disk, 16 bytes   72 node u32   76 reserved u32   80 journal generation u64
//!  88 start counter u64   96 sequence u64   104 … 4092 zeros   4092 checksum u32 (of bytes 0 to 4092)
//! ```
//! Magic, version and checksum never move, so that a newer format is told for certain. Feature bits come in three classes: a bit that this build does not know means *refuse* in the first,
//! *read but do not write* in the second, nothing in the third.
//!
//! The order at start: checkpoint all into new catalogs; both copies with a new generation and phase *starting*; the first group of
//! every journal, synced; both copies with phase *running*; only then any other group. Crash before *running*: everything is in the
//! catalogs, and the journals of a *starting* generation hold nothing, whether or not their first groups are there. Crash after it: a
//! journal without its first group is damaged, not empty.

use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum::checksum;
use super::upgrade::{FORMAT_VERSION, Newer};
use crate::types::limits::BLOCK;
use crate::types::{ClusterId, DiskId, Generation, NodeId, ProcessLife};

const WHAT: &str = "data directory";
const MAGIC: [u8; 8] = *b"SEALOGSB";
const USED: usize = 104;
const CHECKSUM_AT: usize = BLOCK - 4;

/// How far the start of the living generation got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Phase {
    /// Its journals need not have their first groups yet, and hold nothing else.
    Starting = 1,
    /// Every journal of it has its first group.
    Running = 2,
}

/// What a build has to know to use a directory. No bit is given yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Features {
    /// Unknown bits here: refuse.
    pub must_know: u64,
    /// Unknown bits here: read, do not write.
    pub may_read: u64,
    /// Unknown bits here: nothing.
    pub may_ignore: u64,
}

impl Features {
    /// All that this build knows.
    pub const KNOWN: Self = Self { must_know: 0, may_read: 0, may_ignore: 0 };

    /// Bits that forbid writing to a process that knows `known`.
    #[must_use]
    pub fn bars_writing(self, known: Self) -> bool {
        self.may_read & !known.may_read != 0
    }
}

/// What a superblock says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// The cluster that the directory belongs to.
    pub cluster: ClusterId,
    /// The directory itself.
    pub disk: DiskId,
    /// The node that uses it.
    pub node: NodeId,
    /// The living generation of journals.
    pub generation: Generation,
    /// How far its start got.
    pub phase: Phase,
    /// How many journals of shards the generation has, numbered from 0.
    pub shards: u16,
    /// How often a process has started on it; the metadata group keeps it too.
    pub start_counter: ProcessLife,
    /// Grows by one with each writing; both copies of one writing have the same.
    pub sequence: u64,
    /// What it takes to use it.
    pub features: Features,
}

/// What one copy is. *Empty*, *present* and *unreadable* are three answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// Zeros only, or no file.
    Empty,
    /// Whole.
    Present(Superblock),
    /// Something else.
    Unreadable,
    /// Of a format that this build does not know. Nothing may be changed.
    Newer(Newer),
    /// With must-know features that this build does not know. Nothing may be changed.
    UnknownFeatures {
        /// The unknown bits.
        bits: u64,
    },
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U32,
    shards: U16,
    phase: u8,
    reserved_byte: u8,
    must_know: U64,
    may_read: U64,
    may_ignore: U64,
    cluster: U128,
    disk: U128,
    node: U32,
    reserved: U32,
    generation: U64,
    start_counter: U64,
    sequence: U64,
}

const _: () = assert!(
    size_of::<Raw>() == USED
        && USED < CHECKSUM_AT
        && std::mem::offset_of!(Raw, version) == 8
        && std::mem::offset_of!(Raw, phase) == 14
        && std::mem::offset_of!(Raw, must_know) == 16
        && std::mem::offset_of!(Raw, cluster) == 40
        && std::mem::offset_of!(Raw, disk) == 56
        && std::mem::offset_of!(Raw, node) == 72
        && std::mem::offset_of!(Raw, generation) == 80
        && std::mem::offset_of!(Raw, start_counter) == 88
        && std::mem::offset_of!(Raw, sequence) == 96
);

impl Superblock {
    /// Writes one copy; `out` is one block.
    ///
    /// # Panics
    /// If it is not.
    pub fn encode(&self, out: &mut [u8]) {
        assert_eq!(out.len(), BLOCK, "a superblock is one block");
        let raw = Raw {
            magic: MAGIC,
            version: FORMAT_VERSION.into(),
            shards: self.shards.into(),
            phase: self.phase as u8,
            reserved_byte: 0,
            must_know: self.features.must_know.into(),
            may_read: self.features.may_read.into(),
            may_ignore: self.features.may_ignore.into(),
            cluster: self.cluster.0.into(),
            disk: self.disk.0.into(),
            node: self.node.0.into(),
            reserved: 0.into(),
            generation: self.generation.0.into(),
            start_counter: self.start_counter.0.into(),
            sequence: self.sequence.into(),
        };
        out.fill(0);
        out[..USED].copy_from_slice(raw.as_bytes());
        let sum = checksum(0, &out[..CHECKSUM_AT]);
        out[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
    }

    /// Whether this build may write to the directory.
    #[must_use]
    pub fn may_write(&self) -> bool {
        !self.features.bars_writing(Features::KNOWN)
    }
}

impl Found {
    /// Judges one copy: the bytes of its file, none if there is no file.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Self {
        if bytes.iter().all(|b| *b == 0) {
            return Self::Empty;
        }
        let Ok((raw, _)) = Raw::ref_from_prefix(bytes) else { return Self::Unreadable };
        if raw.magic != MAGIC {
            return Self::Unreadable;
        }
        let Some(block) = bytes.get(..BLOCK) else { return Self::Unreadable };
        let (covered, stored) = block.split_at(CHECKSUM_AT);
        if checksum(0, covered).to_le_bytes() != stored {
            return Self::Unreadable;
        }
        match raw.version.get() {
            FORMAT_VERSION => {}
            0 => return Self::Unreadable,
            found => return Self::Newer(Newer { what: WHAT, found, supported: FORMAT_VERSION }),
        }
        let bits = raw.must_know.get() & !Features::KNOWN.must_know;
        if bits != 0 {
            return Self::UnknownFeatures { bits };
        }
        let phase = match raw.phase {
            1 => Phase::Starting,
            2 => Phase::Running,
            _ => return Self::Unreadable,
        };
        Self::Present(Superblock {
            cluster: ClusterId(raw.cluster.get()),
            disk: DiskId(raw.disk.get()),
            node: NodeId(raw.node.get()),
            generation: Generation(raw.generation.get()),
            phase,
            shards: raw.shards.get(),
            start_counter: ProcessLife(raw.start_counter.get()),
            sequence: raw.sequence.get(),
            features: Features {
                must_know: raw.must_know.get(),
                may_read: raw.may_read.get(),
                may_ignore: raw.may_ignore.get(),
            },
        })
    }
}

/// What the directory is, by both copies. A refusal by either counts; else the present one with the higher sequence does; and it is
/// empty only if both are.
#[must_use]
pub fn choose(a: Found, b: Found) -> Found {
    let refuses = |copy| matches!(copy, Found::Newer(_) | Found::UnknownFeatures { .. });
    match (a, b) {
        _ if refuses(a) => a,
        _ if refuses(b) => b,
        (Found::Present(x), Found::Present(y)) => {
            if y.sequence > x.sequence {
                b
            } else {
                a
            }
        }
        (Found::Present(_), _) => a,
        (_, Found::Present(_)) => b,
        (Found::Empty, Found::Empty) => Found::Empty,
        _ => Found::Unreadable,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn superblock(sequence: u64) -> Superblock {
        Superblock {
            cluster: ClusterId(1),
            disk: DiskId(2),
            node: NodeId(3),
            generation: Generation(4),
            phase: Phase::Running,
            shards: 5,
            start_counter: ProcessLife(6),
            sequence,
            features: Features::KNOWN,
        }
    }

    fn encode(superblock: &Superblock) -> Vec<u8> {
        let mut out = vec![1; BLOCK];
        superblock.encode(&mut out);
        out
    }

    #[test]
    fn a_superblock_reads_back() {
        for phase in [Phase::Starting, Phase::Running] {
            let superblock = Superblock { phase, ..superblock(7) };
            assert_eq!(Found::decode(&encode(&superblock)), Found::Present(superblock));
        }
    }

    #[test]
    fn empty_and_unreadable_are_different_answers() {
        assert_eq!(Found::decode(&[]), Found::Empty);
        assert_eq!(Found::decode(&[0; BLOCK]), Found::Empty);
        assert_eq!(Found::decode(&[1; BLOCK]), Found::Unreadable);
        assert_eq!(Found::decode(&encode(&superblock(1))[..2048]), Found::Unreadable);
    }

    #[test]
    fn a_newer_format_in_either_copy_is_refused() {
        let mut bytes = encode(&superblock(1));
        bytes[8] = 2;
        assert_eq!(Found::decode(&bytes), Found::Unreadable, "a version that rotted is not a newer one");
        let sum = checksum(0, &bytes[..CHECKSUM_AT]);
        bytes[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
        let newer = Found::decode(&bytes);
        assert_eq!(newer, Found::Newer(Newer { what: WHAT, found: 2, supported: 1 }));
        let present = Found::Present(superblock(9));
        assert_eq!(choose(present, newer), newer);
        assert_eq!(choose(newer, present), newer);
    }

    #[test]
    fn an_unknown_feature_is_refused_read_only_or_ignored_by_its_class() {
        let with = |features| Found::decode(&encode(&Superblock { features, ..superblock(1) }));
        assert_eq!(with(Features { must_know: 4, ..Features::KNOWN }), Found::UnknownFeatures { bits: 4 });
        let Found::Present(read_only) = with(Features { may_read: 4, ..Features::KNOWN }) else { panic!() };
        assert!(!read_only.may_write());
        let Found::Present(ignored) = with(Features { may_ignore: 4, ..Features::KNOWN }) else { panic!() };
        assert!(ignored.may_write());
    }

    #[test]
    fn the_whole_copy_with_the_higher_sequence_counts() {
        let (old, new) = (Found::Present(superblock(1)), Found::Present(superblock(2)));
        assert_eq!(choose(old, new), new);
        assert_eq!(choose(new, old), new);
        assert_eq!(choose(old, Found::Unreadable), old);
        assert_eq!(choose(Found::Empty, old), old);
        assert_eq!(choose(Found::Empty, Found::Empty), Found::Empty);
        assert_eq!(choose(Found::Empty, Found::Unreadable), Found::Unreadable);
    }

    proptest! {
        #[test]
        fn a_flipped_bit_is_never_taken_for_another_superblock(at in 0..BLOCK, bit in 0u8..8) {
            let mut bytes = encode(&superblock(1));
            bytes[at] ^= 1 << bit;
            prop_assert!(!matches!(Found::decode(&bytes), Found::Present(_) | Found::Empty));
        }

        #[test]
        fn any_bytes_are_judged(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Found::decode(&bytes);
        }
    }
}
