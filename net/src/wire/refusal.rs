//! A refusal on the wire: code, outcome, retry, details as data, and a text for people.
//!
//! ```text
//! | code | outcome | retry | delay ms | three details | flags | routes | text bytes | routes… | text… |
//! ```
//! All of it is struct part, so one checksum covers it. What each detail means depends on the code; the table stands in
//! `docs/wire.md`. A client acts on outcome and retry only, so a code that it does not know costs it nothing but the words:
//! [`Refused::refusal`] is then `None`.

use sealog_engine::api::error::{BadBatch, Outcome, Refusal, Retry};
use sealog_engine::api::response::Route;
use sealog_engine::types::{Epoch, Offset, ProducerEpoch, Run, Sequence};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::frame::{self, BodyError, Frame, Head, RouteStruct, read_routes};
use super::kind::Kind;

/// Routes that a refusal carries at most. A sealed range has one or two successors.
const ROUTES_MAX: usize = 64;
/// `flags`: the details name the producer's last stored batch.
const FLAG_LAST: u16 = 1;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RefusedStruct {
    code: U16,
    outcome: u8,
    retry: u8,
    delay_ms: U32,
    details: [U64; 3],
    flags: U16,
    routes: U16,
    text_length: U16,
    reserved: U16,
}

const _: () = assert!(size_of::<RefusedStruct>() == 40);

/// A refusal as a client receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Number of the refusal.
    pub code: u16,
    pub outcome: Outcome,
    pub retry: Retry,
    /// The refusal itself, if its code is known here.
    pub refusal: Option<Refusal>,
    /// For people.
    pub text: String,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self {
            code: refusal.code(),
            outcome: refusal.outcome(),
            retry: refusal.retry(),
            text: refusal.to_string(),
            refusal: Some(refusal),
        }
    }
}

const fn outcome_number(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Stored => 1,
        Outcome::NotStored => 2,
        Outcome::Unknown => 3,
    }
}

fn outcome_of(number: u8) -> Result<Outcome, BodyError> {
    [Outcome::Stored, Outcome::NotStored, Outcome::Unknown]
        .into_iter()
        .find(|o| outcome_number(*o) == number)
        .ok_or(BodyError::Value { field: "refused.outcome" })
}

const fn retry_numbers(retry: Retry) -> (u8, u32) {
    match retry {
        Retry::Never => (1, 0),
        Retry::Same => (2, 0),
        Retry::AfterRefresh => (3, 0),
        Retry::AfterDelay { ms } => (4, ms),
    }
}

fn retry_of(number: u8, delay_ms: u32) -> Result<Retry, BodyError> {
    [Retry::Never, Retry::Same, Retry::AfterRefresh, Retry::AfterDelay { ms: delay_ms }]
        .into_iter()
        .find(|r| retry_numbers(*r).0 == number)
        .ok_or(BodyError::Value { field: "refused.retry" })
}

/// What a code says beyond itself.
#[derive(Default)]
struct Details<'a> {
    numbers: [u64; 3],
    routes: &'a [Route],
    flags: u16,
}

