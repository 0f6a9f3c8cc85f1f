//! TLS between our services: the certificate of a server, the check of its clients, and the words for a failed check.

use super::{authorities::FileAuthorities, pem};
use crate::error::Error;
use rustls::{CertificateError, ServerConfig};
use std::{io, path::PathBuf, sync::Arc};
use tonic::{
    Status,
    transport::{ClientTlsConfig, Endpoint},
};

/// The protocol inside TLS: gRPC needs HTTP/2, and clients refuse a server that does not name it.
pub(super) const HTTP2: &[u8] = b"h2";
/// What a port of our own speaks with other clients too.
pub(super) const HTTP1: &[u8] = b"http/1.1";

/// How a client checks the certificate of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerCheck {
    /// PEM file with the certificates of the CAs that sign the server's; `None`: those of the system. Each new connection uses what the file has then.
    pub ca: Option<PathBuf>,
    /// The name in the server's certificate; `None`: the host of the URL.
    pub server_name: Option<String>,
}

impl ServerCheck {
    /// Makes the connections of `endpoint` use TLS with this check.
    ///
    /// # Errors
    /// `Io` if the file of the CAs cannot be read, `Pem` if it has no certificate, `Address` if `url` has no name to check.
    pub(super) fn apply(&self, endpoint: Endpoint, url: &str) -> Result<Endpoint, Error> {
        let config = match &self.server_name {
            None => ClientTlsConfig::new(),
            Some(name) => ClientTlsConfig::new().domain_name(name),
        };
        let endpoint = match &self.ca {
            None => endpoint.tls_config(config.with_native_roots()),
            Some(file) => {
                let authorities = FileAuthorities::read(file.clone())?;
                endpoint.tls_config_with_verifier(config, Arc::new(authorities))
            }
        };
        endpoint.map_err(|source| Error::Address { url: url.to_owned(), source })
    }

    /// Whether it says anything, which is useless without TLS.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The certificate and the key of a server. Each is a PEM file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerCertificate {
    /// Its certificate, and those between it and the CA.
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl ServerCertificate {
    /// Reads both, for a port that speaks these protocols, the best first.
    ///
    /// # Errors
    /// `Io` if a file cannot be read, `Pem` if it has no certificate or key, `Certificate` if the two do not belong together.
    pub(super) fn config(&self, protocols: &[&[u8]]) -> Result<ServerConfig, Error> {
        crate::install_crypto();
        let (chain, private) = (pem::certificates(&self.certificate)?, pem::private_key(&self.key)?);
        let broken = |source| Error::Certificate {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            source,
        };
        let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, private);
        let mut config = config.map_err(broken)?;
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(config)
    }
}

/// Says why a call got no answer: what is wrong with the server's certificate, or else the text of the status.
pub fn explain(status: &Status) -> String {
    find_problem(status).unwrap_or_else(|| status.message().to_owned())
}

/// Says what is wrong with the certificate of the server that a call did not reach; `None`: nothing.
pub(crate) fn find_problem(status: &Status) -> Option<String> {
    std::error::Error::source(status).and_then(find).map(problem)
}

/// Finds the error of TLS below an error.
fn find<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        // An IO error leaves out the error that it wraps from its sources.
        next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        };
    }
    None
}

fn problem(error: &rustls::Error) -> String {
    let remedy = match error {
        rustls::Error::InvalidCertificate(problem) => match problem {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired; give it a new one"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate is not valid yet; compare the clocks of the machines"
            }
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "its certificate is not from a CA that this process trusts; name its CA (for the sandbox: FLOTILLA_SANDBOX_CA)"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "its certificate is for another name; use that name in its URL, or say it (for the sandbox: FLOTILLA_SANDBOX_SERVER_NAME)"
            }
            _ => "its certificate is not accepted",
        },
        rustls::Error::InvalidMessage(_) => {
            "it does not speak TLS; use an http:// URL or give it a certificate"
        }
        _ => "no TLS connection could be made",
    };
    format!("{remedy}: {error}")
}
