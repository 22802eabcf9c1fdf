//! Memory for segment tails, kept from one chunk to the next, so that a shard in steady state allocates nothing.
//!
//! A shard owns one pool and lends it to its appenders. Buffers come back with the bytes of their last use in them: whoever
//! takes one knows how far it has filled it, and zeroes what it hands out beyond that.

use std::sync::Arc;

use crate::types::AlignedBuffer;

/// Bytes of the chunks that are kept, smallest first. A larger one is made for an entry that needs it, and given up after.
pub const CHUNK_BYTES: [usize; 3] = [16 << 10, 64 << 10, 256 << 10];

/// Free chunks of one shard.
#[derive(Debug)]
pub struct ChunkPool {
    free: [Vec<Arc<AlignedBuffer>>; CHUNK_BYTES.len()],
    bytes: u64,
    bytes_max: u64,
}

impl ChunkPool {
    /// A pool that keeps at most `bytes_max` bytes of free memory.
    #[must_use]
    pub fn new(bytes_max: u64) -> Self {
        Self { free: Default::default(), bytes: 0, bytes_max }
    }

    /// Bytes of free memory kept.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A buffer of at least `bytes`, held by nobody else. Its bytes are those of an earlier use.
    #[must_use]
    pub fn take(&mut self, bytes: usize) -> Arc<AlignedBuffer> {
        let Some(class) = CHUNK_BYTES.iter().position(|size| *size >= bytes) else {
            return Arc::new(AlignedBuffer::zeroed(bytes));
        };
        match self.free[class].pop() {
            Some(buffer) => {
                self.bytes -= buffer.len() as u64;
                buffer
            }
            None => Arc::new(AlignedBuffer::zeroed(CHUNK_BYTES[class])),
        }
    }

    /// Gives a buffer back. It is kept if nobody else holds it, it is of a size that is kept, and there is room.
    pub fn give(&mut self, mut buffer: Arc<AlignedBuffer>) {
        let bytes = buffer.len() as u64;
        let Some(class) = CHUNK_BYTES.iter().position(|size| *size == buffer.len()) else { return };
        if self.bytes + bytes <= self.bytes_max && Arc::get_mut(&mut buffer).is_some() {
            self.bytes += bytes;
            self.free[class].push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_given_back_is_taken_again() {
        let mut pool = ChunkPool::new(1 << 20);
        let first = pool.take(20_000);
        assert_eq!(first.len(), CHUNK_BYTES[1]);
        let at = first.as_ptr();
        pool.give(first);
        assert_eq!(pool.bytes(), CHUNK_BYTES[1] as u64);
        assert_eq!(pool.take(CHUNK_BYTES[1]).as_ptr(), at);
        assert_eq!(pool.bytes(), 0);
    }

    #[test]
    fn a_buffer_that_a_write_still_holds_is_not_kept() {
        let mut pool = ChunkPool::new(1 << 20);
        let buffer = pool.take(1);
        let held = Arc::clone(&buffer);
        pool.give(buffer);
        assert_eq!(pool.bytes(), 0);
        assert_eq!(held.len(), CHUNK_BYTES[0]);
    }

    #[test]
    fn a_pool_keeps_no_more_than_its_bound() {
        let mut pool = ChunkPool::new(CHUNK_BYTES[0] as u64);
        let (first, second) = (pool.take(1), pool.take(1));
        pool.give(first);
        pool.give(second);
        pool.give(Arc::new(AlignedBuffer::zeroed(1 << 20)));
        assert_eq!(pool.bytes(), CHUNK_BYTES[0] as u64);
    }
}
