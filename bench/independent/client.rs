//! A second client, written from docs/wire.md and docs/format.md alone: blocking sockets, its own frames, its own checksums, and not a
//! line of the client library or the load test. What it measures stands beside what the load test measures; where the two disagree,
//! one of them is wrong.
//!
//! One record a batch, one batch a frame, one frame unanswered. Records have no key but an explicit hash, so that no hash function is
//! needed either.
#![allow(dead_code, reason = "each program takes what it needs of it")]
#![allow(unreachable_pub, reason = "it is a module of several programs")]

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const HEADER: usize = 32;
const HELLO: u16 = 0x0001;
const WELCOME: u16 = 0x0002;
const REFUSED: u16 = 0x0006;
const PRODUCE: u16 = 0x0100;
const STORED: u16 = 0x0101;
const CREATE_TOPIC: u16 = 0x0200;
const ROUTES: u16 = 0x0204;
const ROUTES_ARE: u16 = 0x0205;
const OPEN_PRODUCER: u16 = 0x0206;
const PRODUCER: u16 = 0x0207;
/// Refusal of a topic that exists already.
const TOPIC_EXISTS: u16 = 2;
/// A refusal's advice never to try again.
const RETRY_NEVER: u8 = 1;
const DEADLINE_MS: u32 = 10_000;

/// CRC-32C, eight bytes at a step.
pub struct Crc([[u32; 256]; 8]);

impl Crc {
    pub fn new() -> Self {
        let mut tables = [[0u32; 256]; 8];
        for index in 0..256u32 {
            let mut crc = index;
            for _ in 0..8 {
                crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
            }
            tables[0][index as usize] = crc;
        }
        for table in 1..8 {
            for index in 0..256 {
                let before = tables[table - 1][index];
                tables[table][index] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            }
        }
        Self(tables)
    }

    pub fn of(&self, bytes: &[u8]) -> u32 {
        let t = &self.0;
        let mut crc = u32::MAX;
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            let low = crc ^ u32::from_le_bytes(chunk[..4].try_into().expect("4 bytes"));
            let at = |table: usize, value: u32| t[table][(value & 0xff) as usize];
            crc = at(7, low) ^ at(6, low >> 8) ^ at(5, low >> 16) ^ at(4, low >> 24);
            crc ^= t[3][usize::from(chunk[4])] ^ t[2][usize::from(chunk[5])];
            crc ^= t[1][usize::from(chunk[6])] ^ t[0][usize::from(chunk[7])];
        }
        for byte in chunks.remainder() {
            crc = (crc >> 8) ^ t[0][((crc ^ u32::from(*byte)) & 0xff) as usize];
        }
        !crc
    }
}

impl Default for Crc {
    fn default() -> Self {
        Self::new()
    }
}

/// One connection that may write to the first range of a topic.
pub struct Client {
    stream: TcpStream,
    crc: Crc,
    correlation: u64,
    range: u64,
    epoch: u64,
    producer: u64,
    producer_epoch: u32,
    sequence: u64,
    hash: u64,
    out: Vec<u8>,
    answer: Vec<u8>,
}

/// What answers.
struct Answer {
    kind: u16,
    struct_bytes: usize,
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("2 bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).expect("7 bits"));
}

/// The value of a protobuf field: a number, or the place of bytes.
enum Field {
    Number(u64),
    Bytes(usize, usize),
}

/// The fields of a message from `at` to `end`.
fn fields(bytes: &[u8], mut at: usize, end: usize) -> io::Result<Vec<(u64, Field)>> {
    let mut found = Vec::new();
    let read = |at: &mut usize| -> io::Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = *bytes[..end].get(*at).ok_or_else(|| wrong("a message that ends in a number"))?;
            *at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(wrong("a number that does not end"))
    };
    while at < end {
        let tag = read(&mut at)?;
        let field = match tag & 7 {
            0 => Field::Number(read(&mut at)?),
            1 => {
                at += 8;
                Field::Number(u64::from_le_bytes(bytes[at - 8..at].try_into().expect("8 bytes")))
            }
            2 => {
                let length = usize::try_from(read(&mut at)?).map_err(|_| wrong("a field that is too long"))?;
                at += length;
                Field::Bytes(at - length, at)
            }
            _ => return Err(wrong("a field of an unknown kind")),
        };
        found.push((tag >> 3, field));
    }
    Ok(found)
}

