//! Why a process could not be set up.

/// Why a process could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The log filter is invalid; the message names the bad directive.
    #[error("read the log filter {filter:?}")]
    Filter {
        /// The invalid filter.
        filter: String,
        /// What is wrong with it.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
    /// The exporter for traces could not be built, usually because of its address.
    #[error("set up the export of traces to {endpoint}")]
    Export {
        /// The endpoint for traces.
        endpoint: String,
        /// The exporter's error.
        #[source]
        source: opentelemetry_otlp::ExporterBuildError,
    },
    /// The address of a gRPC server cannot be used.
    #[error("use {url:?} as the address of a gRPC server")]
    Address {
        /// The invalid address.
        url: String,
        /// What is wrong with it.
        #[source]
        source: tonic::transport::Error,
    },
    /// An HTTP client could not be built.
    #[error("build an HTTP client")]
    HttpClient(#[source] reqwest::Error),
}
