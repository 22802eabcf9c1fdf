//! The bytes of one file: as a read sees them, as a power cut would leave them at the least, and the writes between the two.
//!
//! Durable bytes are kept only from the first sync on; before it a power cut may leave the file with no bytes at all.

use std::ops::Range;
use std::sync::Arc;

use sealog_engine::types::AlignedBuffer;
use sealog_engine::types::limits::BLOCK;

use super::SECTOR;
use crate::random::Random;

/// Bytes on their way from the cache to the medium.
enum Bytes {
    Own(Box<[u8]>),
    Shared(Arc<AlignedBuffer>),
}

/// A write that is done and not yet durable.
struct Unsynced {
    serial: u64,
    position: usize,
    length: usize,
    bytes: Bytes,
}

impl Unsynced {
    fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Own(bytes) => bytes,
            Bytes::Shared(buffer) => &buffer[..self.length],
        }
    }
}

/// What of the bytes that were not durable a power cut leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    Nothing,
    Everything,
    AnyWrites,
    AnySectors,
}

/// One file.
pub(super) struct File {
    cached: Vec<u8>,
    durable: Option<Vec<u8>>,
    unsynced: Vec<Unsynced>,
    serial: u64,
    /// A sync has failed: the cache shows what the medium will never have.
    ahead: bool,
    /// Blocks that the device cannot read, by number, ascending.
    unreadable: Vec<usize>,
}

impl File {
    /// A file of zeros, none of them durable.
    pub(super) fn new(length: usize) -> Self {
        Self {
            cached: vec![0; length],
            durable: None,
            unsynced: Vec::new(),
            serial: 0,
            ahead: false,
            unreadable: Vec::new(),
        }
    }

    pub(super) fn length(&self) -> usize {
        self.cached.len()
    }

    pub(super) fn cached(&self) -> &[u8] {
        &self.cached
    }

    /// The serial of the last write: a sync submitted now covers all up to it.
    pub(super) fn serial(&self) -> u64 {
        self.serial
    }

    /// Writes into the cache, a copy of the bytes staying behind for the power cut.
    pub(super) fn write(&mut self, position: usize, bytes: &[u8]) {
        self.put(position, bytes);
        self.leave(position, bytes.len(), Bytes::Own(bytes.into()));
    }

    /// As `write`, of the first `length` bytes of a buffer that nobody changes any more.
    pub(super) fn write_shared(&mut self, position: usize, buffer: Arc<AlignedBuffer>, length: usize) {
        self.put(position, &buffer[..length]);
        self.leave(position, length, Bytes::Shared(buffer));
    }

    /// Writes through to the medium: these bytes and no others become durable.
    pub(super) fn write_through(&mut self, position: usize, bytes: &[u8]) {
        self.put(position, bytes);
        let length = self.cached.len();
        let durable = self.durable.get_or_insert_with(|| vec![0; length]);
        durable[position..position + bytes.len()].copy_from_slice(bytes);
        // An older write of these bytes must not come back over them at a power cut.
        self.unsynced.retain(|write| {
            let inside = position <= write.position && write.position + write.length <= position + bytes.len();
            !inside
        });
    }

    fn put(&mut self, position: usize, bytes: &[u8]) {
        let end = position + bytes.len();
        if end > self.cached.len() {
            self.cached.resize(end, 0);
        }
        self.cached[position..end].copy_from_slice(bytes);
        if !self.unreadable.is_empty() {
            self.unreadable.retain(|block| !(position..end).contains(&(block * BLOCK)));
        }
    }

    fn leave(&mut self, position: usize, length: usize, bytes: Bytes) {
        self.serial += 1;
        self.unsynced.push(Unsynced { serial: self.serial, position, length, bytes });
    }

    /// Makes durable what was written up to `serial`.
    pub(super) fn sync(&mut self, serial: u64) {
        let length = self.cached.len();
        let durable = self.durable.get_or_insert_with(|| vec![0; length]);
        durable.resize(length.max(durable.len()), 0);
        for write in self.unsynced.iter().filter(|write| write.serial <= serial) {
            durable[write.position..write.position + write.length].copy_from_slice(write.bytes());
        }
        self.unsynced.retain(|write| write.serial > serial);
    }

    /// A sync that failed: the cache forgets that these writes were not durable, so that no later sync makes them so.
    pub(super) fn lose(&mut self, serial: u64) {
        self.ahead = true;
        self.unsynced.retain(|write| write.serial > serial);
    }

    /// Whether a power cut can change it.
    pub(super) fn is_durable(&self) -> bool {
        self.durable.is_some() && self.unsynced.is_empty() && !self.ahead
    }

    /// The power is cut. Returns how many sectors that were not durable were kept and lost.
    pub(super) fn cut(&mut self, keep: Keep, random: &mut Random) -> (u64, u64) {
        let keeps_length = match keep {
            Keep::Nothing => false,
            Keep::Everything => true,
            Keep::AnyWrites | Keep::AnySectors => random.one_in(2),
        };
        let mut durable = match self.durable.take() {
            Some(durable) => durable,
            None if keeps_length => vec![0; self.cached.len()],
            None => Vec::new(),
        };
        let (mut kept, mut lost) = (0, 0);
        for write in self.unsynced.drain(..) {
            let whole = match keep {
                Keep::Nothing => Some(false),
                Keep::Everything => Some(true),
                Keep::AnyWrites => Some(random.one_in(2)),
                Keep::AnySectors => None,
            };
            for sector in sectors(write.length) {
                if whole.unwrap_or_else(|| random.one_in(2)) && write.position + sector.end <= durable.len() {
                    durable[write.position + sector.start..write.position + sector.end]
                        .copy_from_slice(&write.bytes()[sector]);
                    kept += 1;
                } else {
                    lost += 1;
                }
            }
        }
        self.ahead = false;
        self.cached.clone_from(&durable);
        self.durable = Some(durable);
        (kept, lost)
    }

    /// Reads up to `length` bytes; those that cannot be read are zero, and told.
    pub(super) fn read(&self, position: usize, length: usize) -> (AlignedBuffer, usize, Vec<Range<usize>>) {
        let mut bytes = AlignedBuffer::zeroed(length);
        let there = self.cached.len().saturating_sub(position).min(length);
        if there > 0 {
            bytes[..there].copy_from_slice(&self.cached[position..position + there]);
        }
        let mut spans = Vec::new();
        for block in &self.unreadable {
            let start = block * BLOCK;
            if (position..position + there).contains(&start) {
                let span = start - position..start - position + BLOCK;
                bytes[span.clone()].fill(0);
                spans.push(span);
            }
        }
        (bytes, there, spans)
    }

    /// Flips one bit on the medium and in the cache.
    pub(super) fn rot(&mut self, position: usize, bit: u8) {
        let flip = 1u8 << (bit % 8);
        if let Some(byte) = self.cached.get_mut(position) {
            *byte ^= flip;
        }
        if let Some(byte) = self.durable.as_mut().and_then(|durable| durable.get_mut(position)) {
            *byte ^= flip;
        }
    }

    /// The device cannot read this block any more.
    pub(super) fn make_unreadable(&mut self, block: usize) {
        if let Err(at) = self.unreadable.binary_search(&block) {
            self.unreadable.insert(at, block);
        }
    }
}

/// The sectors of `length` bytes.
pub(super) fn sectors(length: usize) -> impl Iterator<Item = Range<usize>> {
    (0..length).step_by(SECTOR).map(move |start| start..(start + SECTOR).min(length))
}
