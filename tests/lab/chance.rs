//! Numbers that look like chance, the same for the same seed: a run of the lab can be told to do again what it did. Of our
//! own, because a seed is to mean the same whatever the version of a library (the generator is Vigna's splitmix64).

pub struct Chance(u64);

impl Chance {
    /// One of many that go on apart, of the same seed.
    pub fn new(seed: u64, which: u64) -> Self {
        let mut chance = Self(seed ^ which.wrapping_mul(0xd1b5_4a32_d192_ed03));
        chance.draw();
        chance
    }

    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of `range`, whose end is not among them.
    pub fn between(&mut self, range: std::ops::Range<u64>) -> u64 {
        range.start + self.draw() % (range.end - range.start)
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.between(0..times) == 0
    }

    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        let index = self.between(0..all.len() as u64);
        &all[usize::try_from(index).expect("it is smaller than a length")]
    }
}
