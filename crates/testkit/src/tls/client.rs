//! A client of a server with TLS.

use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        client::Resumption,
        crypto::aws_lc_rs,
        pki_types::{CertificateDer, ServerName, pem::PemObject as _},
    },
};

/// A client that trusts one certificate.
pub struct TlsClient {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl TlsClient {
    /// Makes a client of the server of this name, with the server's certificate as PEM.
    pub fn new(name: &str, certificate: &str) -> Self {
        let mut roots = RootCertStore::empty();
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).expect("a certificate");
        roots.add(certificate).expect("a certificate");
        let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .with_root_certificates(roots)
            .with_no_client_auth();
        // Each connection costs the same, also after others.
        config.resumption = Resumption::disabled();
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        Self { connector: TlsConnector::from(Arc::new(config)), name }
    }

    /// Sends a request over a connection, and waits for the first byte of the answer.
    pub async fn ask<C: AsyncRead + AsyncWrite + Unpin>(&self, connection: C, request: &str) {
        let mut tls = self.connector.connect(self.name.clone(), connection).await.expect("a handshake");
        tls.write_all(request.as_bytes()).await.expect("a request that is sent");
        tls.flush().await.expect("a request that is sent");
        tls.read_u8().await.expect("an answer");
    }
}
