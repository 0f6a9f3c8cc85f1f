//! The session that a call is about.

use super::{fence::EffectPermit, state::Session};
use crate::{error::Error, running::guard::SandboxGuard};
use std::sync::Arc;

/// The session that a call is about.
#[derive(Debug, Clone)]
pub struct Caller {
    pub session: Arc<Session>,
    /// The session whose workspace it works in; often the same.
    pub root: Arc<Session>,
    /// The epoch of the loop that calls. Gateways have none.
    pub epoch: Option<u64>,
    /// The opening of the workspace that the caller knows; `None`: any.
    pub opening: Option<u32>,
}

impl Caller {
    /// Refuses a workspace of another opening than the one that the caller knows: an old copy that appeared again.
    ///
    /// # Errors
    /// `workspace_missing`; those of the file system.
    pub async fn check_opening(&self) -> Result<(), Error> {
        match self.opening {
            Some(_) => self.root.find_workspace().await?.map_or(Ok(()), |meta| meta.require(self.opening)),
            None => Ok(()),
        }
    }

    /// Gives the session's sandbox, which is started if it does not run; see [`Session::enter`].
    ///
    /// # Errors
    /// Those of [`Session::enter`].
    pub async fn enter(&self) -> Result<SandboxGuard, Error> {
        self.session.enter(&self.root).await
    }

    /// Starts the session's sandbox for a call that may follow; see [`Session::start`].
    ///
    /// # Errors
    /// Those of [`Session::start`].
    pub async fn start(&self) -> Result<(), Error> {
        self.session.start(&self.root).await
    }

    /// Gives the right to have an effect now; see [`Session::hold`].
    ///
    /// # Errors
    /// `epoch_stale`.
    pub async fn hold(&self) -> Result<EffectPermit<'_>, Error> {
        self.session.hold(self.epoch.unwrap_or_default()).await
    }
}
