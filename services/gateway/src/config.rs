//! The settings of a gateway.

use axum::http::Uri;
use chassis::grpc::{PortCertificate, tls::ServerCertificate};
use chassis::secret::Secret;
use std::{net::SocketAddr, path::PathBuf};

/// What a new session in a directory without a project does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum UnknownDirectories {
    /// It creates a project without files, and tells the client.
    Create,
    /// It is refused.
    Refuse,
}

/// Settings of a gateway.
#[derive(Debug, Clone, clap::Args)]
pub struct Config {
    /// The address to listen on, for gRPC, gRPC-Web and HTTP.
    #[arg(long, env = "FLOTILLA_GATEWAY_LISTEN", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// PEM file with the certificate of the address, and those between it and the CA. Without one, a balancer before the gateway should have TLS. A new
    /// connection uses what the file has then.
    #[arg(long, env = "FLOTILLA_GATEWAY_TLS_CERTIFICATE", value_name = "FILE", requires = "tls_key")]
    pub tls_certificate: Option<PathBuf>,
    /// PEM file with the key of the certificate.
    #[arg(long, env = "FLOTILLA_GATEWAY_TLS_KEY", value_name = "FILE", requires = "tls_certificate")]
    pub tls_key: Option<PathBuf>,
    /// The servers that all gateways and workers share.
    #[command(flatten)]
    pub backends: chassis::backends::Backends,
    /// The broker, which keeps secrets. Without one, nobody can set any.
    #[command(flatten)]
    pub broker: chassis::backends::BrokerConfig,
    /// The models that prompts may name, as `provider/model`; the first is the default.
    #[arg(long, env = "FLOTILLA_MODELS", value_delimiter = ',', required = true)]
    pub models: Vec<String>,
    /// Maximum simultaneous connections; further clients are asked to retry.
    #[arg(long, env = "FLOTILLA_CONNECTIONS_MAX", default_value_t = chassis::port::CONNECTIONS_MAX)]
    pub connections_max: usize,
    /// What a new session in a directory without a project does.
    #[arg(long, env = "FLOTILLA_UNKNOWN_DIRECTORIES", value_enum, default_value_t = UnknownDirectories::Create)]
    pub unknown_directories: UnknownDirectories,
    /// Networks of trusted proxies, for example `10.0.0.0/8`: their `X-Forwarded-For` names the client.
    #[arg(long, env = "FLOTILLA_TRUSTED_PROXIES", value_delimiter = ',')]
    pub trusted_proxies: Vec<chassis::network::Network>,
    /// Web pages of other sites that may call from a browser, as `https://console.example.com`. Pages of the gateway's own address and
    /// the desktop apps of OpenCode always may, and pages of local servers if the gateway listens on a loopback address.
    #[arg(long, env = "FLOTILLA_ORIGINS", value_delimiter = ',', value_parser = origin)]
    pub origins: Vec<String>,
    /// Which versions of the database it works with.
    #[command(flatten)]
    pub schema: chassis::backends::schema::SchemaConfig,
    /// What tenants without a quota of their own may store.
    #[command(flatten)]
    pub quota: chassis::quotas::QuotaConfig,
    /// Milliseconds between two looks for deliveries that the forge could not send.
    #[arg(long, env = "FLOTILLA_MISSED_DELIVERIES_MS", default_value_t = 60_000, value_parser = clap::value_parser!(u64).range(100..=3_600_000))]
    pub missed_deliveries_ms: u64,
    /// The key that manages tenants and the fleet; without it, no call can do that.
    #[arg(long, env = "FLOTILLA_OPERATOR_KEY", hide_env_values = true)]
    pub operator_key: Option<Secret<String>>,
}

impl Config {
    /// Reads the certificate, if the port has TLS.
    ///
    /// # Errors
    /// If the files cannot be used.
    pub(crate) fn certificate(&self) -> anyhow::Result<Option<PortCertificate>> {
        let (Some(certificate), Some(key)) = (self.tls_certificate.clone(), self.tls_key.clone()) else {
            return Ok(None);
        };
        Ok(Some(PortCertificate::read_for_http(ServerCertificate { certificate, key })?))
    }
}

/// Checks an origin, and writes it as browsers do.
fn origin(text: &str) -> Result<String, String> {
    let text = text.trim_end_matches('/').to_ascii_lowercase();
    let is_origin =
        |uri: Uri| uri.scheme().is_some() && uri.authority().is_some() && matches!(uri.path(), "" | "/");
    if text.parse().is_ok_and(is_origin) && !text.contains(['?', '@', '*']) {
        return Ok(text);
    }
    Err("an origin is a scheme, a host and perhaps a port, as https://console.example.com".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_checked() {
        for (text, want) in [
            ("https://Console.example.com/", Some("https://console.example.com")),
            ("http://10.0.0.1:3000", Some("http://10.0.0.1:3000")),
            ("console.example.com", None),
            ("https://console.example.com/app", None),
            ("https://*.example.com", None),
            ("https://a@b", None),
            ("null", None),
            ("", None),
        ] {
            assert_eq!(origin(text).ok().as_deref(), want, "{text}");
        }
    }
}
