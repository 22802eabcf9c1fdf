//! What the fuzz targets share: a bound on memory, and repairing checksums, so that a changed byte gets past them as a writer's error or
//! a forger's frame would.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use sealog_engine::format::checksum;
use sealog_net::wire::Kind;
use sealog_net::wire::frame::{HEADER_BYTES, VERSION};

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator; counting touches no memory of its own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(held, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `act`, which may hold at most so many bytes of new memory at once.
pub fn bounded<T>(bytes_max: usize, act: impl FnOnce() -> T) -> T {
    let before = HELD.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let done = act();
    let grown = MOST.load(Ordering::Relaxed).saturating_sub(before);
    assert!(grown <= bytes_max, "{grown} bytes of memory where {bytes_max} are enough");
    done
}

/// Memory that reading `bytes` may need: a claim in them gives nobody more. A list's shortest element takes two bytes on the wire and
/// some hundred in memory, and a growing list is copied.
pub fn fair(bytes: &[u8]) -> usize {
    (64 << 10) + 256 * bytes.len()
}

/// Writes the CRC-32C that a writer would have written.
pub fn seal(bytes: &mut [u8], covered: std::ops::Range<usize>, at: usize) {
    let sum = checksum(0, &bytes[covered]);
    bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

/// Makes frames of bytes: lengths that lie inside them, and checksums that hold, also those inside of bodies.
pub fn repair_frames(bytes: &mut [u8]) {
    let mut rest = bytes;
    while rest.len() >= HEADER_BYTES {
        let all = rest.len();
        let struct_bytes = usize::from(u16::from_le_bytes([rest[20], rest[21]])).min(all - HEADER_BYTES);
        let least = HEADER_BYTES + struct_bytes;
        let claimed = u32_at(rest, 0) as usize;
        let length = if (least..=all).contains(&claimed) { claimed } else { all };
        let (frame, behind) = rest.split_at_mut(length);
        repair_frame(frame, struct_bytes);
        rest = behind;
    }
}

fn repair_frame(frame: &mut [u8], struct_bytes: usize) {
    let (length, least) = (u32::try_from(frame.len()).expect("a small input"), HEADER_BYTES + struct_bytes);
    frame[..4].copy_from_slice(&length.to_le_bytes());
    frame[4] = VERSION;
    frame[5] = 0;
    frame[20..22].copy_from_slice(&u16::try_from(struct_bytes).expect("it was one").to_le_bytes());
    frame[22..24].fill(0);
    let kind = Kind::from_number(u16::from_le_bytes([frame[6], frame[7]]));
    let is_control = matches!(
        kind,
        Some(
            Kind::CreateTopic
                | Kind::ListTopics
                | Kind::Routes
                | Kind::OpenProducer
                | Kind::DeleteTopic
                | Kind::TopicDeleted
                | Kind::SplitRange
                | Kind::MergeRanges
                | Kind::ListRanges
                | Kind::Lineage
                | Kind::Topic
                | Kind::Topics
                | Kind::RoutesAre
                | Kind::Producer
        )
    );
    if is_control && struct_bytes == 8 {
        // Bytes and checksum of the message behind.
        let message = length - u32::try_from(least).expect("a small input");
        frame[HEADER_BYTES..HEADER_BYTES + 4].copy_from_slice(&message.to_le_bytes());
        seal(frame, least..length as usize, HEADER_BYTES + 4);
    }
    if kind == Some(Kind::Fetched) && struct_bytes == 32 {
        // Gaps and routes of 32 bytes each, and the checksum of both.
        let lists = [16, 20].map(|at| u32_at(frame, HEADER_BYTES + at) as usize * 32);
        let end = least.saturating_add(lists[0]).saturating_add(lists[1]).min(frame.len());
        seal(frame, least..end, HEADER_BYTES + 28);
    }
    seal(frame, HEADER_BYTES..least, 24);
    seal(frame, 0..28, 28);
}

/// Draws from the input, and zeros behind its end.
pub struct Dice<'a>(pub &'a [u8]);

impl Dice<'_> {
    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    /// The next number of 16 bits.
    pub fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }
}
