//! Settings that gateways and workers share, under the same names.

pub mod sandbox_check;
pub mod schema;
pub mod transport;

use crate::{
    error::Error,
    grpc::{self, ServerCheck, Windows},
    secret::Secret,
};
use anyhow::{Context as _, ensure};
use std::{fs, path::PathBuf};
use tonic::transport::Channel;
use transport::{SharedServer, TransportConfig};

/// Addresses of the shared servers, and the platform's settings for all sessions.
#[derive(Debug, Clone, clap::Args)]
pub struct Backends {
    /// Postgres, as the role `flotilla_app`.
    #[arg(long, env = "FLOTILLA_DATABASE_URL", hide_env_values = true)]
    pub database_url: Secret<String>,
    /// Postgres, as the role `flotilla_system`.
    #[arg(long, env = "FLOTILLA_SYSTEM_DATABASE_URL", hide_env_values = true)]
    pub system_database_url: Secret<String>,
    /// Postgres connections of this process; the transactions of one tenant get three quarters of them. Beyond it: `store_unavailable` after five
    /// seconds.
    #[arg(long, env = "FLOTILLA_CONNECTIONS", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub connections: u32,
    /// NATS.
    #[arg(long, env = "FLOTILLA_NATS_URL", hide_env_values = true)]
    pub nats_url: Secret<String>,
    /// Redis.
    #[arg(long, env = "FLOTILLA_REDIS_URL", hide_env_values = true)]
    pub redis_url: Secret<String>,
    /// Where their connections may travel without TLS.
    #[command(flatten)]
    pub transport: TransportConfig,
    /// Separates stacks that share NATS and Redis; letters and digits.
    #[arg(long, env = "FLOTILLA_NAMESPACE", default_value = "flotilla")]
    pub namespace: String,
    /// Address of the sandbox service; `https://` if its port has TLS.
    #[arg(long, env = "FLOTILLA_SANDBOX_URL")]
    pub sandbox_url: String,
    /// PEM file with the certificates of the CAs that may have signed that of the sandbox service; default: those of the system.
    #[arg(long, env = "FLOTILLA_SANDBOX_CA", value_name = "FILE")]
    pub sandbox_ca: Option<PathBuf>,
    /// The name in the certificate of the sandbox service; default: the host of its address.
    #[arg(long, env = "FLOTILLA_SANDBOX_SERVER_NAME", value_name = "NAME")]
    pub sandbox_server_name: Option<String>,
    /// The token for the sandbox service.
    #[arg(long, env = "FLOTILLA_SANDBOX_TOKEN", hide_env_values = true)]
    pub sandbox_token: Secret<String>,
    /// The id of a sandbox service whose data directory is lost for good. The service at FLOTILLA_SANDBOX_URL takes its place, and the files of its sessions
    /// are gone. Set it for one start.
    #[arg(long, env = "FLOTILLA_SANDBOX_REPLACES", value_name = "ID")]
    pub sandbox_replaces: Option<String>,
    /// The platform's opencode.json. It binds every session; lower levels cannot loosen it.
    #[arg(long, env = "FLOTILLA_SETTINGS")]
    pub settings: Option<PathBuf>,
}

/// How a gateway or a worker reaches the broker.
#[derive(Debug, Clone, clap::Args)]
pub struct BrokerConfig {
    /// Address of the broker; `https://` if its port has TLS.
    #[arg(long, env = "FLOTILLA_BROKER_URL", value_name = "URL")]
    pub broker_url: Option<String>,
    /// PEM file with the certificates of the CAs that may have signed that of the broker; default: those of the system.
    #[arg(long, env = "FLOTILLA_BROKER_CA", value_name = "FILE")]
    pub broker_ca: Option<PathBuf>,
    /// The name in the certificate of the broker; default: the host of its address.
    #[arg(long, env = "FLOTILLA_BROKER_SERVER_NAME", value_name = "NAME")]
    pub broker_server_name: Option<String>,
    /// The token for the broker.
    #[arg(long, env = "FLOTILLA_BROKER_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    pub broker_token: Option<Secret<String>>,
}

impl BrokerConfig {
    /// Prepares the connection to the broker, which the first call establishes, and gives it with its token. `None`: there is no broker.
    ///
    /// # Errors
    /// Those of [`grpc::channel_with`]; an address without a token.
    pub fn channel(&self) -> anyhow::Result<Option<(Channel, &str)>> {
        let Some(url) = &self.broker_url else { return Ok(None) };
        let token = self.broker_token.as_ref().context("FLOTILLA_BROKER_URL needs FLOTILLA_BROKER_TOKEN")?;
        let check = ServerCheck { ca: self.broker_ca.clone(), server_name: self.broker_server_name.clone() };
        Ok(Some((grpc::channel_with(url, &check)?, token.expose())))
    }
}

impl Backends {
    /// Checks that the URLs of Postgres, Redis and NATS ask for TLS, unless they lead to this machine, or the operator accepts it.
    ///
    /// # Errors
    /// A sentence for each server that is reached without TLS.
    pub fn check_transport(&self) -> anyhow::Result<()> {
        let problems = self.transport.problems([
            (SharedServer::Postgres, "FLOTILLA_DATABASE_URL", self.database_url.expose().as_str()),
            (SharedServer::Postgres, "FLOTILLA_SYSTEM_DATABASE_URL", self.system_database_url.expose()),
            (SharedServer::Nats, "FLOTILLA_NATS_URL", self.nats_url.expose()),
            (SharedServer::Redis, "FLOTILLA_REDIS_URL", self.redis_url.expose()),
        ]);
        ensure!(problems.is_empty(), "invalid settings:\n{}", problems.join("\n"));
        Ok(())
    }

    /// Prepares a connection to the sandbox service, which the first call establishes.
    ///
    /// # Errors
    /// Those of [`grpc::channel_with_windows`].
    pub fn sandbox_channel(&self, windows: Windows) -> Result<Channel, Error> {
        let check =
            ServerCheck { ca: self.sandbox_ca.clone(), server_name: self.sandbox_server_name.clone() };
        grpc::channel_with_windows(&self.sandbox_url, &check, windows)
    }

    /// Reads the platform's settings: the name of the file, and its text.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read_settings(&self) -> anyhow::Result<Option<(String, String)>> {
        let Some(file) = &self.settings else { return Ok(None) };
        let name = file.display().to_string();
        let text = fs::read_to_string(file).with_context(|| format!("read {name}"))?;
        Ok(Some((name, text)))
    }
}
