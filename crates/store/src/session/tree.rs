//! Trees of sessions: a root and its subtasks, how they are locked, what the parents and children tell each other, the
//! budget that they share, and the ledger of what they spent.

pub mod answers;
pub mod budget;
pub mod children;
pub mod family;
pub mod ledger;
