//! What a record of the load holds, so that it can be judged when it is read back, by another process and after a restart.
//!
//! ```text
//! key    "k" and the key's number in 8 hexadecimal digits                       9 bytes
//! value  | magic 8 | run 8 | key 4 | due 4 | sequence 8 | hash of all else 8 | filler … |
//!                                                          XXH3-64 of the 32 bytes before it and the filler
//! ```
//! *due* is when the record was meant to be sent, in µs on the clock of the load and modulo 2^32: whoever reads it in the same process can
//! tell how long it took to be delivered. *run* is drawn at random for each load, so that several loads in one topic are told apart; *sequence* counts the records of the
//! key from 0. The filler is a window of random bytes that moves with key and sequence: it does not compress, and no two values
//! are alike.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::arrivals::Random;

const MAGIC: [u8; 8] = *b"slgbench";
/// Bytes of a value before its filler: no value is smaller.
pub const VALUE_BYTES_MIN: usize = 40;
const HASH_AT: usize = 32;
/// Bytes of the pool that fillers are windows of, beyond the longest filler.
const POOL_BYTES: usize = 64 * 1024;
/// Bytes of a key.
pub const KEY_BYTES: usize = 9;

/// Identifies one load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct LoadRun(pub u64);

/// What a value says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// Of some load, and whole.
    Whole { run: LoadRun, key: u32, sequence: u64 },
    /// Of some load by its head, but its bytes are not those that were sent.
    Damaged { run: LoadRun },
    /// Not of a load.
    Foreign,
}

/// Makes values of up to one size.
#[derive(Debug)]
pub struct ContentWriter {
    run: LoadRun,
    value: Vec<u8>,
    pool: Vec<u8>,
    /// Whether values will be judged: else their filler and hash are made once.
    judged: bool,
}

/// The key of a number.
#[must_use]
pub fn key(number: u32) -> [u8; KEY_BYTES] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut key = [b'k'; KEY_BYTES];
    for (place, byte) in key[1..].iter_mut().enumerate() {
        *byte = DIGITS[(number >> (28 - 4 * place)) as usize & 15];
    }
    key
}

impl ContentWriter {
    /// Values of at most `value_bytes` bytes for one load. Those that nobody will judge cost less: only their head changes.
    ///
    /// # Panics
    /// If that is smaller than [`VALUE_BYTES_MIN`].
    #[must_use]
    pub fn new(run: LoadRun, value_bytes: usize, judged: bool, seed: u64) -> Self {
        assert!(value_bytes >= VALUE_BYTES_MIN, "a value holds at least its head");
        let mut random = Random::new(seed);
        let mut value = vec![0; value_bytes];
        value[..8].copy_from_slice(&MAGIC);
        value[8..16].copy_from_slice(&run.0.to_le_bytes());
        let pool: Vec<u8> =
            (0..(POOL_BYTES + value_bytes).div_ceil(8)).flat_map(|_| random.next_u64().to_le_bytes()).collect();
        value[VALUE_BYTES_MIN..].copy_from_slice(&pool[..value_bytes - VALUE_BYTES_MIN]);
        Self { run, value, pool, judged }
    }

    /// The load that the values are of.
    #[must_use]
    pub fn run(&self) -> LoadRun {
        self.run
    }

    /// When the next records were meant to be sent, in µs modulo 2^32.
    pub fn intend(&mut self, intended_us: u32) {
        self.value[20..24].copy_from_slice(&intended_us.to_le_bytes());
    }

    /// The value of a key's record, `bytes` long. It stands until the next call; nothing is allocated.
    ///
    /// # Panics
    /// If it is smaller than [`VALUE_BYTES_MIN`], or larger than any was to be.
    pub fn value(&mut self, key: u32, sequence: u64, bytes: usize) -> &[u8] {
        self.value[16..20].copy_from_slice(&key.to_le_bytes());
        self.value[24..32].copy_from_slice(&sequence.to_le_bytes());
        if !self.judged {
            return &self.value[..bytes];
        }
        let filler = bytes - VALUE_BYTES_MIN;
        let at = usize::try_from(sequence.wrapping_mul(61).wrapping_add(u64::from(key) * 7) % POOL_BYTES as u64)
            .expect("below the pool's size");
        let value = &mut self.value[..bytes];
        value[VALUE_BYTES_MIN..].copy_from_slice(&self.pool[at..at + filler]);
        let hash = hash(value);
        value[HASH_AT..VALUE_BYTES_MIN].copy_from_slice(&hash.to_le_bytes());
        value
    }
}

