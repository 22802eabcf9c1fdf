//! Lines under a heading, each column as wide as its widest text.

use std::fmt::{self, Write as _};

/// Writes `rows` under `heading`. Columns from `right_from` on hold numbers and stand to the right.
///
/// # Errors
/// The formatter's.
pub(super) fn write<const N: usize>(
    f: &mut fmt::Formatter<'_>,
    heading: [&str; N],
    right_from: usize,
    rows: &[[String; N]],
) -> fmt::Result {
    let widest = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([heading[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(widest).collect();
    let heading = heading.map(str::to_owned);
    for row in std::iter::once(&heading).chain(rows) {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            if column >= right_from {
                write!(line, "{cell:>width$}  ")?;
            } else {
                write!(line, "{cell:width$}  ")?;
            }
        }
        writeln!(f, "{}", line.trim_end())?;
    }
    Ok(())
}
