//! The certificate of a port. Operators replace its files while the service runs, so each new connection gets the pair that is in the files then.

use super::tls::ServerCertificate;
use crate::{error::Error, lock};
use futures::{Stream, StreamExt as _};
use rustls::ServerConfig;
use std::{
    fs, future, io,
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tonic::transport::server::TcpIncoming;

/// Time that a client has for its handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Handshakes of one port at the same time: each holds some 30 KiB for at most ten seconds. Further connections wait. Only our own services reach this
/// port, so one bound serves all of them.
const HANDSHAKES_MAX: usize = 1_024;

/// The certificate and the key that a port uses, and the files that they are from.
#[derive(Debug)]
pub struct PortCertificate {
    files: ServerCertificate,
    current: Mutex<Pair>,
}

#[derive(Debug)]
struct Pair {
    config: Arc<ServerConfig>,
    /// The files that `config` is from.
    version: FilesVersion,
    /// The files that cannot be used and that the log has named.
    refused: Option<FilesVersion>,
}

/// What changes when the certificate or the key is replaced.
type FilesVersion = [Option<FileVersion>; 2];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileVersion {
    inode: u64,
    bytes: u64,
    modified_at: Option<SystemTime>,
}

impl FileVersion {
    fn find(file: &Path) -> Option<Self> {
        let metadata = fs::metadata(file).ok()?;
        Some(Self { inode: metadata.ino(), bytes: metadata.len(), modified_at: metadata.modified().ok() })
    }
}

impl PortCertificate {
    /// Reads the files.
    ///
    /// # Errors
    /// `Io` if a file cannot be read, `Pem` if it has no certificate or key, `Certificate` if the two do not belong together.
    pub fn read(files: ServerCertificate) -> Result<Self, Error> {
        let version = version(&files);
        let config = Arc::new(files.config()?);
        Ok(Self { files, current: Mutex::new(Pair { config, version, refused: None }) })
    }

    /// Turns connections into connections with TLS, and leaves out those that fail in their handshake.
    pub(super) fn accept(
        self,
        incoming: TcpIncoming,
    ) -> impl Stream<Item = io::Result<TlsStream<TcpStream>>> {
        let certificate = Arc::new(self);
        incoming
            .map(move |stream| handshake(Arc::clone(&certificate), stream))
            .buffer_unordered(HANDSHAKES_MAX)
            .filter_map(future::ready)
    }

    /// Returns what the files say now, or what they said when they could be used last.
    fn current(&self) -> Arc<ServerConfig> {
        let mut current = lock(&self.current);
        // The version is older than what is read, so a change between the two makes the next connection read again.
        let version = version(&self.files);
        if version == current.version {
            return Arc::clone(&current.config);
        }
        let file = self.files.certificate.display();
        match self.files.config() {
            Ok(config) => {
                tracing::info!("the port uses the certificate that {file} has now");
                // A new configuration remembers no sessions, so no client resumes one of the certificate before.
                *current = Pair { config: Arc::new(config), version, refused: None };
            }
            // The operator may have written only one of the files yet, so each connection reads them until they fit.
            Err(error) if current.refused != Some(version) => {
                let error = anyhow::Error::new(error);
                tracing::warn!(
                    "the port keeps its certificate, because the new {file} and its key cannot be used: {error:#}"
                );
                current.refused = Some(version);
            }
            Err(_) => {}
        }
        Arc::clone(&current.config)
    }
}

fn version(files: &ServerCertificate) -> FilesVersion {
    [FileVersion::find(&files.certificate), FileVersion::find(&files.key)]
}

/// Makes one connection; `None` if its client does not finish the handshake.
async fn handshake(
    certificate: Arc<PortCertificate>,
    stream: io::Result<TcpStream>,
) -> Option<io::Result<TlsStream<TcpStream>>> {
    let stream = match stream {
        Ok(stream) => stream,
        Err(error) => return Some(Err(error)),
    };
    let accept = async {
        let config =
            tokio::task::spawn_blocking(move || certificate.current()).await.map_err(io::Error::other)?;
        TlsAcceptor::from(config).accept(stream).await
    };
    let accepted = tokio::time::timeout(HANDSHAKE, accept).await.ok()?;
    accepted.inspect_err(|error| tracing::debug!("a handshake of TLS failed: {error}")).ok().map(Ok)
}
