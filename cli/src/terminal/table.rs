//! Tables that fit into 80 columns.

use crate::terminal::paint::{Paint, one_line};

/// Terminal columns that every table fits into, unless it has many columns with long words.
const WIDTH: usize = 80;
/// Minimum characters for the last column.
const LAST_MIN: usize = 8;
const GAP: &str = "  ";

/// The alignment of a column's cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

/// Rows under a heading. The last column is cut to the rest of the line.
pub(crate) struct Table<const N: usize> {
    heading: [(&'static str, Side); N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    pub(crate) fn new(heading: [(&'static str, Side); N]) -> Self {
        Self { heading, rows: Vec::new() }
    }

    pub(crate) fn push(&mut self, row: [String; N]) {
        self.rows.push(row.map(|cell| one_line(&cell, WIDTH)));
    }

    /// Returns the table; empty without rows.
    pub(crate) fn text(&self, paint: Paint) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let names = self.heading.map(|(name, _)| name.to_owned());
        let widths: [usize; N] = std::array::from_fn(|column| {
            let all = self.rows.iter().chain([&names]).map(|row| row[column].chars().count());
            all.max().unwrap_or_default()
        });
        let before: usize = widths.iter().take(N.saturating_sub(1)).map(|width| width + GAP.len()).sum();
        let last = WIDTH.saturating_sub(before).max(LAST_MIN);
        let line = |row: &[String; N]| {
            let mut text = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = if column + 1 == N { widths[column].min(last) } else { widths[column] };
                let cell = one_line(cell, width);
                text.push_str(&match self.heading[column].1 {
                    Side::Left => format!("{cell:width$}{GAP}"),
                    Side::Right => format!("{cell:>width$}{GAP}"),
                });
            }
            text.trim_end().to_owned()
        };
        let mut text = format!("{}\n", paint.dim(&line(&names)));
        for row in &self.rows {
            text.push_str(&line(row));
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_column_is_cut_to_the_line() {
        let mut table = Table::new([("NAME", Side::Left), ("N", Side::Right), ("WHY", Side::Left)]);
        assert_eq!(table.text(Paint::Plain), "");
        table.push(["a".to_owned(), "12".to_owned(), "x".repeat(100)]);
        table.push(["long name".to_owned(), "3".to_owned(), String::new()]);
        let text = table.text(Paint::Plain);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!((lines[0], lines[2]), ("NAME        N  WHY", "long name   3"));
        assert!(lines[1].starts_with("a          12  xxx"), "{text}");
        assert_eq!(lines[1].chars().count(), WIDTH);
    }
}
