//! The settings of a gateway.

use chassis::secret::Secret;
use std::net::SocketAddr;

/// Settings of a gateway.
#[derive(Debug, Clone, clap::Args)]
pub struct Config {
    /// The address to listen on, for gRPC, gRPC-Web and HTTP.
    #[arg(long, env = "FLOTILLA_GATEWAY_LISTEN", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// The servers that all gateways and workers share.
    #[command(flatten)]
    pub backends: chassis::backends::Backends,
    /// The models that prompts may name, as `provider/model`; the first is the default.
    #[arg(long, env = "FLOTILLA_MODELS", value_delimiter = ',', required = true)]
    pub models: Vec<String>,
    /// Maximum simultaneous connections; further clients are asked to retry.
    #[arg(long, env = "FLOTILLA_CONNECTIONS_MAX", default_value_t = chassis::port::CONNECTIONS_MAX)]
    pub connections_max: usize,
    /// Networks of trusted proxies, for example `10.0.0.0/8`: their `X-Forwarded-For` names the client.
    #[arg(long, env = "FLOTILLA_TRUSTED_PROXIES", value_delimiter = ',')]
    pub trusted_proxies: Vec<chassis::web::Network>,
    /// The key that manages tenants and the fleet; without it, no call can do that.
    #[arg(long, env = "FLOTILLA_OPERATOR_KEY", hide_env_values = true)]
    pub operator_key: Option<Secret<String>>,
}
