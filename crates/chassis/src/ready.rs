//! How a service announces its address: to its launcher by a file, to callers in the process by a channel.

use serde::{Deserialize, Serialize};
use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
};
use tokio::sync::watch;

/// The content of a ready file:
/// `{"role":"gateway","pid":7,"url":"http://127.0.0.1:4096","admin_url":"http://127.0.0.1:4097"}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// "gateway", "worker", "sandbox", …
    pub role: String,
    pub pid: u32,
    /// The service's address, `http://ADDRESS:PORT`.
    pub url: String,
    /// The address of health and metrics; empty inside another process.
    pub admin_url: String,
}

/// The service ended before it was ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the service ended before it was ready")]
pub struct NeverReady;

/// The service's half. Clones announce the same service.
#[derive(Debug, Clone)]
pub struct Sender {
    file: Option<PathBuf>,
    admin_url: String,
    ready: watch::Sender<Option<Ready>>,
}

#[derive(Debug, Clone)]
pub struct Receiver(watch::Receiver<Option<Ready>>);

/// Creates both halves, without a file.
pub fn channel() -> (Sender, Receiver) {
    let (sender, receiver) = watch::channel(None);
    (Sender { file: None, admin_url: String::new(), ready: sender }, Receiver(receiver))
}

impl Sender {
    /// Also writes `file` when the service is ready. Removes an old file of that name now.
    ///
    /// # Errors
    /// If the directory cannot be created or the old file cannot be removed.
    pub fn with_file(mut self, file: PathBuf) -> io::Result<Self> {
        if let Some(parent) = file.parent() {
            std::fs::create_dir_all(parent)?;
        }
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => self.file = Some(file),
        }
        Ok(self)
    }

    /// Adds the admin port to the announcement.
    #[must_use]
    pub fn with_admin_url(mut self, admin_url: String) -> Self {
        self.admin_url = admin_url;
        self
    }

    /// Announces that the service `role` answers over HTTP at `listen`. Call it when that is true.
    ///
    /// A failure to write the ready file is logged as an error; the launcher then reaches its own time limit.
    pub fn announce(&self, role: &str, listen: SocketAddr) {
        self.announce_url(role, format!("http://{listen}"));
    }

    /// Announces that the service `role` answers at `url`. Call it when that is true.
    ///
    /// A failure to write the ready file is logged as an error; the launcher then reaches its own time limit.
    pub fn announce_url(&self, role: &str, url: String) {
        let ready =
            Ready { role: role.to_owned(), pid: std::process::id(), url, admin_url: self.admin_url.clone() };
        tracing::info!("{role} answers at {}", ready.url);
        if let Some(file) = &self.file
            && let Err(error) = write(file, &ready)
        {
            tracing::error!("write the ready file {}: {error}", file.display());
        }
        self.ready.send_replace(Some(ready));
    }
}

impl Receiver {
    /// Waits until the service is ready. Cancel-safe; may be called again.
    ///
    /// # Errors
    /// [`NeverReady`] if the service ended before it was ready.
    pub async fn recv(&mut self) -> Result<Ready, NeverReady> {
        let ready = self.0.wait_for(Option::is_some).await.map_err(|_| NeverReady)?;
        ready.clone().ok_or(NeverReady)
    }
}

/// Writes a temporary file and renames it, so that a reader sees the whole file or none.
fn write(file: &Path, ready: &Ready) -> io::Result<()> {
    let temporary = file.with_extension(format!("{}.tmp", std::process::id()));
    std::fs::write(&temporary, serde_json::to_vec(ready)?)?;
    std::fs::rename(&temporary, file)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[tokio::test]
    async fn the_ready_file_and_the_channel_agree() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("sub/ready.json");
        let (sender, mut receiver) = channel();
        let sender = sender.with_file(file.clone()).unwrap().with_admin_url("http://127.0.0.1:2".to_owned());
        assert!(!file.exists());
        sender.announce("worker", "127.0.0.1:1".parse().unwrap());
        let ready = receiver.recv().await.unwrap();
        assert_eq!(ready.url, "http://127.0.0.1:1");
        assert_eq!(serde_json::from_slice::<Ready>(&std::fs::read(&file).unwrap()).unwrap(), ready);
    }

    #[tokio::test]
    async fn a_service_that_exits_early_is_reported() {
        let (sender, mut receiver) = channel();
        drop(sender);
        assert_eq!(receiver.recv().await, Err(NeverReady));
    }
}
