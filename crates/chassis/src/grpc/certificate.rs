//! The certificate of a port. Operators replace its files while the service runs, so each new connection gets the pair that is in the files then.

use super::{
    file_content::FileContent,
    tls::{HTTP1, HTTP2, ServerCertificate},
};
use crate::error::Error;
use futures::{Stream, StreamExt as _};
use rustls::ServerConfig;
use std::{future, io, sync::Arc, time::Duration};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tonic::transport::server::TcpIncoming;

/// Time that a client has for its handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Handshakes of one port at the same time: each holds some 30 KiB for at most ten seconds. Further connections wait. Only our own services reach this
/// port, so one bound serves all of them.
const HANDSHAKES_MAX: usize = 1_024;

/// The certificate and the key that a port uses.
#[derive(Debug)]
pub struct PortCertificate {
    files: ServerCertificate,
    protocols: &'static [&'static [u8]],
    /// A new configuration remembers no sessions, so no client resumes one of the certificate before.
    config: FileContent<Arc<ServerConfig>>,
}

impl PortCertificate {
    /// Reads the files, for a port of gRPC.
    ///
    /// # Errors
    /// `Io` if a file cannot be read, `Pem` if it has no certificate or key, `Certificate` if the two do not belong together.
    pub fn read(files: ServerCertificate) -> Result<Self, Error> {
        Self::with_protocols(files, &[HTTP2])
    }

    /// Reads the files, for a port of HTTP/1 and HTTP/2.
    ///
    /// # Errors
    /// Those of [`PortCertificate::read`].
    pub fn read_for_http(files: ServerCertificate) -> Result<Self, Error> {
        Self::with_protocols(files, &[HTTP2, HTTP1])
    }

    fn with_protocols(files: ServerCertificate, protocols: &'static [&'static [u8]]) -> Result<Self, Error> {
        let both = vec![files.certificate.clone(), files.key.clone()];
        let config = FileContent::read(both, || files.config(protocols).map(Arc::new))?;
        Ok(Self { files, protocols, config })
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

    /// Makes a connection with TLS.
    ///
    /// # Errors
    /// The handshake fails.
    pub(crate) async fn encrypt(self: Arc<Self>, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        // It may read the files again.
        let config = tokio::task::spawn_blocking(move || self.current()).await.map_err(io::Error::other)?;
        TlsAcceptor::from(config).accept(stream).await
    }

    /// Returns what the files say now, or what they said when they could be used last.
    fn current(&self) -> Arc<ServerConfig> {
        self.config.current(|| self.files.config(self.protocols).map(Arc::new))
    }
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
    let accepted = tokio::time::timeout(HANDSHAKE, certificate.encrypt(stream)).await.ok()?;
    accepted.inspect_err(|error| tracing::debug!("a handshake of TLS failed: {error}")).ok().map(Ok)
}
