//! Jobs: long work that is no conversation, such as showing the work of a session on an issue. Each has a row with an epoch, a mailbox and a time to wake, as a session has;
//! a pure state machine in `domain` decides, and a worker performs one action after the other. A job takes no slot, because it mostly waits for a forge.

mod error;
mod forge;
mod publication;
mod pull_request;
pub(crate) mod run;
