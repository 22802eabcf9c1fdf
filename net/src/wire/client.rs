//! Bodies of the data path: small structs, followed by batches and entries that nobody here touches.
//!
//! ```text
//! produce  | range | epoch |                                            batch, as it will lie on disk
//! fetch    | range | offset | bytes max | wait ms |
//! fetched  | next | end | gaps | routes | flags | crc of both lists |   gaps, routes, entries as they lie on disk
//! ```
//! A request is read without a copy: a produce borrows its batch from the receive buffer.

use sealog_engine::api::error::Refusal;
use sealog_engine::api::request::ShardRequest;
use sealog_engine::api::response::{
    Fetched, Gap, GapCause, ProducerSettled, RangeDescription, RangeRolled, Route, Stored,
};
use sealog_engine::format::checksum;
use sealog_engine::types::{Epoch, Offset, ProducerEpoch, ProducerId, RangeId, Run, SegmentId, Sequence};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::frame::{self, BodyError, Frame, Head, RouteStruct, count_u32, read_routes};
use super::kind::Kind;

macro_rules! body {
    ($name:ident, $bytes:literal { $($field:ident: $type:ty),+ $(,)? }) => {
        #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        struct $name { $($field: $type),+ }
        const _: () = assert!(size_of::<$name>() == $bytes);
    };
}

body!(ProduceStruct, 16 { range: U64, epoch: U64 });
body!(StoredStruct, 8 { records: U32, flags: U32 });
body!(FetchStruct, 24 { range: U64, offset: U64, bytes_max: U32, wait_ms: U32 });
body!(FetchedStruct, 32 { next: U64, end: U64, gaps: U32, routes: U32, flags: U32, lists_checksum: U32 });
body!(GapStruct, 32 { from: U64, to: U64, records_at_most: U64, cause: u8, reserved: [u8; 7] });
body!(BoundsStruct, 8 { range: U64 });
body!(BoundsAreStruct, 16 { start: U64, end: U64 });
body!(SinceStruct, 16 { range: U64, timestamp_ms: U64 });
body!(SettleStruct, 16 { range: U64, producer: U64 });
body!(SettledStruct, 32 { producer: U64, sequence: U64, epoch: U32, run: U32, flags: U32, reserved: U32 });
body!(RollStruct, 8 { range: U64 });
body!(RolledStruct, 32 { end: U64, sealed: U64, open: U64, flags: U32, reserved: U32 });
body!(DescribeStruct, 8 { range: U64 });
body!(DescribedStruct, 24 { start: U64, end: U64, segments: U32, reserved: U32 });

/// `stored.flags`: it was a repeat.
const STORED_REPEAT: u32 = 1;
/// `fetched.flags`: the range is sealed and `next` is at its end.
const FETCHED_SEALED: u32 = 1;
/// `settled.flags`: something is stored.
const SETTLED_LAST: u32 = 1;
/// `settled.flags`: a batch may lie in a hole.
const SETTLED_DOUBTFUL: u32 = 2;
/// `rolled.flags`: a segment was sealed.
const ROLLED_SEALED: u32 = 1;

/// Part of a range, with its entries borrowed from the receive buffer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FetchedView<'a> {
    /// Entries of kind batch as they lie on disk, one after the other.
    pub entries: &'a [u8],
    /// Where the next fetch goes on, inclusive.
    pub next: Offset,
    /// The committed end, exclusive.
    pub end: Offset,
    /// Holes between the offset asked for and `next`, ascending.
    pub gaps: Vec<Gap>,
    /// Set once `next` has reached the end of a sealed range: what to read after it.
    pub successors: Option<Vec<Route>>,
}

impl FetchedView<'_> {
    /// A copy that owns its entries.
    #[must_use]
    pub fn to_fetched(&self) -> Fetched {
        Fetched {
            entries: self.entries.to_vec(),
            next: self.next,
            end: self.end,
            gaps: self.gaps.clone(),
            successors: self.successors.clone(),
        }
    }
}

/// Refuses flags that are not defined.
fn known_flags(flags: u32, known: u32, field: &'static str) -> Result<u32, BodyError> {
    if flags & !known == 0 { Ok(flags) } else { Err(BodyError::Value { field }) }
}

