//! Why a process could not be set up.

use std::{io, path::PathBuf};

/// Why a process could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The log filter is invalid; the message names the bad directive.
    #[error("read the log filter {filter:?}")]
    Filter {
        filter: String,
        /// What is wrong with it.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
    /// The exporter for traces could not be built, usually because of its address.
    #[error("set up the export of traces to {endpoint}")]
    Export {
        endpoint: String,
        #[source]
        source: opentelemetry_otlp::ExporterBuildError,
    },
    /// The address of a gRPC server cannot be used.
    #[error("use {url:?} as the address of a gRPC server")]
    Address {
        url: String,
        /// What is wrong with it.
        #[source]
        source: tonic::transport::Error,
    },
    /// A file cannot be read.
    #[error("{action} {}", file.display())]
    Io {
        action: &'static str,
        file: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A PEM file does not have what it should have.
    #[error("{} has no {what} in the format PEM", file.display())]
    Pem { what: &'static str, file: PathBuf },
    /// A certificate and a key cannot be used together.
    #[error("use the certificate {} with the key {}", certificate.display(), key.display())]
    Certificate {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        #[source]
        source: rustls::Error,
    },
    /// A CA or a server name was given for an address without TLS.
    #[error(
        "{url:?} is no https:// address, so the CA and the server name of its certificate have no effect; change one of them"
    )]
    NoTls { url: String },
    /// The sandbox service does not have the files of the sessions.
    #[error(
        "the sandbox service at {url} is {found}, but the files of the sessions are in {known}; give FLOTILLA_SANDBOX_URL the address of the service whose \
         data directory has the id {known}, or, if that directory is lost for good, start once with FLOTILLA_SANDBOX_REPLACES={known}"
    )]
    OtherSandbox {
        url: String,
        /// The id of the service that has them.
        known: String,
        /// The id of the service that answers.
        found: String,
    },
    /// An HTTP client could not be built.
    #[error("build an HTTP client")]
    HttpClient(#[source] reqwest::Error),
}
