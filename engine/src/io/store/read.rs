//! Reading around what a device cannot give.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use crate::api::port::ReadBytes;
use crate::types::AlignedBuffer;
use crate::types::limits::{BLOCK, IO_BYTES_MAX, round_up_to_block};

/// Reads at a place in the bytes that were asked for.
type Pread<'a> = &'a mut dyn FnMut(usize, &mut [u8]) -> Result<usize, Errno>;

/// Up to `length` bytes of a file from `position` (a block boundary) on.
pub(super) fn read(file: &OwnedFd, position: u64, length: usize) -> io::Result<ReadBytes> {
    let end = u64::try_from(rustix::fs::fstat(file)?.st_size).expect("a file's length");
    let there = usize::try_from(end.saturating_sub(position)).unwrap_or(usize::MAX);
    let length = length.min(there);
    let mut bytes = AlignedBuffer::zeroed(length);
    let blocks = round_up_to_block(length);
    let unreadable =
        read_around(&mut bytes[..blocks], &mut |at, piece| rustix::io::pread(file, piece, position + at as u64))?;
    // The last block may reach beyond what was asked for.
    bytes[length..].fill(0);
    Ok(ReadBytes { bytes, length, unreadable })
}

/// Fills `bytes` in large pieces; one that cannot be read is read again block by block. Gives the spans that could not be read,
/// joined where they touch, with zeros in them.
fn read_around(bytes: &mut [u8], pread: Pread<'_>) -> io::Result<Vec<Range<usize>>> {
    let mut unreadable: Vec<Range<usize>> = Vec::new();
    for start in (0..bytes.len()).step_by(IO_BYTES_MAX) {
        let end = bytes.len().min(start + IO_BYTES_MAX);
        if read_piece(start, &mut bytes[start..end], pread)? {
            continue;
        }
        for block in (start..end).step_by(BLOCK) {
            let span = &mut bytes[block..block + BLOCK];
            if read_piece(block, span, pread)? {
                continue;
            }
            span.fill(0);
            match unreadable.last_mut() {
                Some(last) if last.end == block => last.end += BLOCK,
                Some(_) | None => unreadable.push(block..block + BLOCK),
            }
        }
    }
    Ok(unreadable)
}

/// Fills `piece`, as far as the file goes. False if the device cannot give some of it.
fn read_piece(at: usize, piece: &mut [u8], pread: Pread<'_>) -> io::Result<bool> {
    let mut done = 0;
    while done < piece.len() {
        match pread(at + done, &mut piece[done..]) {
            // The file's last block may be a part of one.
            Ok(0) => break,
            // A direct read ends early at the file's end or before a bad block; a rest that is not of whole blocks can only be
            // the end.
            Ok(bytes) if !(done + bytes).is_multiple_of(BLOCK) => break,
            Ok(bytes) => done += bytes,
            Err(Errno::INTR) => {}
            // These are faults of the caller or of this host, not of the bytes.
            Err(errno @ (Errno::INVAL | Errno::BADF | Errno::FAULT | Errno::NOMEM | Errno::AGAIN)) => {
                return Err(errno.into());
            }
            Err(_) => return Ok(false),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device of `bytes` bytes, all 7, that cannot give the blocks in `bad`, and stops short before one.
    fn device(bytes: usize, bad: &'static [usize]) -> impl FnMut(usize, &mut [u8]) -> Result<usize, Errno> {
        move |at, piece| {
            let end = bytes.min(at + piece.len());
            let first_bad = bad.iter().map(|block| block * BLOCK).find(|from| at < from + BLOCK && *from < end);
            match first_bad {
                Some(from) if from <= at => Err(Errno::IO),
                Some(from) => {
                    piece[..from - at].fill(7);
                    Ok(from - at)
                }
                None => {
                    piece[..end.saturating_sub(at)].fill(7);
                    Ok(end.saturating_sub(at))
                }
            }
        }
    }

    #[test]
    fn only_the_bad_blocks_are_unreadable_and_neighbours_are_one_span() {
        let mut bytes = vec![1; 2 * IO_BYTES_MAX];
        let spans = read_around(&mut bytes, &mut device(usize::MAX, &[3, 4, 200])).expect("a read");
        assert_eq!(spans, [3 * BLOCK..5 * BLOCK, 200 * BLOCK..201 * BLOCK]);
        for (block, content) in bytes.chunks(BLOCK).enumerate() {
            let expected = if [3, 4, 200].contains(&block) { 0 } else { 7 };
            assert!(content.iter().all(|byte| *byte == expected), "block {block}");
        }
    }

    #[test]
    fn spans_that_touch_across_a_piece_are_one() {
        let last = IO_BYTES_MAX / BLOCK - 1;
        assert_eq!(last, 127);
        let mut bytes = vec![0; 2 * IO_BYTES_MAX];
        let spans = read_around(&mut bytes, &mut device(usize::MAX, &[127, 128])).expect("a read");
        assert_eq!(spans, vec![127 * BLOCK..129 * BLOCK; 1]);
    }

    #[test]
    fn the_end_of_the_file_is_not_unreadable() {
        let mut bytes = vec![0; 2 * BLOCK];
        let spans = read_around(&mut bytes, &mut device(BLOCK + 100, &[])).expect("a read");
        assert_eq!(spans, []);
        assert!(bytes[..BLOCK + 100].iter().all(|byte| *byte == 7));
        assert!(bytes[BLOCK + 100..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_fault_of_the_host_is_an_error_and_not_damage() {
        let refused = read_around(&mut vec![0; BLOCK], &mut |_, _| Err(Errno::INVAL));
        assert_eq!(refused.expect_err("no damage").raw_os_error(), Some(libc::EINVAL));
    }
}