fn number(fields: &[(u64, Field)], wanted: u64) -> u64 {
    let found = fields.iter().find_map(|(number, field)| match field {
        Field::Number(value) if *number == wanted => Some(*value),
        Field::Number(_) | Field::Bytes(..) => None,
    });
    found.unwrap_or(0)
}

impl Client {
    /// Connects, makes the topic with one range if it does not exist, and opens a producer.
    pub fn open(address: &str, topic: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let mut client = Self {
            stream,
            crc: Crc::new(),
            correlation: 0,
            range: 0,
            epoch: 0,
            producer: 0,
            producer_epoch: 0,
            sequence: 0,
            hash: 0,
            out: Vec::new(),
            answer: Vec::new(),
        };
        client.hello()?;
        client.create_topic(topic)?;
        client.find_route(topic)?;
        client.open_producer()?;
        Ok(client)
    }

    fn hello(&mut self) -> io::Result<()> {
        const NAME: &[u8] = b"independent";
        let mut body = vec![1, 1, 0xff, 0xff];
        body.extend(u16::try_from(NAME.len()).expect("short").to_le_bytes());
        body.extend([0; 26]);
        body.extend(NAME);
        let length = body.len();
        let answer = self.call(HELLO, &body, length)?;
        if answer.kind == WELCOME { Ok(()) } else { Err(wrong("no welcome")) }
    }

    fn create_topic(&mut self, topic: &str) -> io::Result<()> {
        let mut message = vec![0x0a, u8::try_from(topic.len()).map_err(|_| wrong("a topic's name that is too long"))?];
        message.extend(topic.as_bytes());
        message.extend([0x10, 1]);
        let answer = self.message(CREATE_TOPIC, &message)?;
        if answer.kind == REFUSED && u16_at(&self.answer, HEADER) != TOPIC_EXISTS {
            return Err(wrong("the topic cannot be made"));
        }
        Ok(())
    }

    fn find_route(&mut self, topic: &str) -> io::Result<()> {
        let mut message = vec![0x0a, u8::try_from(topic.len()).map_err(|_| wrong("a topic's name that is too long"))?];
        message.extend(topic.as_bytes());
        let answer = self.message(ROUTES, &message)?;
        if answer.kind != ROUTES_ARE {
            return Err(wrong("no routes"));
        }
        let from = HEADER + answer.struct_bytes;
        for (field, value) in fields(&self.answer, from, self.answer.len())? {
            if let (2, Field::Bytes(from, end)) = (field, value) {
                let route = fields(&self.answer, from, end)?;
                (self.range, self.hash, self.epoch) = (number(&route, 1), number(&route, 2), number(&route, 4));
                return Ok(());
            }
        }
        Err(wrong("a topic without ranges"))
    }

    fn open_producer(&mut self) -> io::Result<()> {
        let answer = self.message(OPEN_PRODUCER, &[])?;
        if answer.kind != PRODUCER {
            return Err(wrong("no producer"));
        }
        let found = fields(&self.answer, HEADER + answer.struct_bytes, self.answer.len())?;
        self.producer = number(&found, 1);
        self.producer_epoch = u32::try_from(number(&found, 2)).map_err(|_| wrong("an epoch that is too large"))?;
        Ok(())
    }

    /// Stores one record, and tells how long that took from before it was made to the whole answer. What the node refuses for now is
    /// sent again, and the time of the last attempt counts.
    pub fn store(&mut self, value: &[u8]) -> io::Result<Duration> {
        loop {
            let begun = Instant::now();
            self.batch(value);
            let body = std::mem::take(&mut self.out);
            let answer = self.call(PRODUCE, &body, 16);
            self.out = body;
            let kind = answer?.kind;
            let took = begun.elapsed();
            if kind == STORED {
                self.sequence += 1;
                return Ok(took);
            }
            if kind != REFUSED || self.answer[HEADER + 3] == RETRY_NEVER {
                return Err(wrong("the record was not stored"));
            }
            std::thread::sleep(Duration::from_millis(u64::from(u32_at(&self.answer, HEADER + 4)).max(1)));
        }
    }

