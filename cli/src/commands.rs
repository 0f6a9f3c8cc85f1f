//! The commands, one file each, and the arguments that several of them share.

pub(crate) mod admin;
pub(crate) mod audit;
pub(crate) mod config;
pub(crate) mod context;
pub(crate) mod environment;
pub(crate) mod github;
pub(crate) mod key;
pub(crate) mod migrate;
pub(crate) mod models;
pub(crate) mod program;
pub(crate) mod project;
pub(crate) mod requests;
pub(crate) mod secret;
pub(crate) mod session;
pub(crate) mod tenant;
pub(crate) mod worktree;
