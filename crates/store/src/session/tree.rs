//! Trees of sessions: a root and its subtasks, the order of their locks, the messages between parents and children,
//! and the common budget.

pub mod answers;
pub mod budget;
pub mod children;
pub mod family;