    /// Range, epoch, and a batch of one record, into `out`.
    fn batch(&mut self, value: &[u8]) {
        let out = &mut self.out;
        out.clear();
        out.extend(self.range.to_le_bytes());
        out.extend(self.epoch.to_le_bytes());
        let start = out.len();
        out.extend([0; 80]);
        out.push(0b101);
        varint(out, 0);
        out.extend(self.hash.to_le_bytes());
        varint(out, value.len() as u64);
        out.extend(value);
        varint(out, 0);
        let length = u32::try_from(out.len() - start).expect("a small batch");
        let batch = &mut out[start..];
        batch[4..8].copy_from_slice(&length.to_le_bytes());
        (batch[8], batch[9]) = (1, 1);
        batch[14..16].copy_from_slice(&1u16.to_le_bytes());
        batch[16..24].copy_from_slice(&self.producer.to_le_bytes());
        batch[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        batch[32..36].copy_from_slice(&self.producer_epoch.to_le_bytes());
        batch[40..44].copy_from_slice(&1u32.to_le_bytes());
        batch[64..72].copy_from_slice(&self.hash.to_le_bytes());
        batch[72..80].copy_from_slice(&self.hash.to_le_bytes());
        let crc = self.crc.of(&batch[4..]);
        batch[..4].copy_from_slice(&crc.to_le_bytes());
    }

    /// A request whose body is a message.
    fn message(&mut self, kind: u16, message: &[u8]) -> io::Result<Answer> {
        let mut body = Vec::with_capacity(8 + message.len());
        body.extend(u32::try_from(message.len()).expect("a short message").to_le_bytes());
        body.extend(self.crc.of(message).to_le_bytes());
        body.extend(message);
        self.call(kind, &body, 8)
    }

    /// Sends a frame, and reads the answer into `answer`.
    fn call(&mut self, kind: u16, body: &[u8], struct_bytes: usize) -> io::Result<Answer> {
        self.correlation += 1;
        let mut frame = Vec::with_capacity(HEADER + body.len());
        frame.extend(u32::try_from(HEADER + body.len()).expect("a short frame").to_le_bytes());
        frame.extend([1, 0]);
        frame.extend(kind.to_le_bytes());
        frame.extend(self.correlation.to_le_bytes());
        frame.extend(DEADLINE_MS.to_le_bytes());
        frame.extend(u16::try_from(struct_bytes).expect("a short struct").to_le_bytes());
        frame.extend([0, 0]);
        frame.extend(self.crc.of(&body[..struct_bytes]).to_le_bytes());
        let header = self.crc.of(&frame);
        frame.extend(header.to_le_bytes());
        frame.extend(body);
        self.stream.write_all(&frame)?;
        self.read_frame()?;
        let answer = Answer { kind: u16_at(&self.answer, 6), struct_bytes: usize::from(u16_at(&self.answer, 20)) };
        let told = u64::from_le_bytes(self.answer[8..16].try_into().expect("8 bytes"));
        if told != self.correlation || HEADER + answer.struct_bytes > self.answer.len() {
            return Err(wrong("an answer to something else"));
        }
        let found = self.crc.of(&self.answer[HEADER..HEADER + answer.struct_bytes]);
        if found == u32_at(&self.answer, 24) { Ok(answer) } else { Err(wrong("an answer that does not verify")) }
    }

    fn read_frame(&mut self) -> io::Result<()> {
        self.answer.resize(4096, 0);
        let mut have = 0;
        loop {
            if have >= HEADER {
                let length = u32_at(&self.answer, 0) as usize;
                if self.crc.of(&self.answer[..28]) != u32_at(&self.answer, 28) || length < HEADER {
                    return Err(wrong("bytes that are no frame"));
                }
                if have >= length {
                    self.answer.truncate(length);
                    return Ok(());
                }
                self.answer.resize(length.max(4096), 0);
            }
            match self.stream.read(&mut self.answer[have..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                bytes => have += bytes,
            }
        }
    }
}
