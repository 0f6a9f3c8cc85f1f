//! How each service of a test stack is configured: by the same arguments as in production.

use crate::{MODELS, OPERATOR_KEY, SANDBOX_TOKEN, Settings};

/// The gateway's command line.
#[derive(Debug, clap::Parser)]
pub struct Gateway {
    /// Its settings.
    #[command(flatten)]
    pub config: gateway::config::Config,
}

/// A worker's command line.
#[derive(Debug, clap::Parser)]
pub struct Worker {
    /// Its settings.
    #[command(flatten)]
    pub config: worker::config::Config,
}

/// The sandbox's command line.
#[derive(Debug, clap::Parser)]
pub struct Sandbox {
    /// Its settings.
    #[command(flatten)]
    pub config: sandbox::config::Config,
}

impl Settings {
    fn shared(&self, role: &str) -> Vec<String> {
        let pairs = [
            ("--database-url", self.app_url.as_str()),
            ("--system-database-url", &self.system_url),
            ("--nats-url", &self.nats_url),
            ("--redis-url", &self.redis_url),
            ("--namespace", &self.namespace),
            ("--sandbox-url", &self.sandbox_url),
            ("--sandbox-token", SANDBOX_TOKEN),
            ("--connections", "8"),
        ];
        let arguments = pairs.iter().flat_map(|(name, value)| [(*name).to_owned(), (*value).to_owned()]);
        std::iter::once(role.to_owned()).chain(arguments).collect()
    }

    pub(crate) fn gateway_arguments(&self) -> Vec<String> {
        let mut arguments = self.shared("gateway");
        arguments.extend(["--models", MODELS, "--operator-key", OPERATOR_KEY].map(ToOwned::to_owned));
        arguments
    }

    pub(crate) fn worker_arguments(&self, number: usize) -> Vec<String> {
        let mut arguments = self.shared("worker");
        arguments.extend(["--config".to_owned(), self.config.display().to_string()]);
        arguments.extend(["--slots".to_owned(), self.slots.to_string()]);
        arguments.extend(["--request-wait-ms".to_owned(), self.request_wait_ms.to_string()]);
        arguments.extend(["--name".to_owned(), format!("worker-{number}")]);
        // The pages of tests are on this machine.
        arguments.extend(["--web-allow", "127.0.0.0/8"].map(ToOwned::to_owned));
        arguments
    }

    pub(crate) fn sandbox_arguments(&self) -> Vec<String> {
        let listen = self.sandbox_url.trim_start_matches("http://");
        let pairs = [
            ("--listen", listen.to_owned()),
            ("--data-directory", self.data.display().to_string()),
            ("--token", SANDBOX_TOKEN.to_owned()),
            ("--file-roots", self.repositories.display().to_string()),
            ("--uid-base", self.uid_base.to_string()),
        ];
        let arguments = pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
        std::iter::once("sandbox".to_owned()).chain(arguments).collect()
    }
}

/// The scripted model under every protocol, with a price; as `eyes` it is shown pictures and documents.
pub fn provider_config(url: &str) -> String {
    let model = r#"models = [
  { id = "demo", context = 100000, output = 8000, reasoning = true, variants = ["low", "high"], price_usd_per_mtok = { input = 3.0, output = 15.0 } },
  { id = "eyes", context = 100000, output = 8000, reasoning = true, images = true, pdf = true },
]"#;
    format!(
        "model = \"chat/demo\"\n\n[[provider]]\nid = \"chat\"\nkind = \"openai-chat\"\nbase_url = \"{url}/v1\"\n{model}\n\n\
         [[provider]]\nid = \"claude\"\nkind = \"anthropic\"\nbase_url = \"{url}\"\n{model}\n\n\
         [[provider]]\nid = \"responses\"\nkind = \"openai-responses\"\nbase_url = \"{url}/v1\"\n{model}\n\n\
         [[provider]]\nid = \"gemini\"\nkind = \"gemini\"\nbase_url = \"{url}\"\n{model}\n"
    )
}

/// A port that was free a moment ago, for a service that must keep its address over a restart.
pub(crate) async fn free_port() -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    listener.local_addr().expect("an address").port()
}