/// Appends the frame of a request to a shard.
///
/// # Panics
/// If a batch does not fit a frame.
#[inline]
pub fn append_request(out: &mut Vec<u8>, correlation: u64, deadline_ms: u32, request: &ShardRequest<'_>) {
    let head = |kind| Head::request(kind, correlation, deadline_ms);
    match *request {
        ShardRequest::Produce { range, epoch, batch } => {
            let body = ProduceStruct { range: range.0.into(), epoch: epoch.0.into() };
            frame::append(out, head(Kind::Produce), body.as_bytes(), &[batch]);
        }
        ShardRequest::Fetch { range, offset, bytes_max, wait_ms } => {
            let body = FetchStruct {
                range: range.0.into(),
                offset: offset.0.into(),
                bytes_max: bytes_max.into(),
                wait_ms: wait_ms.into(),
            };
            frame::append(out, head(Kind::Fetch), body.as_bytes(), &[]);
        }
        ShardRequest::Bounds { range } => {
            frame::append(out, head(Kind::Bounds), BoundsStruct { range: range.0.into() }.as_bytes(), &[]);
        }
        ShardRequest::Since { range, timestamp_ms } => {
            let body = SinceStruct { range: range.0.into(), timestamp_ms: timestamp_ms.into() };
            frame::append(out, head(Kind::Since), body.as_bytes(), &[]);
        }
        ShardRequest::Settle { range, producer } => {
            let body = SettleStruct { range: range.0.into(), producer: producer.0.into() };
            frame::append(out, head(Kind::Settle), body.as_bytes(), &[]);
        }
        ShardRequest::Roll { range } => {
            frame::append(out, head(Kind::Roll), RollStruct { range: range.0.into() }.as_bytes(), &[]);
        }
        ShardRequest::Describe { range } => {
            frame::append(out, head(Kind::Describe), DescribeStruct { range: range.0.into() }.as_bytes(), &[]);
        }
    }
}

/// Reads the body of a produce.
///
/// # Errors
/// It is not one.
#[inline]
pub fn read_produce<'a>(frame: &Frame<'a>) -> Result<ShardRequest<'a>, BodyError> {
    let wire: &ProduceStruct = frame.body()?;
    Ok(ShardRequest::Produce { range: RangeId(wire.range.get()), epoch: Epoch(wire.epoch.get()), batch: frame.bytes })
}

