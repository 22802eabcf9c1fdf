//! Memory that begins on a block boundary, as O_DIRECT asks for. Plain safe memory: the core fills it, the performers lend it
//! to the kernel.

use std::fmt;
use std::ops::{Deref, DerefMut};

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::limits::BLOCK;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Block([u8; BLOCK]);

const _: () = assert!(size_of::<Block>() == BLOCK && align_of::<Block>() == BLOCK);

/// Zero-filled bytes, a whole number of blocks, aligned to a block.
pub struct AlignedBuffer {
    blocks: Box<[Block]>,
}

impl AlignedBuffer {
    /// At least `bytes` zero bytes, rounded up to whole blocks.
    ///
    /// # Panics
    /// If the memory cannot be had.
    #[must_use]
    pub fn zeroed(bytes: usize) -> Self {
        let blocks = <[Block]>::new_box_zeroed_with_elems(bytes.div_ceil(BLOCK)).expect("memory for a buffer");
        Self { blocks }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.blocks.as_bytes()
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.blocks.as_mut_bytes()
    }
}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuffer({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_zeroed_aligned_and_of_whole_blocks() {
        let buffer = AlignedBuffer::zeroed(BLOCK + 1);
        assert_eq!(buffer.len(), 2 * BLOCK);
        assert_eq!(buffer.as_ptr().align_offset(BLOCK), 0);
        assert!(buffer.iter().all(|b| *b == 0));
        assert!(AlignedBuffer::zeroed(0).is_empty());
    }
}
