//! Tables: complete in a pipe, and fitted to the width of a terminal.
//!
//! If a table is wider than the terminal, names are shortened, but never ids, amounts and other values that somebody
//! may copy, such as the name by which a command finds an account. If that is not enough, the last columns are written below each row, with their headings. Nothing is left
//! out except unknown values.

use chrono::{DateTime, Utc};

use super::relative_time::relative;
use super::style::{FAINT, HEADING, has_color, paint, paint_state};
use super::terminal::stdout_width;
use super::text::{columns, pad, shorten, wrap};
use crate::gateway::names;

/// The space between two columns.
const GAP: usize = 2;
/// The indentation of values below a row.
const INDENTATION: usize = 4;
/// The width to which names are shortened at most (our choice).
const MIN_NAME_WIDTH: usize = 8;

/// The heading of a column, and the treatment of its cells on a terminal.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) struct Column<'a> {
    heading: &'a str,
    content: ColumnContent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ColumnContent {
    /// Values that are never changed.
    Exact,
    /// Names and texts, which can be shortened.
    Name,
    /// States, which have a color, and may be followed by a reason.
    State,
    /// Times in RFC 3339, which are shown relative to now.
    Moment,
}

/// The treatment of a table by the place where it is printed.
struct TableStyle {
    /// The width of the terminal, or `None` if the output is not a terminal.
    width: Option<usize>,
    has_color: bool,
    now: DateTime<Utc>,
}

/// The widths of the columns that are written side by side. The other columns are written below each row.
struct TableLayout {
    widths: Vec<usize>,
}

impl<'a> From<&'a str> for Column<'a> {
    fn from(heading: &'a str) -> Self {
        Column { heading, content: ColumnContent::Exact }
    }
}

/// Formats columns under their headings for standard output. A heading alone stands for a column whose cells are never
/// changed. Invisible characters in cells are escaped.
pub(in crate::cli) fn table<'a>(
    columns: impl IntoIterator<Item = impl Into<Column<'a>>>,
    rows: &[impl AsRef<[String]>],
) -> String {
    let style = TableStyle { width: stdout_width(), has_color: has_color(), now: Utc::now() };
    style.format(&columns.into_iter().map(Into::into).collect::<Vec<_>>(), rows)
}

// === impl TableStyle ===