fn details(refusal: &Refusal) -> Details<'_> {
    let of = |numbers: [u64; 3]| Details { numbers, ..Details::default() };
    match refusal {
        Refusal::BadRangeCount { most } | Refusal::BatchTooLarge { most } | Refusal::TooManyRanges { most } => {
            of([u64::from(*most), 0, 0])
        }
        Refusal::NotPrimary { route } => Details { routes: route.as_slice(), ..Details::default() },
        Refusal::Sealed { successors, last } => {
            let flags = if last.is_some() { FLAG_LAST } else { 0 };
            let (epoch, run, sequence) = last.unwrap_or_default();
            Details { numbers: [u64::from(epoch.0), u64::from(run.0), sequence.0], routes: successors, flags }
        }
        Refusal::StaleEpoch { current } => of([current.0, 0, 0]),
        Refusal::ProducerFenced { epoch, run } => of([u64::from(epoch.0), u64::from(run.0), 0]),
        Refusal::OutOfOrder { expected } => of([expected.0, 0, 0]),
        Refusal::BadBatch(bad) => of(match *bad {
            BadBatch::Short => [1, 0, 0],
            BadBatch::Checksum { found, computed } => [2, u64::from(found), u64::from(computed)],
            BadBatch::Version { found, newest } => [3, u64::from(found), u64::from(newest)],
            BadBatch::Codec { found } => [4, u64::from(found), 0],
            BadBatch::Empty => [5, 0, 0],
            BadBatch::Record { index } => [6, u64::from(index), 0],
            BadBatch::Key { index } => [7, u64::from(index), 0],
            BadBatch::Header => [8, 0, 0],
        }),
        Refusal::Expired { resume } => of([resume.0, 0, 0]),
        Refusal::BeyondEnd { end } => of([end.0, 0, 0]),
        Refusal::Unreadable { from } => of([from.0, 0, 0]),
        // The delay is the retry's, which every refusal carries.
        Refusal::Opening { .. }
        | Refusal::TooManyProducers { .. }
        | Refusal::Overloaded { .. }
        | Refusal::DiskFull { .. }
        | Refusal::TooFewReplicas { .. }
        | Refusal::UnknownTopic
        | Refusal::TopicExists
        | Refusal::BadTopicName
        | Refusal::UnknownRange
        | Refusal::UnknownProducer
        | Refusal::WriteFailed
        | Refusal::Doubtful
        | Refusal::DeadlinePassed
        | Refusal::Stopping
        | Refusal::BadRequest
        | Refusal::OneHash
        | Refusal::NotBuddies
        | Refusal::Reshaping { .. }
        | Refusal::MergeGivenUp { .. }
        | Refusal::Judging { .. } => Details::default(),
    }
}

fn bad_batch(numbers: [u64; 3]) -> Result<BadBatch, BodyError> {
    let [number, first, second] = numbers;
    Ok(match number {
        1 => BadBatch::Short,
        2 => BadBatch::Checksum { found: narrow(first)?, computed: narrow(second)? },
        3 => BadBatch::Version { found: narrow(first)?, newest: narrow(second)? },
        4 => BadBatch::Codec { found: narrow(first)? },
        5 => BadBatch::Empty,
        6 => BadBatch::Record { index: narrow(first)? },
        7 => BadBatch::Key { index: narrow(first)? },
        8 => BadBatch::Header,
        _ => return Err(BodyError::Value { field: "refused.bad_batch" }),
    })
}

/// A detail as the narrower number that its code says it is.
fn narrow<T: TryFrom<u64>>(number: u64) -> Result<T, BodyError> {
    T::try_from(number).map_err(|_| BodyError::Value { field: "refused.details" })
}

