//! What the controller tells of ranges and segments, for tests.

use crate::replica::message::{RangeView, SealedSegment, SegmentOpen};
use crate::types::{Epoch, KeySpan, NodeId, Offset, ProcessLife, RangeId, SegmentId, TopicId};

/// The opening of a segment in epoch 1; without a base, of a successor that is prepared.
pub(super) fn open(segment: u64, base: Option<Offset>, seed: u64) -> SegmentOpen {
    SegmentOpen {
        segment: SegmentId(segment),
        base,
        epoch: Epoch(1),
        seed,
        predecessor: None,
        primary: NodeId(1),
        life: ProcessLife(1),
        replicas: 1,
        quorum: 1,
        batch_bytes_max: 64 << 10,
        retention_ms: 0,
    }
}

/// The committed state of a range over all keys in epoch 1.
pub(super) fn view(
    topic: TopicId,
    range: RangeId,
    end: Offset,
    sealed: Vec<SealedSegment>,
    open: Vec<SegmentOpen>,
) -> RangeView {
    let (span, epoch, trimmed) = (KeySpan::ALL, Epoch(1), Offset(0));
    RangeView { topic, range, span, epoch, trimmed, end, sealed, open, fences: Vec::new(), successors: None }
}
