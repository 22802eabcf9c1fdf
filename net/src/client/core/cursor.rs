//! A client's position in a topic: a partition of the keyspace. Opaque to applications; text in base64url for people.
//!
//! ```text
//!  0 version u8   1 reserved u8   2 entries u16    4 topic u64    12 cluster u128
//! 28 entries, 26 bytes each: span start u64, depth u8, reserved u8, range u64, next offset u64
//!    checksum u32: CRC-32C of all before, seeded
//! ```
//! **Invariant**: the entries are ascending and hold each key hash exactly once; whatever does not is *forged*, whatever its checksum.

use std::fmt;

use sealog_engine::format::checksum;
use sealog_engine::types::{ClusterId, KeyHash, KeySpan, Offset, RangeId, TopicId};
use thiserror::Error;
use zerocopy::little_endian::{U16, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Version of the cursor's bytes.
const VERSION: u8 = 1;
/// Seed of the checksum, so that no other checksummed bytes pass for a cursor.
const SEED: u32 = 0x5ea1_c0e5;
/// Entries of the longest cursor.
pub const ENTRIES_MAX: usize = 65_535;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    version: u8,
    reserved: u8,
    entries: U16,
    topic: U64,
    cluster: U128,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Entry {
    start: U64,
    depth: u8,
    reserved: u8,
    range: U64,
    next: U64,
}

const _: () = assert!(size_of::<Head>() == 28 && size_of::<Entry>() == 26);

/// One part of a cursor: the records of `span` are read from `range`, at `next`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CursorEntry {
    pub span: KeySpan,
    pub range: RangeId,
    /// Inclusive.
    pub next: Offset,
}

/// A position in a topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cursor {
    cluster: ClusterId,
    topic: TopicId,
    entries: Vec<CursorEntry>,
}

/// Why bytes are not a cursor that can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum CursorError {
    /// It was not made by Sealog, or was changed.
    #[error("this is not a cursor")]
    Forged,
    /// It is of a later version.
    #[error("the cursor is of version {found}; the newest known here is {VERSION}")]
    Future { found: u8 },
    /// It belongs elsewhere.
    #[error("the cursor belongs to topic {topic} of cluster {:032x}", cluster.0)]
    Foreign { cluster: ClusterId, topic: TopicId },
}

/// Entries that leave out a part of the keyspace, or hold a part twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the entries are no partition of the keyspace")]
pub struct NoPartition;

/// Whether spans, in this order, hold each hash exactly once.
#[must_use]
pub fn is_partition(spans: impl IntoIterator<Item = KeySpan>) -> bool {
    is_partition_of(KeySpan::ALL, spans)
}

/// Whether spans, in this order, hold each hash of `whole` exactly once, and no other.
#[must_use]
pub fn is_partition_of(whole: KeySpan, spans: impl IntoIterator<Item = KeySpan>) -> bool {
    // The first hash not yet held; `None` behind the last one of all.
    let mut next = Some(whole.first().0);
    for span in spans {
        if next != Some(span.first().0) || !whole.covers(span) {
            return false;
        }
        next = span.last().0.checked_add(1);
    }
    next == whole.last().0.checked_add(1)
}

impl Cursor {
    /// A cursor of these entries, ascending by span.
    ///
    /// # Errors
    /// They are no partition of the keyspace.
    pub fn new(cluster: ClusterId, topic: TopicId, entries: Vec<CursorEntry>) -> Result<Self, NoPartition> {
        if entries.len() > ENTRIES_MAX || !is_partition(entries.iter().map(|e| e.span)) {
            return Err(NoPartition);
        }
        Ok(Self { cluster, topic, entries })
    }

    /// Its entries, ascending by span.
    #[must_use]
    pub fn entries(&self) -> &[CursorEntry] {
        &self.entries
    }

    /// The topic that it is a position in.
    #[must_use]
    pub fn topic(&self) -> TopicId {
        self.topic
    }

