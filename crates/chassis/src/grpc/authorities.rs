//! The CAs that a client trusts. Operators replace their file while the process runs, so each handshake is checked with the CAs that are in the
//! file then.

use super::{file_content::FileContent, pem};
use crate::error::Error;
use rustls::{
    DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// The check of a server's certificate with the CAs of a file.
///
/// A client that resumes a session of TLS does not check the certificate again: the server has shown it when the session began.
#[derive(Debug)]
pub(super) struct FileAuthorities {
    file: PathBuf,
    verifier: FileContent<Arc<WebPkiServerVerifier>>,
}

impl FileAuthorities {
    /// Reads the file.
    ///
    /// # Errors
    /// `Io` if the file cannot be read, `Pem` if it has no certificate.
    pub(super) fn read(file: PathBuf) -> Result<Self, Error> {
        let verifier = FileContent::read(vec![file.clone()], || verifier_of(&file))?;
        Ok(Self { file, verifier })
    }

    fn current(&self) -> Arc<WebPkiServerVerifier> {
        self.verifier.current(|| verifier_of(&self.file))
    }
}

fn verifier_of(file: &Path) -> Result<Arc<WebPkiServerVerifier>, Error> {
    crate::install_crypto();
    let mut authorities = RootCertStore::empty();
    authorities.add_parsable_certificates(pem::certificates(file)?);
    let none = |_| Error::Pem { what: "certificate", file: file.to_owned() };
    WebPkiServerVerifier::builder(Arc::new(authorities)).build().map_err(none)
}

impl ServerCertVerifier for FileAuthorities {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let current = self.current();
        current.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.current().verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.current().verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.current().supported_verify_schemes()
    }
}