impl TableStyle {
    fn format(&self, columns: &[Column<'_>], rows: &[impl AsRef<[String]>]) -> String {
        let row_texts = |row: &[String]| {
            columns.iter().zip(row).map(|(column, cell)| self.cell_text(column.content, cell)).collect::<Vec<_>>()
        };
        let rows: Vec<Vec<String>> = rows.iter().map(|row| row_texts(row.as_ref())).collect();
        let layout = TableLayout::new(columns, &rows, self.width);
        let mut text = String::new();
        let headings = columns.iter().map(|column| (column.heading.to_owned(), Some(HEADING)));
        self.push_line(
            &mut text,
            &layout,
            headings.map(|(heading, style)| (heading.clone(), style.map(|style| paint(&heading, style)))),
        );
        for row in &rows {
            let cells = columns.iter().zip(row).zip(&layout.widths).map(|((column, cell), width)| {
                let cell = column.fitted(cell, *width);
                let painted = column.paint(&cell);
                (cell, painted)
            });
            self.push_line(&mut text, &layout, cells);
            self.push_below(&mut text, layout.widths.len(), columns, row);
        }
        text
    }

    /// Returns the text of a cell as it is shown if there is room for it.
    fn cell_text(&self, content: ColumnContent, cell: &str) -> String {
        let time = (content == ColumnContent::Moment && self.width.is_some())
            .then(|| DateTime::parse_from_rfc3339(cell).ok())
            .flatten();
        time.map_or_else(|| names::escape_hidden(cell).into_owned(), |time| relative(time.to_utc(), self.now))
    }

    /// Appends a line of cells. A cell is its text, and the text with a color if it has one.
    fn push_line(
        &self,
        text: &mut String,
        layout: &TableLayout,
        cells: impl Iterator<Item = (String, Option<String>)>,
    ) {
        let mut space = 0;
        for ((cell, painted), width) in cells.zip(&layout.widths) {
            let used = columns(&cell);
            // The space before a cell is written with it, so that no line ends with spaces.
            if used > 0 {
                pad(text, 0, space);
                text.push_str(painted.as_deref().filter(|_| self.has_color).unwrap_or(&cell));
                space = 0;
            }
            space += width.saturating_sub(used) + GAP;
        }
        text.push('\n');
    }

    /// Appends the cells that have no room in the row, each with its heading.
    fn push_below(&self, text: &mut String, inline: usize, titles: &[Column<'_>], row: &[String]) {
        let width = self.width.unwrap_or(usize::MAX);
        let mut used = 0;
        for (column, cell) in titles.iter().zip(row).skip(inline).filter(|(_, cell)| !matches!(cell.as_str(), "" | "-"))
        {
            let heading = column.heading.to_lowercase();
            let length = columns(&heading) + 1 + columns(cell);
            if used > 0 && used + GAP + length > width {
                text.push('\n');
                used = 0;
            }
            let space = if used == 0 { INDENTATION } else { GAP };
            pad(text, 0, space);
            used += space + length;
            let start = INDENTATION + columns(&heading) + 1;
            let cell = &wrap(cell, self.width, start, 2 * INDENTATION);
            let painted = column.paint(cell).filter(|_| self.has_color).unwrap_or_else(|| cell.to_owned());
            let heading = if self.has_color { paint(&heading, FAINT) } else { heading };
            text.push_str(&heading);
            text.push(' ');
            text.push_str(&painted);
        }
        if used > 0 {
            text.push('\n');
        }
    }
}

// === impl Column ===

impl<'a> Column<'a> {
    /// Returns a column of names or other texts, which are shortened if the terminal is too narrow.
    pub(in crate::cli) const fn name(heading: &'a str) -> Self {
        Self { heading, content: ColumnContent::Name }
    }

    /// Returns a column of states.
    pub(in crate::cli) const fn state(heading: &'a str) -> Self {
        Self { heading, content: ColumnContent::State }
    }

    /// Returns a column of times in RFC 3339.
    pub(in crate::cli) const fn moment(heading: &'a str) -> Self {
        Self { heading, content: ColumnContent::Moment }
    }

    /// Returns true if cells are never shortened.
    fn is_fixed(self) -> bool {
        self.content != ColumnContent::Name
    }

    /// Returns the cell for a column of this width.
    fn fitted(self, cell: &str, width: usize) -> String {
        if self.is_fixed() { cell.to_owned() } else { shorten(cell, width) }
    }

    fn paint(self, cell: &str) -> Option<String> {
        if cell == "-" {
            return Some(paint(cell, FAINT));
        }
        match self.content {
            ColumnContent::State => Some(paint_state(cell)),
            ColumnContent::Exact | ColumnContent::Name | ColumnContent::Moment => None,
        }
    }

    /// Returns the width below which the column is not shortened.
    fn min_width(self, natural: usize) -> usize {
        if self.is_fixed() { natural } else { natural.min(MIN_NAME_WIDTH.max(columns(self.heading))) }
    }
}

// === impl TableLayout ===

impl TableLayout {
    fn new(titles: &[Column<'_>], rows: &[Vec<String>], width: Option<usize>) -> Self {
        let natural: Vec<usize> = titles
            .iter()
            .enumerate()
            .map(|(index, title)| {
                let cells = rows.iter().filter_map(|row| row.get(index)).map(|cell| columns(cell));
                cells.chain([columns(title.heading)]).max().unwrap_or(0)
            })
            .collect();
        let Some(width) = width else { return Self { widths: natural } };
        let side_by_side = (1..=titles.len()).rev().find_map(|count| fit(&titles[..count], &natural[..count], width));
        Self { widths: side_by_side.unwrap_or_else(|| natural[..1].to_vec()) }
    }
}

/// Returns the widths of these columns if they fit: names that are longer than others are shortened first.
fn fit(titles: &[Column<'_>], natural: &[usize], width: usize) -> Option<Vec<usize>> {
    let room = width.checked_sub(GAP * (titles.len() - 1))?;
    let least: Vec<usize> = titles.iter().zip(natural).map(|(column, natural)| column.min_width(*natural)).collect();
    if least.iter().sum::<usize>() > room {
        return None;
    }
    let mut widths = natural.to_vec();
    while widths.iter().sum::<usize>() > room {
        let longest =
            (0..widths.len()).filter(|index| widths[*index] > least[*index]).max_by_key(|index| widths[*index])?;
        widths[longest] -= 1;
    }
    Some(widths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn style(width: Option<usize>, has_color: bool) -> TableStyle {
        let now = DateTime::parse_from_rfc3339("2026-11-21T03:00:00Z").unwrap().to_utc();
        TableStyle { width, has_color, now }
    }

    fn keys() -> ([Column<'static>; 4], [[String; 4]; 2]) {
        let rows = [
            ["key_1", "the laptop in the kitchen", "active", "2026-11-21T02:57:00.000Z"],
            ["key_22", "灯台", "disabled: invoice open", "-"],
        ];
        (
            ["ID".into(), Column::name("NAME"), Column::state("STATE"), Column::moment("LAST USED")],
            rows.map(|row| row.map(str::to_owned)),
        )
    }

    #[test]
    fn a_pipe_gets_whole_cells_and_absolute_times() {
        let (columns, rows) = keys();
        assert_eq!(
            style(None, false).format(&columns, &rows),
            "ID      NAME                       STATE                   LAST USED\n\
             key_1   the laptop in the kitchen  active                  2026-11-21T02:57:00.000Z\n\
             key_22  灯台                       disabled: invoice open  -\n"
        );
    }

    #[test]
    fn a_terminal_gets_what_fits_and_relative_times() {
        let (columns, rows) = keys();
        assert_eq!(
            style(Some(60), false).format(&columns, &rows),
            "ID      NAME               STATE                   LAST USED\n\
             key_1   the laptop in th…  active                  3 min ago\n\
             key_22  灯台               disabled: invoice open  -\n"
        );
    }

    #[test]
    fn columns_without_room_are_written_below_their_row() {
        let (columns, rows) = keys();
        assert_eq!(
            style(Some(42), false).format(&columns, &rows),
            "ID      NAME        STATE\n\
             key_1   the lapto…  active\n    last used 3 min ago\n\
             key_22  灯台        disabled: invoice open\n"
        );
        assert_eq!(
            style(Some(20), false).format(&columns, &rows),
            "ID      NAME\n\
             key_1   the laptop…\n    state active\n    last used 3 min\n        ago\n\
             key_22  灯台\n    state disabled:\n        invoice open\n"
        );
    }

    #[test]
    fn states_have_colors_that_take_no_room() {
        let (columns, rows) = keys();
        let plain = style(Some(80), false).format(&columns, &rows);
        let colored = style(Some(80), true).format(&columns, &rows);
        assert!(
            colored.contains("\u{1b}[32mactive\u{1b}[0m") && colored.contains("\u{1b}[1mNAME\u{1b}[0m"),
            "{colored}"
        );
        assert_eq!(anstream::adapter::strip_str(&colored).to_string(), plain);
    }

    #[test]
    fn invisible_characters_in_cells_are_escaped() {
        let rows = [["\u{202e}nimda".to_owned(), "a\nb\u{200b}".to_owned()]];
        let text = style(None, false).format(&["ID".into(), Column::name("N")], &rows);
        assert_eq!(text, "ID             N\n\\u{202e}nimda  a\\u{a}b\\u{200b}\n");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["ä".to_owned(), "7".to_owned()], ["long".to_owned(), "-".to_owned()]];
        assert_eq!(style(None, false).format(&["ID".into(), "N".into()], &rows), "ID    N\nä     7\nlong  -\n");
    }
}
