//! What the sections wrote, and what must be true of it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use crate::bench::{Fault, MEASURED, Window};

/// A section that began.
#[derive(Clone, Debug)]
pub struct Section {
    pub id: u64,
    pub began: i64,
    /// None where it was killed.
    pub ended: Option<i64>,
    /// Of the innermost lease.
    pub fence: i64,
    /// Each lock, and how it is held: capital letters are for those of a lease around that one.
    pub holds: Vec<(String, char)>,
}

impl Section {
    /// Whether their own leases exclude each other.
    fn conflicts_on(&self, other: &Self, name: &str) -> bool {
        let how = |section: &Self| {
            section
                .holds
                .iter()
                .find(|hold| hold.0 == name)
                .map(|hold| hold.1)
        };
        match (how(self), how(other)) {
            (None | Some('X'), _) | (_, None | Some('X')) => false,
            (Some(own), Some(its)) => own == 'x' || own != its,
        }
    }

    fn conflicts(&self, other: &Self) -> bool {
        self.holds
            .iter()
            .any(|(name, _)| self.conflicts_on(other, name))
    }
}

/// A ticket that was seen standing in the line, and when it was first.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub ticket: i64,
    pub at: i64,
}

#[derive(Default)]
pub struct History {
    read: u64,
    rest: String,
    pub sections: Vec<Section>,
    places: HashMap<u64, usize>,
    pub overlaps: Vec<String>,
}

impl History {
    /// Reads what was written since the last time.
    pub fn read_on(&mut self, path: &Path) {
        let mut file = File::open(path).expect("it was made");
        file.seek(SeekFrom::Start(self.read)).expect("a file");
        let mut bytes = Vec::new();
        let count = file.read_to_end(&mut bytes).expect("a file");
        self.read += count as u64;
        self.rest += &String::from_utf8(bytes).expect("the sections write text");
        while let Some((line, rest)) = self.rest.split_once('\n') {
            let (line, rest) = (line.to_owned(), rest.to_owned());
            self.take(&line);
            self.rest = rest;
        }
    }

    fn take(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |index: usize| words[index].parse::<i64>().expect("a number");
        let id = u64::try_from(number(2)).expect("it was one");
        match words[0] {
            "E" => {
                let hold = |spec: &&str| {
                    let (name, how) = spec.rsplit_once('/').expect("a spec");
                    (name.to_owned(), how.chars().next().expect("a spec"))
                };
                self.places.insert(id, self.sections.len());
                self.sections.push(Section {
                    id,
                    began: number(1),
                    ended: None,
                    fence: number(3),
                    holds: words[4..].iter().map(hold).collect(),
                });
            }
            "L" => self.sections[self.places[&id]].ended = Some(number(1)),
            _ => self.overlaps.push(line.to_owned()),
        }
    }

    /// An overlap, with all who were at work on any of its locks within a few seconds, and what they did.
    pub fn around(&self, overlap: &str, deeds: &HashMap<u64, String>) -> String {
        let words: Vec<&str> = overlap.split(' ').collect();
        let at: i64 = words[1].parse().expect("a number");
        let name = words[3].split('/').next().expect("a spec");
        let is_near = |section: &&Section| {
            (section.began - at).abs() < 10_000_000_000
                && section.holds.iter().any(|hold| hold.0 == name)
        };
        let mut text = format!("{overlap}\n");
        for section in self.sections.iter().filter(is_near) {
            let deeds = deeds.get(&section.id).map_or("", String::as_str);
            let (began, ended) = (section.began, section.ended);
            let ended = ended.map_or(-1, |ended| ended / 1_000_000);
            let _ = writeln!(
                text,
                "    {} fence {} from {} to {ended}: {deeds}",
                section.id,
                section.fence,
                began / 1_000_000,
            );
        }
        text
    }

    /// Whether a section has begun, and whether it has ended.
    pub fn has(&self, id: u64) -> (bool, bool) {
        let section = self.places.get(&id).map(|place| &self.sections[*place]);
        (
            section.is_some(),
            section.is_some_and(|section| section.ended.is_some()),
        )
    }

    /// No number is given twice, and of two that exclude each other the later has the larger.
    pub fn wrong_fences(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut known = HashSet::new();
        let mut largest: BTreeMap<(&str, char), i64> = BTreeMap::new();
        let mut sections: Vec<&Section> = self.sections.iter().collect();
        sections.sort_by_key(|section| section.began);
        for section in sections {
            if !known.insert(section.fence) {
                wrong.push(format!("fence {} was given twice", section.fence));
            }
            for (name, how) in section.holds.iter().filter(|(_, how)| *how != 'X') {
                let others = ['x', 's', 'n'].into_iter();
                let others = others.filter(|other| *how == 'x' || other != how);
                for other in others {
                    let before = largest.get(&(name.as_str(), other));
                    if before.is_some_and(|before| *before > section.fence)
                        && section.holds.len() == 1
                    {
                        wrong.push(format!(
                            "{section:?} has a smaller fence than one before it"
                        ));
                    }
                }
                let own = largest.entry((name, *how)).or_default();
                *own = section.fence.max(*own);
            }
        }
        wrong
    }

    /// Of two that exclude each other and were seen in the line, the one that stood before the other has the smaller fence.
    pub fn overtaken(&self, in_line: &HashMap<u64, Seen>) -> (usize, Vec<String>) {
        let ticket = |section: &Section| Some(in_line.get(&section.id)?.ticket);
        let mut placed: Vec<(i64, &Section)> = self
            .sections
            .iter()
            .filter_map(|section| Some((ticket(section)?, section)))
            .collect();
        placed.sort_by_key(|(ticket, _)| *ticket);
        let mut wrong = Vec::new();
        for (index, (_, later)) in placed.iter().enumerate() {
            // So far apart nobody stands in one line.
            for (_, earlier) in &placed[index.saturating_sub(200)..index] {
                if earlier.conflicts(later) && earlier.fence > later.fence {
                    wrong.push(format!("{later:?} overtook {earlier:?}"));
                }
            }
        }
        (placed.len(), wrong)
    }

    /// The times, in nanoseconds, from the end of a measured section to the begin of the next one, which stood in the line
    /// already, where nobody was stopped and nothing was held up meanwhile.
    pub fn gaps(&self, in_line: &HashMap<u64, Seen>, windows: &[Window]) -> Vec<i64> {
        let mut sections: Vec<&Section> = self
            .sections
            .iter()
            .filter(|section| section.holds[0].0 == MEASURED)
            .collect();
        sections.sort_by_key(|section| section.began);
        let slow = [
            Fault::Stop,
            Fault::StopCommand,
            Fault::HoldDatabase,
            Fault::FillDisk,
            Fault::Force,
        ];
        let mut gaps = Vec::new();
        for pair in sections.windows(2) {
            let (Some(ended), began) = (pair[0].ended, pair[1].began) else {
                continue;
            };
            let Some(first) = in_line.get(&pair[1].id) else {
                continue;
            };
            let from = ended.max(first.at);
            let is_disturbed = windows.iter().any(|window| {
                slow.contains(&window.fault) && window.from <= began && window.to >= from
            });
            if !is_disturbed {
                gaps.push(began - from);
            }
        }
        gaps
    }
}
