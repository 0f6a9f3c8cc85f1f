//! The terminals of one session, each id once.

use super::{limits::READERS_MAX, pty::Terminal};
use crate::error::Error;
use rpc::v1::{self, ErrorCode};
use std::sync::Arc;
use tokio::sync::{Mutex, MutexGuard};

/// The terminals of one session, oldest first. The lock is taken before those of the session, and held while a sandbox
/// starts.
#[derive(Debug, Default)]
pub struct Registry(Mutex<Vec<Arc<Terminal>>>);

impl Registry {
    /// Gives the terminals for as long as one is started.
    pub(crate) async fn lock(&self) -> MutexGuard<'_, Vec<Arc<Terminal>>> {
        self.0.lock().await
    }

    /// Finds a terminal.
    ///
    /// # Errors
    /// `terminal_unknown`.
    pub async fn get(&self, id: &str) -> Result<Arc<Terminal>, Error> {
        find(&self.0.lock().await, id).ok_or_else(|| unknown(id))
    }

    /// Finds a terminal for another reader.
    ///
    /// # Errors
    /// `terminal_unknown`, `terminals_too_many`.
    pub async fn get_for_reader(&self, id: &str) -> Result<Arc<Terminal>, Error> {
        let terminal = self.get(id).await?;
        if terminal.state.receiver_count() >= READERS_MAX {
            let text = format!("the terminal already has {READERS_MAX} readers");
            return Err(Error::refused(ErrorCode::TerminalsTooMany, text));
        }
        Ok(terminal)
    }

    pub async fn list(&self) -> Vec<v1::Terminal> {
        self.0.lock().await.iter().map(|terminal| terminal.info()).collect()
    }

    /// Removes a terminal and returns it, so that the caller can end it.
    ///
    /// # Errors
    /// `terminal_unknown`.
    pub async fn remove(&self, id: &str) -> Result<Arc<Terminal>, Error> {
        let mut terminals = self.0.lock().await;
        let found = find(&terminals, id).ok_or_else(|| unknown(id))?;
        terminals.retain(|terminal| !Arc::ptr_eq(terminal, &found));
        Ok(found)
    }

    /// Removes all of them; their sandbox has ended.
    pub async fn clear(&self) {
        self.0.lock().await.clear();
    }
}

/// Finds a terminal among `terminals`.
pub(crate) fn find(terminals: &[Arc<Terminal>], id: &str) -> Option<Arc<Terminal>> {
    terminals.iter().find(|terminal| terminal.state.borrow().info.id == id).cloned()
}

fn unknown(id: &str) -> Error {
    Error::refused(ErrorCode::TerminalUnknown, format!("the session has no terminal {id:?}"))
}
