//! Certificates and keys in files of the format PEM.

use crate::error::Error;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use std::{fs, path::Path};

/// Reads the certificates of a file, at least one.
///
/// # Errors
/// `Io` if the file cannot be read, `Pem` if it has no certificate.
pub(super) fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(file)?).collect();
    let none = || Error::Pem { what: "certificate", file: file.to_owned() };
    found.ok().filter(|found| !found.is_empty()).ok_or_else(none)
}

/// Reads the private key of a file.
///
/// # Errors
/// `Io` if the file cannot be read, `Pem` if it has no key.
pub(super) fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    let none = |_| Error::Pem { what: "private key", file: file.to_owned() };
    PrivateKeyDer::from_pem_slice(&read(file)?).map_err(none)
}

fn read(file: &Path) -> Result<Vec<u8>, Error> {
    fs::read(file).map_err(|source| Error::Io { action: "read the TLS file", file: file.to_owned(), source })
}
