//! The committed end: the only file that knows when records are durable on a quorum.

use crate::types::Offset;

/// The `quorum`-th largest of the replicas' durable ends: below it every record is durable on `quorum` of them.
///
/// The primary's own disk is one of `durable`, and not special. `durable` is put in order.
///
/// # Panics
/// If `quorum` is 0 or there are fewer ends.
#[must_use]
pub fn committed_end(durable: &mut [Offset], quorum: usize) -> Offset {
    assert!(0 < quorum && quorum <= durable.len(), "a quorum is a part of the set");
    durable.sort_unstable();
    durable[durable.len() - quorum]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn committed(ends: &[u64], quorum: usize) -> Offset {
        let mut durable: Vec<Offset> = ends.iter().copied().map(Offset).collect();
        committed_end(&mut durable, quorum)
    }

    #[test]
    fn the_quorum_th_largest_end_is_committed() {
        assert_eq!(committed(&[7], 1), Offset(7));
        assert_eq!(committed(&[7, 3, 5], 2), Offset(5));
        assert_eq!(committed(&[7, 3, 5], 3), Offset(3));
        assert_eq!(committed(&[7, 3], 2), Offset(3));
        assert_eq!(committed(&[0, 9, 9], 2), Offset(9));
    }
}
