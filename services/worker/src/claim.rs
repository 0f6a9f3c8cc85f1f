//! Which sessions run on this worker, and for how long: finding work, taking sessions, the worker's lease, and handing sessions
//! over. What a loop does with its session is the business of `turn`.

mod claimer;
mod drain;
mod handover;
pub(crate) mod lease;
mod nudges;
mod orphans;
mod rebuild;
pub(crate) mod run;
mod sweep;
