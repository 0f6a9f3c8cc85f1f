//! The sessions of this machine. `state` is one session, `fence` keeps stale callers out of it, `caller` is the session that a call is about, `places` are those of sandboxes
//! and `slots` the user ids of workspaces, `doors` lead to the network, `opening` says what the opening of files brings,
//! `shared` is what all sessions share, `registry` holds them,
//! and `inventory` lists what the disk has of them.

pub mod caller;
pub mod doors;
pub mod draft;
pub mod fence;
pub mod inventory;
pub mod opening;
pub mod places;
pub mod registry;
pub mod shared;
pub mod slots;
pub mod state;
