//! Columns of text that fit the room they have: the widest are cut, and those that tell least are left out.

use super::screen::{fit, width};

/// What stands between two columns.
const GAP: &str = "  ";

pub struct Column {
    head: &'static str,
    cells: Vec<String>,
    /// To how much it may be cut; none if half of it would be of no use.
    least: Option<usize>,
    /// Where there is no room, the column of the largest rank is left out first; of rank 0 none is.
    rank: u8,
}

impl Column {
    pub fn new(head: &'static str, rank: u8, cells: Vec<String>) -> Self {
        Self {
            head,
            cells,
            least: None,
            rank,
        }
    }

    /// It may be cut to so many columns of the terminal.
    pub fn cut_to(self, least: usize) -> Self {
        Self {
            least: Some(least),
            ..self
        }
    }

    /// It is the first to be left out if there is nothing in it but this text.
    pub fn unless_all(self, text: &str) -> Self {
        let says_nothing = self.cells.iter().all(|cell| cell == text);
        Self {
            rank: if says_nothing { u8::MAX } else { self.rank },
            ..self
        }
    }

    fn width(&self) -> usize {
        let cells = self.cells.iter().map(|cell| width(cell));
        cells.max().unwrap_or(0).max(self.head.len())
    }
}

/// A line of heads and one for each row; in so much room, or as much as it takes.
pub fn render(mut columns: Vec<Column>, room: Option<usize>) -> String {
    let widths = loop {
        let natural: Vec<usize> = columns.iter().map(Column::width).collect();
        let Some(room) = room else { break natural };
        let out = columns.iter().map(|column| column.rank).enumerate();
        // The last of several of one rank.
        let out = out.max_by_key(|(_, rank)| *rank);
        let out = out.filter(|(_, rank)| *rank > 0);
        let says_nothing = out.is_some_and(|(_, rank)| rank == u8::MAX);
        if total(&natural) <= room {
            break natural;
        }
        if !says_nothing && let Some(widths) = widths_within(&columns, room) {
            break widths;
        }
        match out {
            Some((at, _)) => drop(columns.remove(at)),
            None => break columns.iter().map(least).collect(),
        }
    };
    let rows = columns.first().map_or(0, |column| column.cells.len());
    let mut text = String::new();
    for row in 0..=rows {
        let mut line = String::new();
        for (column, &width) in columns.iter().zip(&widths) {
            let cell = match row.checked_sub(1) {
                None => column.head,
                Some(row) => &column.cells[row],
            };
            let cell = fit(cell, width);
            let blanks = width - self::width(&cell);
            line += &cell;
            line += &" ".repeat(blanks);
            line += GAP;
        }
        let line = line.trim_end();
        text += &room.map_or_else(|| line.to_owned(), |room| fit(line, room));
        text.push('\n');
    }
    text
}

fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1)
}

fn least(column: &Column) -> usize {
    let natural = column.width();
    column.least.map_or(natural, |least| least.min(natural))
}

/// The widths with which the columns fit: those that may be cut are as wide as the widest of them can be. None if they do
/// not fit even so.
fn widths_within(columns: &[Column], room: usize) -> Option<Vec<usize>> {
    let least: Vec<usize> = columns.iter().map(least).collect();
    let cut = |most: usize| -> Vec<usize> {
        let width = |(column, least): (&Column, &usize)| match column.least {
            Some(_) => most.clamp(*least, column.width()),
            None => *least,
        };
        columns.iter().zip(&least).map(width).collect()
    };
    let mut widths = (0..=room)
        .rev()
        .map(cut)
        .find(|widths| total(widths) <= room)?;
    // Of what is left over by this, one for each.
    let mut left = room - total(&widths);
    for (column, width) in columns.iter().zip(&mut widths) {
        if left > 0 && column.least.is_some() && *width < column.width() {
            *width += 1;
            left -= 1;
        }
    }
    Some(widths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> Vec<Column> {
        let cells = |cells: &[&str]| cells.iter().map(|&cell| cell.to_owned()).collect();
        vec![
            Column::new("NAME", 0, cells(&["deploy", "漢字"])).cut_to(4),
            Column::new("PID", 2, cells(&["812", "7"])),
            Column::new("LEFT", 1, cells(&["-", "-"])).unless_all("-"),
            Column::new("COMMAND", 1, cells(&["./deploy.sh --all", "-"])).cut_to(8),
        ]
    }

    #[test]
    fn a_table_with_room_is_as_wide_as_its_cells() {
        let text = "NAME    PID  LEFT  COMMAND\n\
                    deploy  812  -     ./deploy.sh --all\n\
                    漢字    7    -     -\n";
        for room in [None, Some(200), Some(36)] {
            assert_eq!(render(columns(), room), text);
        }
    }

    #[test]
    fn a_table_without_room_loses_what_says_nothing_and_is_cut_then() {
        assert_eq!(
            render(columns(), Some(35)),
            "NAME    PID  COMMAND\n\
             deploy  812  ./deploy.sh --all\n\
             漢字    7    -\n"
        );
        assert_eq!(
            render(columns(), Some(24)),
            "NAME    PID  COMMAND\n\
             deploy  812  ./deploy.s…\n\
             漢字    7    -\n"
        );
        assert_eq!(
            render(columns(), Some(18)),
            "NAME    COMMAND\n\
             deploy  ./deploy.…\n\
             漢字    -\n"
        );
        assert_eq!(render(columns(), Some(5)), "NAME\ndepl…\n漢字\n");
    }

    #[test]
    fn no_line_of_a_table_is_wider_than_its_room() {
        for room in 0..60 {
            for line in render(columns(), Some(room)).lines() {
                assert!(width(line) <= room, "{room}: {line}");
            }
        }
    }
}
