//! The lines as the rows of the model have them: what the program's own `rules::queue` asks is answered here, or with a flaw
//! answered wrong.

use std::convert::Infallible;
use std::ops::ControlFlow;

use tenure::lock::{Mode, Standing};
use tenure::rules::queue::{Lines, Order};

use super::Flaw;
use super::scene::{Kernel, Scene};
use super::world::Row;

/// The rows, as whoever sees these bytes locked.
pub struct Line<'a> {
    pub scene: &'a Scene<'a>,
    pub kernel: &'a Kernel,
}

impl Line<'_> {
    fn seen(&self, row: Row) -> (Row, Standing) {
        let terms = self.scene.terms(&row);
        (row, self.scene.standing(&row, &terms, self.kernel))
    }
}

impl Lines for Line<'_> {
    /// A lock's bit.
    type Name = u8;
    type Ticket = (Row, Standing);
    type Error = Infallible;

    fn place(&self, (row, _): &(Row, Standing)) -> i64 {
        i64::from(row.id)
    }

    fn mode(&self, (row, _): &(Row, Standing)) -> Mode {
        self.scene.script_of(row).mode
    }

    fn standing(&self, (_, standing): &(Row, Standing)) -> Standing {
        *standing
    }

    fn ahead(
        &self,
        name: &u8,
        place: i64,
        order: Order,
        visit: &mut dyn FnMut((Row, Standing)) -> ControlFlow<()>,
    ) -> Result<(), Infallible> {
        let rows = &self.scene.world.rows;
        let ahead = rows
            .iter()
            .filter(|row| i64::from(row.id) < place && self.scene.script_of(row).names & name != 0);
        let mut ahead: Vec<Row> = ahead.copied().collect();
        if order == Order::NearestFirst {
            ahead.reverse();
        }
        if order == Order::SlotsHeadFirst {
            if self.scene.has(Flaw::CountsSlotsUpToTheFirst) {
                ahead.drain(..ahead.len().saturating_sub(1));
            }
            ahead.retain(|row| matches!(self.scene.script_of(row).mode, Mode::Slots(_)));
        }
        for row in ahead {
            let seen = self.seen(row);
            let is_over = seen.1.is_over();
            let is_last = !is_over && self.scene.has(Flaw::LooksAtTheNearestOnly);
            if visit(seen).is_break() || is_last {
                break;
            }
        }
        Ok(())
    }

    fn slots(&self, names: &[u8]) -> Result<Vec<u32>, Infallible> {
        let rows = self.scene.world.rows.iter().filter(|row| row.is_held);
        let rows = rows.filter(|row| {
            let mut names = names.iter();
            names.any(|name| self.scene.script_of(row).names & name != 0)
        });
        let living = rows.filter(|row| !self.seen(**row).1.is_over());
        Ok(living.map(|row| u32::from(row.slot)).collect())
    }
}