    /// Checks that it is a position in `topic` of `cluster`.
    ///
    /// # Errors
    /// It is not.
    pub fn belongs_to(&self, cluster: ClusterId, topic: TopicId) -> Result<(), CursorError> {
        if (self.cluster, self.topic) == (cluster, topic) {
            Ok(())
        } else {
            Err(CursorError::Foreign { cluster: self.cluster, topic: self.topic })
        }
    }

    /// Its bytes.
    ///
    /// # Panics
    /// Never: a cursor has at most [`ENTRIES_MAX`] entries.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let entries = u16::try_from(self.entries.len()).expect("checked when it was made");
        let head = Head {
            version: VERSION,
            reserved: 0,
            entries: entries.into(),
            topic: self.topic.0.into(),
            cluster: self.cluster.0.into(),
        };
        let mut bytes = head.as_bytes().to_vec();
        for entry in &self.entries {
            let entry = Entry {
                start: entry.span.first().0.into(),
                depth: entry.span.depth(),
                reserved: 0,
                range: entry.range.0.into(),
                next: entry.next.0.into(),
            };
            bytes.extend_from_slice(entry.as_bytes());
        }
        bytes.extend_from_slice(&checksum(SEED, &bytes).to_le_bytes());
        bytes
    }

    /// The cursor of these bytes.
    ///
    /// # Errors
    /// They are none, or one of a later version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CursorError> {
        let (body, sum) = bytes.split_last_chunk::<4>().ok_or(CursorError::Forged)?;
        if checksum(SEED, body) != u32::from_le_bytes(*sum) {
            return Err(CursorError::Forged);
        }
        let found = *body.first().ok_or(CursorError::Forged)?;
        if found > VERSION {
            return Err(CursorError::Future { found });
        }
        let (head, entries) = Head::ref_from_prefix(body).map_err(|_| CursorError::Forged)?;
        let entries = <[Entry]>::ref_from_bytes(entries).map_err(|_| CursorError::Forged)?;
        let reserved = head.reserved == 0 && entries.iter().all(|e| e.reserved == 0);
        if found != VERSION || !reserved || entries.len() != usize::from(head.entries.get()) {
            return Err(CursorError::Forged);
        }
        let entries: Option<Vec<CursorEntry>> = entries
            .iter()
            .map(|e| {
                let span = KeySpan::new(KeyHash(e.start.get()), e.depth)?;
                Some(CursorEntry { span, range: RangeId(e.range.get()), next: Offset(e.next.get()) })
            })
            .collect();
        Self::new(ClusterId(head.cluster.get()), TopicId(head.topic.get()), entries.ok_or(CursorError::Forged)?)
            .map_err(|NoPartition| CursorError::Forged)
    }

    /// The cursor of a text that [`Display`](fmt::Display) gave.
    ///
    /// # Errors
    /// It is none, or one of a later version.
    pub fn parse(text: &str) -> Result<Self, CursorError> {
        Self::from_bytes(&from_base64url(text.trim()).ok_or(CursorError::Forged)?)
    }
}

impl fmt::Display for Cursor {
    /// Base64url without padding.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_base64url(&self.to_bytes()))
    }
}

/// The alphabet of RFC 4648, section 5.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn to_base64url(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0u32, |g, b| g << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        for i in 0..=chunk.len() {
            text.push(char::from(ALPHABET[(group >> (18 - 6 * i)) as usize & 63]));
        }
    }
    text
}

