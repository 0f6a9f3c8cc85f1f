//! How much is counted.

/// The number of sessions.
#[derive(Debug, Clone)]
pub struct Sizes {
    /// Sessions of each shape.
    pub sessions: usize,
}

impl Sizes {
    /// Enough that work in the background does not show.
    pub fn full() -> Self {
        Self { sessions: 100 }
    }

    /// Shows that it works, and that no transaction was added.
    pub fn smoke() -> Self {
        Self { sessions: 3 }
    }
}
