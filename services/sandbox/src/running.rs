//! A sandbox in which a session runs something: `guard` keeps it from ending of idleness, and `start` is its beginning.

pub mod guard;
pub mod start;