/// `None` for what [`to_base64url`] would not have given, so that one cursor has one text.
fn from_base64url(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 3);
    for chunk in text.as_bytes().chunks(4) {
        let mut group = 0u32;
        for byte in chunk {
            let digit = ALPHABET.iter().position(|a| a == byte)?;
            group = group << 6 | u32::try_from(digit).ok()?;
        }
        group <<= 6 * (4 - chunk.len());
        let whole = match chunk.len() {
            4 => 3,
            3 => 2,
            2 => 1,
            _ => return None,
        };
        let group = group.to_be_bytes();
        bytes.extend_from_slice(&group[1..=whole]);
        if group[whole + 1..].iter().any(|b| *b != 0) {
            return None;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cursor(parts: u32) -> Cursor {
        let entries = KeySpan::divide(parts).unwrap().into_iter().zip(1..);
        let entries = entries.map(|(span, i)| CursorEntry { span, range: RangeId(i), next: Offset(i * 100) }).collect();
        Cursor::new(ClusterId(9), TopicId(3), entries).unwrap()
    }

    /// The bytes of a cursor with a right checksum over whatever `change` made of them.
    fn resealed(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = cursor(2).to_bytes();
        bytes.truncate(bytes.len() - 4);
        change(&mut bytes);
        let sum = checksum(SEED, &bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    #[test]
    fn a_cursor_reads_back_from_bytes_and_from_text() {
        for parts in [1, 2, 64] {
            assert_eq!(Cursor::from_bytes(&cursor(parts).to_bytes()), Ok(cursor(parts)));
            assert_eq!(Cursor::parse(&format!(" {}\n", cursor(parts))), Ok(cursor(parts)));
        }
        let text = "AQABAAMAAAAAAAAACQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAABAAAAAAAAAGQAAAAAAAAAsFYxCA";
        assert_eq!(cursor(1).to_string(), text);
    }

    #[test]
    fn every_flipped_bit_is_forged() {
        let good = cursor(2).to_bytes();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Cursor::from_bytes(&bad), Err(CursorError::Forged), "bit {bit}");
        }
    }

    #[test]
    fn what_is_no_partition_is_forged_even_with_a_right_checksum() {
        assert!(Cursor::from_bytes(&resealed(|_| ())).is_ok());
        let forged: [fn(&mut Vec<u8>); 6] = [
            |b| b[28 + 8] = 0,
            |b| b[28 + 8] = 65,
            |b| b[28 + 26 + 8] = 2,
            |b| b[2] = 1,
            |b| b.truncate(28 + 26),
            |b| b[1] = 1,
        ];
        for (i, change) in forged.into_iter().enumerate() {
            assert_eq!(Cursor::from_bytes(&resealed(change)), Err(CursorError::Forged), "change {i}");
        }
    }

    #[test]
    fn a_later_version_is_told_from_a_forged_one_and_a_foreign_topic_from_both() {
        assert_eq!(Cursor::from_bytes(&resealed(|b| b[0] = 2)), Err(CursorError::Future { found: 2 }));
        assert_eq!(Cursor::from_bytes(&resealed(|b| b[0] = 0)), Err(CursorError::Forged));
        let foreign = Err(CursorError::Foreign { cluster: ClusterId(9), topic: TopicId(3) });
        assert_eq!(cursor(1).belongs_to(ClusterId(9), TopicId(3)), Ok(()));
        assert_eq!(cursor(1).belongs_to(ClusterId(9), TopicId(4)), foreign);
        assert_eq!(cursor(1).belongs_to(ClusterId(8), TopicId(3)), foreign);
    }

    #[test]
    fn a_text_with_spare_bits_or_another_alphabet_is_forged() {
        let text = cursor(1).to_string();
        for bad in
            [format!("{text}A"), format!("{text}=="), text.replace('A', "+"), text[1..].to_owned(), String::new()]
        {
            assert_eq!(Cursor::parse(&bad), Err(CursorError::Forged), "{bad}");
        }
        assert_eq!(from_base64url("AB"), None);
    }

    proptest! {
        #[test]
        fn base64url_reads_back(bytes in prop::collection::vec(any::<u8>(), 0..50)) {
            prop_assert_eq!(from_base64url(&to_base64url(&bytes)), Some(bytes));
        }

        #[test]
        fn arbitrary_bytes_and_texts_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..120), text: String) {
            let _ = Cursor::from_bytes(&bytes);
            let _ = Cursor::parse(&text);
        }
    }
}
