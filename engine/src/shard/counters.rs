//! What a shard counts. Plain numbers of one thread; a performer publishes them.

/// Counts since the shard's start. Nothing is decided from them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Produce requests taken into the log.
    pub batches_taken: u64,
    /// Records in them.
    pub records_taken: u64,
    /// Bytes of them, producer's headers included.
    pub bytes_taken: u64,
    /// Produce requests answered *stored*, repeats included.
    pub batches_stored: u64,
    /// Of those, repeats.
    pub batches_repeated: u64,
    /// Produce requests refused, for any reason.
    pub produce_refused: u64,
    /// Of those, for want of room.
    pub produce_overloaded: u64,
    /// Fetch requests, and bytes of entries given.
    pub fetches: u64,
    pub bytes_fetched: u64,
    /// Reads of segment files.
    pub reads: u64,
    /// Places in segment files that did not verify when they were read.
    pub damage_found: u64,
    /// Journal groups made durable, and their bytes; idle markers are counted apart.
    pub groups: u64,
    pub group_bytes: u64,
    pub markers: u64,
    /// Segments opened, rolled, and closed at a committed end.
    pub segments_opened: u64,
    pub rolls: u64,
    pub segments_closed: u64,
    /// When the last roll was, on the wall clock in ms.
    pub last_roll_wall_ms: u64,
    /// Checkpoints finished; when the last one began and ended, on the wall clock in ms.
    pub checkpoints: u64,
    pub last_checkpoint_begin_wall_ms: u64,
    pub last_checkpoint_end_wall_ms: u64,
    /// Bytes in memory that are not yet in a segment under the catalog.
    pub unwritten_bytes: u64,
    /// Ranges held.
    pub ranges: u64,
    /// Fetches that wait for records.
    pub waiting_fetches: u64,
    /// 1 if a write has failed and the shard takes no more.
    pub write_failed: u64,
}
