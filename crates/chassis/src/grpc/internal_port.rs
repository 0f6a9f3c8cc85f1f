//! A gRPC port that only our own services may reach: its address, its certificate and the tokens of its callers.

use super::{
    CONNECTION_WINDOW_BYTES, KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT, Plaintext, STREAM_WINDOW_BYTES,
    certificate::PortCertificate, tls::ServerCertificate, tokens::Tokens,
};
use crate::{error::Error, secret::Secret};
use std::{net::SocketAddr, path::PathBuf};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::transport::{
    Server,
    server::{Router, TcpIncoming},
};

/// The settings of such a port.
#[derive(Debug, Clone)]
pub struct InternalPort {
    /// The beginning of the names of its variables, such as `FLOTILLA_SANDBOX`.
    pub service: &'static str,
    pub listen: SocketAddr,
    /// PEM file with its certificate.
    pub tls_certificate: Option<PathBuf>,
    /// PEM file with the key of the certificate.
    pub tls_key: Option<PathBuf>,
    /// Where calls may travel without TLS.
    pub plaintext: Option<Plaintext>,
    /// The token that any caller may present.
    pub token: Option<Secret<String>>,
    /// The tokens of callers, each `name:token`.
    pub tokens: Vec<Secret<String>>,
}

impl InternalPort {
    /// Reads the certificate, if the port has TLS.
    ///
    /// # Errors
    /// Those of [`PortCertificate::read`].
    pub fn certificate(&self) -> Result<Option<PortCertificate>, Error> {
        let (Some(certificate), Some(key)) = (self.tls_certificate.clone(), self.tls_key.clone()) else {
            return Ok(None);
        };
        PortCertificate::read(ServerCertificate { certificate, key }).map(Some)
    }

    /// Returns the tokens of callers, and every problem of the settings, one sentence each.
    pub fn check(&self) -> (Tokens, Vec<String>) {
        let service = self.service;
        let (tokens, mut problems) = Tokens::read(service, self.token.as_ref(), &self.tokens);
        if self.tls_certificate.is_some() != self.tls_key.is_some() {
            problems.push(format!(
                "{service}_TLS_CERTIFICATE and {service}_TLS_KEY belong together; one of them is missing"
            ));
        }
        if self.plaintext.is_some() && self.tls_certificate.is_some() {
            problems.push(format!(
                "{service}_PLAINTEXT says that calls travel without TLS, but the port has a certificate; remove one of the two"
            ));
        }
        if !self.listen.ip().is_loopback() && self.plaintext.is_none() && self.tls_certificate.is_none() {
            problems.push(format!(
                "{service}_LISTEN is not a loopback address, and the port has no TLS: give it a certificate ({service}_TLS_CERTIFICATE), \
                 or have a mesh encrypt the calls and say so with {service}_PLAINTEXT=network"
            ));
        }
        (tokens, problems)
    }
}

/// Returns the server of such a port, without its services.
pub fn server() -> Server {
    Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
}

/// Serves the connections of `listener` until `shutdown`, with TLS if there is a certificate.
///
/// # Errors
/// The server fails.
pub async fn serve(
    router: Router,
    listener: TcpListener,
    certificate: Option<PortCertificate>,
    shutdown: CancellationToken,
) -> Result<(), tonic::transport::Error> {
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let shutdown = shutdown.cancelled_owned();
    // On the heap: either future is large.
    match certificate {
        Some(certificate) => {
            let incoming = certificate.accept(incoming);
            Box::pin(router.serve_with_incoming_shutdown(incoming, shutdown)).await
        }
        None => Box::pin(router.serve_with_incoming_shutdown(incoming, shutdown)).await,
    }
}
