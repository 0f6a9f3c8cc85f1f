//! The settings of a gateway.

use chassis::secret::Secret;
use std::net::SocketAddr;

/// Settings of a gateway.
#[derive(Debug, Clone, clap::Args)]
pub struct Config {
    /// Where to listen, for gRPC, gRPC-Web and HTTP alike.
    #[arg(long, env = "FLOTILLA_GATEWAY_LISTEN", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Postgres, as the role `flotilla_app`.
    #[arg(long, env = "FLOTILLA_DATABASE_URL", hide_env_values = true)]
    pub database_url: Secret<String>,
    /// Postgres, as the role `flotilla_system`.
    #[arg(long, env = "FLOTILLA_SYSTEM_DATABASE_URL", hide_env_values = true)]
    pub system_database_url: Secret<String>,
    /// Connections to Postgres.
    #[arg(long, env = "FLOTILLA_GATEWAY_CONNECTIONS", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub connections: u32,
    /// NATS.
    #[arg(long, env = "FLOTILLA_NATS_URL", hide_env_values = true)]
    pub nats_url: Secret<String>,
    /// Redis.
    #[arg(long, env = "FLOTILLA_REDIS_URL", hide_env_values = true)]
    pub redis_url: Secret<String>,
    /// Keeps stacks apart that share NATS and Redis; letters and digits.
    #[arg(long, env = "FLOTILLA_NAMESPACE", default_value = "flotilla")]
    pub namespace: String,
    /// Where the sandbox service answers.
    #[arg(long, env = "FLOTILLA_SANDBOX_URL")]
    pub sandbox_url: String,
    /// The token that the sandbox service asks for.
    #[arg(long, env = "FLOTILLA_SANDBOX_TOKEN", hide_env_values = true)]
    pub sandbox_token: Secret<String>,
    /// The models that prompts may name, as `provider/model`; the first is the default.
    #[arg(long, env = "FLOTILLA_MODELS", value_delimiter = ',', required = true)]
    pub models: Vec<String>,
    /// The key that may create tenants; without one nobody may.
    #[arg(long, env = "FLOTILLA_OPERATOR_KEY", hide_env_values = true)]
    pub operator_key: Option<Secret<String>>,
}