fn hash(value: &[u8]) -> u64 {
    xxh3_64_with_seed(&value[VALUE_BYTES_MIN..], xxh3_64(&value[..HASH_AT]))
}

/// Judges a record that was read.
#[must_use]
pub fn read(record_key: Option<&[u8]>, value: &[u8]) -> Value {
    let number = |at: usize| -> u64 { u64::from_le_bytes(value[at..at + 8].try_into().expect("8 bytes")) };
    if value.len() < VALUE_BYTES_MIN || value[..8] != MAGIC {
        return Value::Foreign;
    }
    let run = LoadRun(number(8));
    let number_of_key = u32::try_from(number(16) & u64::from(u32::MAX)).expect("masked to 32 bits");
    if number(HASH_AT) != hash(value) || record_key != Some(key(number_of_key).as_slice()) {
        return Value::Damaged { run };
    }
    Value::Whole { run, key: number_of_key, sequence: number(24) }
}

/// The load that a value is of, and when it was meant to be sent, if it is of a load; its bytes are not judged.
#[must_use]
pub fn intended_us(value: &[u8]) -> Option<(LoadRun, u32)> {
    let head = value.first_chunk::<VALUE_BYTES_MIN>().filter(|head| head[..8] == MAGIC)?;
    let run = u64::from_le_bytes(head[8..16].try_into().expect("8 bytes"));
    Some((LoadRun(run), u32::from_le_bytes(head[20..24].try_into().expect("4 bytes"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_says_whose_it_is() {
        let mut content = ContentWriter::new(LoadRun(7), 100, true, 1);
        let value = content.value(3, 9, 100).to_vec();
        assert_eq!(value.len(), 100);
        assert_eq!(read(Some(&key(3)), &value), Value::Whole { run: LoadRun(7), key: 3, sequence: 9 });
        assert_ne!(content.value(3, 10, 100)[VALUE_BYTES_MIN..], value[VALUE_BYTES_MIN..]);
        assert_eq!(&key(0x1f), b"k0000001f");
    }

    #[test]
    fn each_flipped_byte_is_damage_and_a_value_under_another_key_too() {
        let mut content = ContentWriter::new(LoadRun(7), 100, true, 1);
        let value = content.value(3, 9, VALUE_BYTES_MIN + 3).to_vec();
        assert_eq!(value.len(), VALUE_BYTES_MIN + 3, "shorter than the longest");
        assert_eq!(read(Some(&key(3)), &value), Value::Whole { run: LoadRun(7), key: 3, sequence: 9 });
        for at in 16..value.len() {
            let mut flipped = value.clone();
            flipped[at] ^= 1;
            assert_eq!(read(Some(&key(3)), &flipped), Value::Damaged { run: LoadRun(7) }, "byte {at}");
        }
        assert_eq!(read(Some(&key(4)), &value), Value::Damaged { run: LoadRun(7) });
        assert_eq!(read(None, &value), Value::Damaged { run: LoadRun(7) });
    }

    #[test]
    fn a_value_says_when_it_was_due() {
        let mut content = ContentWriter::new(LoadRun(7), 100, true, 1);
        content.intend(123_456);
        let value = content.value(3, 9, 100).to_vec();
        assert_eq!(intended_us(&value), Some((LoadRun(7), 123_456)));
        assert_eq!(read(Some(&key(3)), &value), Value::Whole { run: LoadRun(7), key: 3, sequence: 9 });
        assert_eq!((intended_us(b"hello"), intended_us(&[0; 100])), (None, None));
    }

    #[test]
    fn what_no_load_wrote_is_foreign() {
        assert_eq!(read(None, b"hello"), Value::Foreign);
        assert_eq!(read(None, &[0; 100]), Value::Foreign);
    }
}
