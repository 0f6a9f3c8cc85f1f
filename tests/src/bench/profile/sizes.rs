//! How much is counted.

#[derive(Debug, Clone)]
pub struct Sizes {
    /// Sessions of each shape, one after the other.
    pub sessions: usize,
    /// Short sessions whose CPU time is measured.
    pub crowd: usize,
    /// How many of them run at once.
    pub at_once: usize,
    /// Files of the repository of sessions that have some.
    pub files: usize,
}

impl Sizes {
    /// Enough that work in the background does not show.
    pub fn full() -> Self {
        Self { sessions: 40, crowd: 800, at_once: 16, files: 2_000 }
    }

    /// Shows that it works, and that no transaction was added.
    pub fn smoke() -> Self {
        Self { sessions: 3, crowd: 4, at_once: 2, files: 3 }
    }
}