/// The refusal of a code, or `None` if the code is not known here.
fn refusal_of(wire: &RefusedStruct, routes: Vec<Route>) -> Result<Option<Refusal>, BodyError> {
    let delay_ms = wire.delay_ms.get();
    let numbers = wire.details.map(U64::get);
    let first = numbers[0];
    Ok(Some(match wire.code.get() {
        1 => Refusal::UnknownTopic,
        2 => Refusal::TopicExists,
        3 => Refusal::BadTopicName,
        4 => Refusal::BadRangeCount { most: narrow(first)? },
        5 => Refusal::UnknownRange,
        6 => Refusal::NotPrimary { route: routes.first().copied() },
        7 => {
            let last = (ProducerEpoch(narrow(first)?), Run(narrow(numbers[1])?), Sequence(numbers[2]));
            Refusal::Sealed { successors: routes, last: (wire.flags.get() & FLAG_LAST != 0).then_some(last) }
        }
        8 => Refusal::StaleEpoch { current: Epoch(first) },
        9 => Refusal::Opening { delay_ms },
        10 => Refusal::ProducerFenced { epoch: ProducerEpoch(narrow(first)?), run: Run(narrow(numbers[1])?) },
        11 => Refusal::OutOfOrder { expected: Sequence(first) },
        12 => Refusal::UnknownProducer,
        13 => Refusal::TooManyProducers { delay_ms },
        14 => Refusal::Overloaded { delay_ms },
        15 => Refusal::DiskFull { delay_ms },
        16 => Refusal::WriteFailed,
        17 => Refusal::TooFewReplicas { delay_ms },
        18 => Refusal::BatchTooLarge { most: narrow(first)? },
        19 => Refusal::BadBatch(bad_batch(numbers)?),
        20 => Refusal::Doubtful,
        21 => Refusal::Expired { resume: Offset(first) },
        22 => Refusal::BeyondEnd { end: Offset(first) },
        23 => Refusal::Unreadable { from: Offset(first) },
        24 => Refusal::DeadlinePassed,
        25 => Refusal::Stopping,
        26 => Refusal::BadRequest,
        27 => Refusal::OneHash,
        28 => Refusal::NotBuddies,
        29 => Refusal::TooManyRanges { most: narrow(first)? },
        30 => Refusal::Reshaping { delay_ms },
        31 => Refusal::MergeGivenUp { delay_ms },
        32 => Refusal::Judging { delay_ms },
        _ => return Ok(None),
    }))
}

/// Appends the frame of a refusal.
///
/// # Panics
/// If it names more than 64 routes: a range has at most two successors.
pub fn append(out: &mut Vec<u8>, correlation: u64, refusal: &Refusal) {
    let Details { numbers, routes, flags } = details(refusal);
    assert!(routes.len() <= ROUTES_MAX, "a refusal names a few routes");
    let text = refusal.to_string();
    let short = |count: usize| U16::new(u16::try_from(count).expect("routes and text are short"));
    let (retry, delay_ms) = retry_numbers(refusal.retry());
    let head = RefusedStruct {
        code: refusal.code().into(),
        outcome: outcome_number(refusal.outcome()),
        retry,
        delay_ms: delay_ms.into(),
        details: numbers.map(U64::new),
        flags: flags.into(),
        routes: short(routes.len()),
        text_length: short(text.len()),
        reserved: 0.into(),
    };
    let mut structure = head.as_bytes().to_vec();
    for route in routes {
        structure.extend_from_slice(RouteStruct::from(route).as_bytes());
    }
    structure.extend_from_slice(text.as_bytes());
    frame::append(out, Head::answer(Kind::Refused, correlation), &structure, &[]);
}

impl Refused {
    /// Reads the body of a refusal.
    ///
    /// # Errors
    /// It is not one.
    pub fn read(frame: &Frame<'_>) -> Result<Self, BodyError> {
        frame.without_bytes()?;
        let found = frame.struct_part.len();
        let (wire, rest) = RefusedStruct::ref_from_prefix(frame.struct_part)
            .map_err(|_| BodyError::StructLength { found, expected: size_of::<RefusedStruct>() })?;
        let routes = usize::from(wire.routes.get()) * size_of::<RouteStruct>();
        let text = usize::from(wire.text_length.get());
        if rest.len() != routes + text {
            return Err(BodyError::StructLength { found, expected: size_of::<RefusedStruct>() + routes + text });
        }
        if usize::from(wire.routes.get()) > ROUTES_MAX {
            return Err(BodyError::Value { field: "refused.routes" });
        }
        let (routes, text) = rest.split_at(routes);
        Ok(Self {
            code: wire.code.get(),
            outcome: outcome_of(wire.outcome)?,
            retry: retry_of(wire.retry, wire.delay_ms.get())?,
            refusal: refusal_of(wire, read_routes(routes)?)?,
            text: std::str::from_utf8(text).map_err(|_| BodyError::Value { field: "refused.text" })?.to_owned(),
        })
    }
}
