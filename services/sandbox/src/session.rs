//! The sessions of this machine. `state` is one session, `fence` keeps stale callers out of it, `guard` keeps its sandbox
//! alive, `caller` is the session that a call is about, `shared` is what all sessions share, and `registry` holds them.

pub mod caller;
pub mod fence;
pub mod guard;
pub mod registry;
pub mod shared;
pub mod state;
