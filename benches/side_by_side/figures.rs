//! What was measured, as the rows of a table: amounts, their ratio, and the target where there is one.

use std::fmt;
use std::time::Duration;

/// What is compared. All of them are the better the smaller they are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    Time(Duration),
    Kibibytes(u64),
    Count(usize),
}

impl Amount {
    #[expect(clippy::cast_precision_loss, reason = "for ratios of two digits")]
    fn value(self) -> f64 {
        match self {
            Self::Time(time) => time.as_secs_f64(),
            Self::Kibibytes(size) => size as f64,
            Self::Count(count) => count as f64,
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(time) if time.as_secs() > 0 => write!(to, "{:.2} s", time.as_secs_f64()),
            Self::Time(time) => write!(to, "{:.2} ms", time.as_secs_f64() * 1000.0),
            Self::Kibibytes(size) => write!(to, "{size} KiB"),
            Self::Count(count) => write!(to, "{count}"),
        }
    }
}

/// What an amount is to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// Nothing was promised.
    None,
    /// At most this many times the other's.
    Ratio(f64),
    AtMost(Amount),
}

impl Target {
    fn is_reached(self, figure: &Figure) -> Option<bool> {
        match self {
            Self::None => None,
            Self::Ratio(most) => Some(figure.tenure.value() <= most * figure.other?.1.value()),
            Self::AtMost(most) => Some(figure.tenure.value() <= most.value()),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => write!(to, "-"),
            Self::Ratio(most) => write!(to, "ratio at most {most:.1}"),
            Self::AtMost(Amount::Count(0)) => write!(to, "none"),
            Self::AtMost(most) => write!(to, "at most {most}"),
        }
    }
}

/// One thing that was measured.
#[derive(Clone, Debug)]
pub struct Figure {
    pub what: String,
    /// How often it was measured.
    pub runs: usize,
    /// What tenure is compared with, and its amount.
    pub other: Option<(&'static str, Amount)>,
    pub tenure: Amount,
    pub target: Target,
}

#[derive(Clone, Debug)]
pub enum Row {
    Figure(Figure),
    NotMeasured { what: String, why: String },
}

impl Row {
    pub fn not_measured(what: &str, why: &str) -> Self {
        Self::NotMeasured {
            what: what.to_owned(),
            why: why.to_owned(),
        }
    }

    fn cells(&self) -> [String; 7] {
        let nothing = || "-".to_owned();
        match self {
            Self::Figure(figure) => {
                let ratio = figure
                    .other
                    .map(|(_, other)| figure.tenure.value() / other.value());
                [
                    figure.what.clone(),
                    figure.runs.to_string(),
                    figure
                        .other
                        .map_or_else(nothing, |(name, amount)| format!("{name}: {amount}")),
                    figure.tenure.to_string(),
                    // Of two nothings there is no ratio.
                    ratio
                        .filter(|ratio| ratio.is_finite())
                        .map_or_else(nothing, |ratio| format!("{ratio:.2}")),
                    figure.target.to_string(),
                    match figure.target.is_reached(figure) {
                        Some(true) => "yes".to_owned(),
                        Some(false) => "**no**".to_owned(),
                        None => nothing(),
                    },
                ]
            }
            Self::NotMeasured { what, why } => {
                // Whatever a program said must not end the row.
                let why = why.replace('\n', " ").replace('|', "\\|");
                let mut cells = std::array::from_fn(|_| nothing());
                cells[0] = format!("{what}: not measured: {why}");
                cells
            }
        }
    }
}

/// All of it, in Markdown.
pub fn table(rows: &[Row]) -> String {
    let heads = [
        "what", "runs", "against", "tenure", "ratio", "target", "reached",
    ];
    let mut lines = vec![heads.map(str::to_owned), heads.map(|_| "---".to_owned())];
    lines.extend(rows.iter().map(Row::cells));
    let lines: Vec<String> = lines
        .iter()
        .map(|cells| format!("| {} |", cells.join(" | ")))
        .collect();
    lines.join("\n")
}

/// Times of two things, of which the one is measured against the other.
#[derive(Debug, Default)]
pub struct Times {
    pub other: Vec<Duration>,
    pub tenure: Vec<Duration>,
}

impl Times {
    /// A row for this percentile; 50 is the median.
    pub fn row(&self, what: &str, other: &'static str, percent: usize, target: Target) -> Row {
        let name = match percent {
            50 => "median".to_owned(),
            _ => format!("{percent}th percentile"),
        };
        Row::Figure(Figure {
            what: format!("{what}, {name}"),
            runs: self.tenure.len(),
            other: Some((other, Amount::Time(percentile(&self.other, percent)))),
            tenure: Amount::Time(percentile(&self.tenure, percent)),
            target,
        })
    }
}

/// Nearest rank. There must be at least one.
pub fn percentile<T: Ord + Copy>(values: &[T], percent: usize) -> T {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1]
}
