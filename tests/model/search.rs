//! The search: every world that can be reached, breadth first, so that the way to a mistake is the shortest.

use std::collections::{HashSet, VecDeque};
use std::fmt;

use super::Setting;
use super::scene::{Broken, Scene, Wrong};
use super::steps::NOBODY;
use super::world::World;

/// What the search has found.
pub struct Outcome {
    /// How many different worlds it has seen.
    pub worlds: usize,
    /// How many steps led to another world or back to one that was known.
    pub steps: usize,
    pub mistake: Option<Mistake>,
}

/// What is wrong, and how it comes to that.
pub struct Mistake {
    pub wrong: Wrong,
    setting: Setting,
    way: Vec<(u8, &'static str)>,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}: {}", self.wrong.what, self.wrong.who)?;
        for (number, script) in self.setting.scripts.iter().enumerate() {
            writeln!(f, "  {number} = {script:?}")?;
        }
        for (label, text) in &self.way {
            match label {
                &NOBODY => writeln!(f, "  - {text}")?,
                label => writeln!(f, "  {label} {text}")?,
            }
        }
        Ok(())
    }
}

/// The step by which a world was first reached, and from where.
struct Reached {
    from: usize,
    label: u8,
    text: &'static str,
}

struct Search<'a> {
    setting: &'a Setting,
    known: HashSet<Box<[u8]>>,
    reached: Vec<Reached>,
    steps: usize,
}

/// Goes to every world of a setting, up to the first mistake.
pub fn explore(setting: &Setting) -> Outcome {
    let mut search = Search {
        setting,
        known: HashSet::new(),
        reached: Vec::new(),
        steps: 0,
    };
    let mistake = search.run().err();
    Outcome {
        worlds: search.known.len(),
        steps: search.steps,
        mistake,
    }
}

impl Search<'_> {
    fn run(&mut self) -> Result<(), Mistake> {
        let (first, key) = World::new(self.setting).normalized();
        self.known.insert(key.clone().into());
        self.reached.push(Reached {
            from: 0,
            label: NOBODY,
            text: "",
        });
        let mut next = VecDeque::from([(first, key, 0)]);
        while let Some((world, own_key, at)) = next.pop_front() {
            let scene = Scene::new(world, self.setting);
            let steps = scene.steps();
            if !steps.iter().any(|step| step.is_own) {
                scene
                    .check_rest(steps.is_empty())
                    .map_err(|wrong| self.mistake(at, None, wrong))?;
            }
            for step in steps {
                self.steps += 1;
                let by = Some((step.label, step.text));
                let to = step.to.map_err(|wrong| self.mistake(at, by, wrong))?;
                let (to, key) = to.normalized();
                // Where a transaction is two steps, one that changes nothing is not one step.
                if step.is_own && !self.setting.splits && key == own_key {
                    let what = Broken::Spin;
                    let who = step.label.to_string();
                    return Err(self.mistake(at, by, Wrong { what, who }));
                }
                if self.known.insert(key.clone().into()) {
                    self.reached.push(Reached {
                        from: at,
                        label: step.label,
                        text: step.text,
                    });
                    next.push_back((to, key, self.reached.len() - 1));
                }
            }
        }
        Ok(())
    }

    fn mistake(&self, at: usize, last: Option<(u8, &'static str)>, wrong: Wrong) -> Mistake {
        let mut way: Vec<_> = last.into_iter().collect();
        let mut at = at;
        while at != 0 {
            let reached = &self.reached[at];
            way.push((reached.label, reached.text));
            at = reached.from;
        }
        way.reverse();
        Mistake {
            wrong,
            setting: self.setting.clone(),
            way,
        }
    }
}
