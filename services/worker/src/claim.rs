//! Decides which sessions run on this worker, and for how long: finding work, taking sessions, the worker's lease, and handing
//! sessions over. `turn` runs the loop of a session. `warm_ups` hears of sessions that have no work yet.

mod claimer;
mod drain;
mod handover;
pub(crate) mod lease;
mod nudges;
mod orphans;
mod rebuild;
pub(crate) mod run;
mod sweep;
mod warm_ups;
