//! The actions that a turn asks its worker for, one file for each.

pub(super) mod call;
pub(super) mod close;
pub(super) mod expect_call;
pub(super) mod fetch;
pub(super) mod finish;
pub(super) mod hand_over;
pub(super) mod look;
pub(super) mod park;
pub(super) mod perform;
pub(super) mod run_calls;
pub(super) mod stop;
pub(super) mod summarize;
