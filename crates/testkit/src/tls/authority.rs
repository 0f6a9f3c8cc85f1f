//! A certificate authority, and the certificates of ports that it signs, as files.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The name in the certificates of ports.
pub const PORT_NAME: &str = "port.test";

/// Writes its own certificate to a directory, and those that it signs.
#[derive(Debug)]
pub struct Authority {
    directory: PathBuf,
    /// The file of its certificate.
    pub file: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Makes an authority of this name.
    pub fn new(directory: &Path, name: &str) -> Self {
        let (mut params, key) =
            (CertificateParams::new(vec![]).expect("no names"), KeyPair::generate().expect("a key"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let file = directory.join(format!("{name}.pem"));
        fs::write(&file, params.self_signed(&key).expect("a certificate").pem()).expect("write the CA");
        Self { directory: directory.to_owned(), file, issuer: Issuer::new(params, key) }
    }

    /// Writes a certificate for a port that is valid until the end of this year, and its key. Replaces those of the same name.
    pub fn sign(&self, name: &str, last_year: i32) -> [PathBuf; 2] {
        let params = CertificateParams::new(vec![PORT_NAME.to_owned()]);
        let (mut params, key) = (params.expect("a name"), KeyPair::generate().expect("a key"));
        params.not_after = rcgen::date_time_ymd(last_year, 12, 31);
        let files = ["certificate", "key"].map(|kind| self.directory.join(format!("{name}-{kind}.pem")));
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        fs::write(&files[0], certificate.pem()).expect("write the certificate");
        fs::write(&files[1], key.serialize_pem()).expect("write the key");
        files
    }
}
