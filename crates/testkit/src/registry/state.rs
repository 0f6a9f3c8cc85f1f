//! What a registry stores and is told to do.

use super::{
    content::Document,
    rules::{Fault, Login, RegistryRequest},
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};
use tokio::sync::watch;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    On,
    Off,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) login: Login,
    pub(super) blobs: HashMap<String, Vec<u8>>,
    /// By repository and name.
    pub(super) manifests: HashMap<String, Document>,
    /// By the last part of the path.
    pub(super) faults: HashMap<String, Fault>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            login: Login::Nobody,
            blobs: HashMap::new(),
            manifests: HashMap::new(),
            faults: HashMap::new(),
        }
    }
}

/// What the server has of the registry.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) origin: String,
    pub(super) state: Arc<Mutex<State>>,
    pub(super) requests: watch::Sender<Vec<RegistryRequest>>,
    pub(super) held: watch::Sender<Hold>,
}
