//! Values as people write them: sizes and times with units, lists of cores. What is shown is what can be written again.

use std::time::Duration;

/// Units of a size, the largest first.
const SIZES: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
/// Units of a time in microseconds, the largest first. A unit that ends another (`s` and `ms`) stands behind it where text is read.
const TIMES: [(&str, u64); 6] =
    [("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000), ("us", 1)];

/// Bytes of a size, such as 4096, 64KiB, 128MiB.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    match text.parse() {
        Ok(bytes) => Some(bytes),
        Err(_) => scaled(text, &SIZES),
    }
}

/// A time, such as 500us, 20ms, 10s, 5m, 1h, 7d. A number alone is none, but for 0: whose unit is meant cannot be told.
pub(crate) fn parse_time(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    scaled(text, &TIMES).map(Duration::from_micros)
}

/// A number and one of the units.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(unit_at);
    let (_, scale) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    number.parse::<u64>().ok()?.checked_mul(*scale)
}

/// In the largest unit that leaves no rest.
pub(crate) fn show_size(bytes: u64) -> String {
    show(bytes, &SIZES)
}

/// As above, of whole microseconds.
pub(crate) fn show_time(time: Duration) -> String {
    show(u64::try_from(time.as_micros()).unwrap_or(u64::MAX), &TIMES)
}

fn show(number: u64, units: &[(&str, u64)]) -> String {
    let (name, scale) = units.iter().find(|(_, scale)| number.is_multiple_of(*scale)).expect("the least unit is 1");
    // Nothing of anything is nothing; the largest unit would read oddly.
    if number == 0 { "0".to_owned() } else { format!("{}{name}", number / scale) }
}

/// Cores, such as 0,2 or 0-3; `auto` is an empty list.
pub(crate) fn parse_cores(text: &str) -> Option<Vec<usize>> {
    if text == "auto" {
        return Some(Vec::new());
    }
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, end) = part.split_once('-').unwrap_or((part, part));
        let (first, end): (usize, usize) = (first.trim().parse().ok()?, end.trim().parse().ok()?);
        // More cores than any machine has are a slip of the pen.
        if end < first || end >= 1 << 16 {
            return None;
        }
        cores.extend(first..=end);
    }
    Some(cores)
}

pub(crate) fn show_cores(cores: &[usize]) -> String {
    if cores.is_empty() {
        return "auto".to_owned();
    }
    cores.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_of_1024_or_none() {
        for (text, bytes) in [("4096", 4096), ("64KiB", 64 << 10), ("128 MiB", 128 << 20), ("5B", 5), ("0", 0)] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        for wrong in ["1TB", "1MB", "1M", "-1", "1.5GiB", "18446744073709551615KiB", "", "KiB", "1 KiB x"] {
            assert_eq!(parse_size(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_time_needs_its_unit() {
        for (text, us) in
            [("500us", 500), ("20ms", 20_000), ("10s", 10_000_000), ("5m", 300_000_000), ("1h", 3_600_000_000)]
        {
            assert_eq!(parse_time(text), Some(Duration::from_micros(us)), "{text}");
        }
        assert_eq!(parse_time("0"), Some(Duration::ZERO));
        assert_eq!(parse_time("7d"), Some(Duration::from_secs(7 * 86_400)));
        for wrong in ["7", "1x", "s", "-1s", "1.5s", "99999999999999d", ""] {
            assert_eq!(parse_time(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_shown_is_read_as_the_same() {
        for bytes in [0, 1, 4096, 4097, 1 << 20, 3 << 30, u64::MAX] {
            assert_eq!(parse_size(&show_size(bytes)), Some(bytes));
        }
        for us in [0, 1, 999, 1_000, 90_000_000, 3_600_000_000, 86_400_000_000] {
            let time = Duration::from_micros(us);
            assert_eq!(parse_time(&show_time(time)), Some(time));
        }
        assert_eq!((show_size(128 << 20), show_time(Duration::from_secs(90))), ("128MiB".into(), "90s".into()));
        assert_eq!(parse_cores(&show_cores(&[3, 1])), Some(vec![3, 1]));
        assert_eq!(parse_cores(&show_cores(&[])), Some(vec![]));
    }

    #[test]
    fn cores_are_listed_or_spanned() {
        assert_eq!(parse_cores("0-2, 5"), Some(vec![0, 1, 2, 5]));
        for wrong in ["", "a", "3-1", "0-99999999", "1,", "-1"] {
            assert_eq!(parse_cores(wrong), None, "{wrong}");
        }
    }
}
