//! Trees of sessions: a root and its subtasks, how they are locked, what the parents and children tell each other, and the
//! budget that they share.

pub mod answers;
pub mod budget;
pub mod children;
pub mod family;