/// Reads the body of a fetch.
///
/// # Errors
/// It is not one.
pub fn read_fetch(frame: &Frame<'_>) -> Result<ShardRequest<'static>, BodyError> {
    frame.without_bytes()?;
    let wire: &FetchStruct = frame.body()?;
    Ok(ShardRequest::Fetch {
        range: RangeId(wire.range.get()),
        offset: Offset(wire.offset.get()),
        bytes_max: wire.bytes_max.get(),
        wait_ms: wire.wait_ms.get(),
    })
}

/// Reads the body of a question for bounds.
///
/// # Errors
/// It is not one.
pub fn read_bounds(frame: &Frame<'_>) -> Result<ShardRequest<'static>, BodyError> {
    frame.without_bytes()?;
    let wire: &BoundsStruct = frame.body()?;
    Ok(ShardRequest::Bounds { range: RangeId(wire.range.get()) })
}

/// Reads the body of a question for what is not earlier than a time.
///
/// # Errors
/// It is not one.
pub fn read_since(frame: &Frame<'_>) -> Result<ShardRequest<'static>, BodyError> {
    frame.without_bytes()?;
    let wire: &SinceStruct = frame.body()?;
    Ok(ShardRequest::Since { range: RangeId(wire.range.get()), timestamp_ms: wire.timestamp_ms.get() })
}

/// Reads the body of a settle.
///
/// # Errors
/// It is not one.
pub fn read_settle(frame: &Frame<'_>) -> Result<ShardRequest<'static>, BodyError> {
    frame.without_bytes()?;
    let wire: &SettleStruct = frame.body()?;
    Ok(ShardRequest::Settle { range: RangeId(wire.range.get()), producer: ProducerId(wire.producer.get()) })
}

/// Reads the body of a wish to roll.
///
/// # Errors
/// It is not one.
pub fn read_roll(frame: &Frame<'_>) -> Result<ShardRequest<'static>, BodyError> {
    frame.without_bytes()?;
    let wire: &RollStruct = frame.body()?;
    Ok(ShardRequest::Roll { range: RangeId(wire.range.get()) })
}

/// Reads the body of a question for what a range consists of.
///
/// # Errors
/// It is not one.
pub fn read_describe(frame: &Frame<'_>) -> Result<ShardRequest<'static>, BodyError> {
    frame.without_bytes()?;
    let wire: &DescribeStruct = frame.body()?;
    Ok(ShardRequest::Describe { range: RangeId(wire.range.get()) })
}

/// Appends the frame that says that a batch is stored.
#[inline]
pub fn append_stored(out: &mut Vec<u8>, correlation: u64, stored: Stored) {
    let flags = if stored.repeat { STORED_REPEAT } else { 0 };
    let body = StoredStruct { records: stored.records.into(), flags: flags.into() };
    frame::append(out, Head::answer(Kind::Stored, correlation), body.as_bytes(), &[]);
}

/// Reads it.
///
/// # Errors
/// It is not one.
#[inline]
pub fn read_stored(frame: &Frame<'_>) -> Result<Stored, BodyError> {
    frame.without_bytes()?;
    let wire: &StoredStruct = frame.body()?;
    let flags = known_flags(wire.flags.get(), STORED_REPEAT, "stored.flags")?;
    Ok(Stored { records: wire.records.get(), repeat: flags & STORED_REPEAT != 0 })
}

const fn cause_number(cause: GapCause) -> u8 {
    match cause {
        GapCause::Interrupted => 1,
        GapCause::Unreadable => 2,
        GapCause::Forced => 3,
    }
}

fn cause_of(number: u8) -> Result<GapCause, BodyError> {
    [GapCause::Interrupted, GapCause::Unreadable, GapCause::Forced]
        .into_iter()
        .find(|c| cause_number(*c) == number)
        .ok_or(BodyError::Value { field: "gap.cause" })
}

/// Appends the frame of what was fetched.
pub fn append_fetched(out: &mut Vec<u8>, correlation: u64, fetched: &Fetched) {
    let gaps: Vec<GapStruct> = fetched
        .gaps
        .iter()
        .map(|gap| GapStruct {
            from: gap.from.0.into(),
            to: gap.to.0.into(),
            records_at_most: gap.records_at_most.into(),
            cause: cause_number(gap.cause),
            reserved: [0; 7],
        })
        .collect();
    let routes: Vec<RouteStruct> = fetched.successors.iter().flatten().map(RouteStruct::from).collect();
    let (gap_bytes, route_bytes) = (gaps.as_bytes(), routes.as_bytes());
    let body = FetchedStruct {
        next: fetched.next.0.into(),
        end: fetched.end.0.into(),
        gaps: count_u32(gaps.len()).into(),
        routes: count_u32(routes.len()).into(),
        flags: if fetched.successors.is_some() { FETCHED_SEALED } else { 0 }.into(),
        lists_checksum: checksum(checksum(0, gap_bytes), route_bytes).into(),
    };
    let head = Head::answer(Kind::Fetched, correlation);
    frame::append(out, head, body.as_bytes(), &[gap_bytes, route_bytes, &fetched.entries]);
}

/// Reads what was fetched.
///
/// # Errors
/// It is not that.
pub fn read_fetched<'a>(frame: &Frame<'a>) -> Result<FetchedView<'a>, BodyError> {
    let wire: &FetchedStruct = frame.body()?;
    let flags = known_flags(wire.flags.get(), FETCHED_SEALED, "fetched.flags")?;
    let lists = (wire.gaps.get() as usize * size_of::<GapStruct>())
        .saturating_add(wire.routes.get() as usize * size_of::<RouteStruct>());
    let Some((lists, entries)) = frame.bytes.split_at_checked(lists) else {
        return Err(BodyError::BytesLength { found: frame.bytes.len(), expected: lists });
    };
    if checksum(0, lists) != wire.lists_checksum.get() {
        return Err(BodyError::Checksum { part: "lists of gaps and routes" });
    }
    let (gaps, routes) = <[GapStruct]>::ref_from_prefix_with_elems(lists, wire.gaps.get() as usize)
        .map_err(|_| BodyError::Value { field: "fetched.gaps" })?;
    let gaps = gaps
        .iter()
        .map(|gap| {
            Ok(Gap {
                from: Offset(gap.from.get()),
                to: Offset(gap.to.get()),
                records_at_most: gap.records_at_most.get(),
                cause: cause_of(gap.cause)?,
            })
        })
        .collect::<Result<_, BodyError>>()?;
    let routes = read_routes(routes)?;
    let sealed = flags & FETCHED_SEALED != 0;
    if !sealed && !routes.is_empty() {
        return Err(BodyError::Value { field: "fetched.routes" });
    }
    Ok(FetchedView {
        entries,
        next: Offset(wire.next.get()),
        end: Offset(wire.end.get()),
        gaps,
        successors: sealed.then_some(routes),
    })
}

/// Appends the frame of a range's bounds.
pub fn append_bounds(out: &mut Vec<u8>, correlation: u64, start: Offset, end: Offset) {
    let body = BoundsAreStruct { start: start.0.into(), end: end.0.into() };
    frame::append(out, Head::answer(Kind::BoundsAre, correlation), body.as_bytes(), &[]);
}

/// Reads a range's bounds: trimmed start, inclusive, and committed end, exclusive.
///
/// # Errors
/// It is not that.
pub fn read_bounds_answer(frame: &Frame<'_>) -> Result<(Offset, Offset), BodyError> {
    frame.without_bytes()?;
    let wire: &BoundsAreStruct = frame.body()?;
    Ok((Offset(wire.start.get()), Offset(wire.end.get())))
}

/// Appends the frame that says what is stored of a producer in a sealed range.
pub fn append_settled(out: &mut Vec<u8>, correlation: u64, settled: &ProducerSettled) {
    let (epoch, run, sequence) = settled.last.unwrap_or_default();
    let flags =
        if settled.last.is_some() { SETTLED_LAST } else { 0 } | if settled.doubtful { SETTLED_DOUBTFUL } else { 0 };
    let body = SettledStruct {
        producer: settled.producer.0.into(),
        sequence: sequence.0.into(),
        epoch: epoch.0.into(),
        run: run.0.into(),
        flags: flags.into(),
        reserved: 0.into(),
    };
    frame::append(out, Head::answer(Kind::Settled, correlation), body.as_bytes(), &[]);
}

/// Reads it.
///
/// # Errors
/// It is not that.
pub fn read_settled(frame: &Frame<'_>) -> Result<ProducerSettled, BodyError> {
    frame.without_bytes()?;
    let wire: &SettledStruct = frame.body()?;
    let flags = known_flags(wire.flags.get(), SETTLED_LAST | SETTLED_DOUBTFUL, "settled.flags")?;
    let last = (ProducerEpoch(wire.epoch.get()), Run(wire.run.get()), Sequence(wire.sequence.get()));
    Ok(ProducerSettled {
        producer: ProducerId(wire.producer.get()),
        last: (flags & SETTLED_LAST != 0).then_some(last),
        doubtful: flags & SETTLED_DOUBTFUL != 0,
    })
}

/// Appends the frame that says what became of a wish to roll.
pub fn append_rolled(out: &mut Vec<u8>, correlation: u64, rolled: &RangeRolled) {
    let (sealed, open) = rolled.segments.unwrap_or_default();
    let body = RolledStruct {
        end: rolled.end.0.into(),
        sealed: sealed.0.into(),
        open: open.0.into(),
        flags: if rolled.segments.is_some() { ROLLED_SEALED } else { 0 }.into(),
        reserved: 0.into(),
    };
    frame::append(out, Head::answer(Kind::Rolled, correlation), body.as_bytes(), &[]);
}

/// Reads it.
///
/// # Errors
/// It is not that.
pub fn read_rolled(frame: &Frame<'_>) -> Result<RangeRolled, BodyError> {
    frame.without_bytes()?;
    let wire: &RolledStruct = frame.body()?;
    let flags = known_flags(wire.flags.get(), ROLLED_SEALED, "rolled.flags")?;
    let segments = (SegmentId(wire.sealed.get()), SegmentId(wire.open.get()));
    Ok(RangeRolled { end: Offset(wire.end.get()), segments: (flags & ROLLED_SEALED != 0).then_some(segments) })
}

/// Appends the frame that says what a range consists of.
pub fn append_described(out: &mut Vec<u8>, correlation: u64, described: &RangeDescription) {
    let body = DescribedStruct {
        start: described.start.0.into(),
        end: described.end.0.into(),
        segments: described.segments.into(),
        reserved: 0.into(),
    };
    frame::append(out, Head::answer(Kind::Described, correlation), body.as_bytes(), &[]);
}

/// Reads it.
///
/// # Errors
/// It is not that.
pub fn read_described(frame: &Frame<'_>) -> Result<RangeDescription, BodyError> {
    frame.without_bytes()?;
    let wire: &DescribedStruct = frame.body()?;
    Ok(RangeDescription { start: Offset(wire.start.get()), end: Offset(wire.end.get()), segments: wire.segments.get() })
}

/// Whether an answer of such entries fits a frame; if not, the answer is this refusal.
///
/// # Errors
/// The refusal to give instead.
pub fn fetched_fits(fetched: &Fetched) -> Result<(), Refusal> {
    let lists = fetched.gaps.len() * size_of::<GapStruct>()
        + fetched.successors.as_ref().map_or(0, Vec::len) * size_of::<RouteStruct>();
    let most = frame::FRAME_BYTES_CEILING as usize - frame::HEADER_BYTES - size_of::<FetchedStruct>();
    if fetched.entries.len().saturating_add(lists) <= most { Ok(()) } else { Err(Refusal::BadRequest) }
}
