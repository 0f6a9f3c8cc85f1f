//! What the handler of requests shares with the server.

use super::rules::{GitFault, GitRequest, LfsStore};
use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex},
};
use tokio::sync::watch;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    On,
    Off,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// `user:password`; `None`: everybody may read.
    pub(super) login: Option<String>,
    /// By the end of the path.
    pub(super) faults: HashMap<String, GitFault>,
    /// The objects of Git LFS by repository and name. Other repositories have no Git LFS.
    pub(super) lfs: HashMap<String, HashMap<String, Vec<u8>>>,
    /// Where they are read; `None`: at their repository.
    pub(super) lfs_store: Option<LfsStore>,
}

/// What the handler of requests has of the server.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) root: PathBuf,
    pub(super) state: Arc<Mutex<State>>,
    pub(super) requests: watch::Sender<Vec<GitRequest>>,
    pub(super) held: watch::Sender<Hold>,
}
