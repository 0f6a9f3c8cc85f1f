//! Trees of sessions: a root and its subtasks, the order of their locks, the messages between parents and children,
//! the common budget, and the ledger of their cost.

pub mod answers;
pub mod budget;
pub mod children;
pub mod family;
pub mod ledger;
