//! The settings of a worker, and its model providers.

use anyhow::Context as _;
use settings::{document::Document, standing};
use std::path::PathBuf;

/// Settings of a worker.
#[derive(Debug, Clone, clap::Args)]
pub struct Config {
    /// The servers that all gateways and workers share.
    #[command(flatten)]
    pub backends: chassis::backends::Backends,
    /// The broker, which opens the doors of sessions to the network. Without one, sessions have none.
    #[command(flatten)]
    pub broker: chassis::backends::BrokerConfig,
    /// A flotilla.toml with `[[provider]]` entries; without it, the worker uses ANTHROPIC_API_KEY, OPENAI_API_KEY and
    /// GEMINI_API_KEY.
    #[arg(long, env = "FLOTILLA_CONFIG")]
    pub config: Option<PathBuf>,
    /// Loops that run at the same time. Further sessions wait for a slot.
    #[arg(long, env = "FLOTILLA_WORKER_SLOTS", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub slots: u32,
    /// Warm-ups at the same time: each brings the repository and the image of a session to the sandbox machine before its first prompt. Without one, the first
    /// turn does that. 0: none.
    #[arg(long, env = "FLOTILLA_WORKER_WARM_UPS", default_value_t = 4, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub warm_ups: u32,
    /// The worker's name in events and logs.
    #[arg(long, env = "FLOTILLA_WORKER_NAME", default_value = "worker-1")]
    pub name: String,
    /// Time limit for a person to answer an agent's request; after it the request counts as refused; milliseconds.
    #[arg(long, env = "FLOTILLA_REQUEST_WAIT_MS", default_value_t = domain::limits::REQUEST_WAIT_MS, value_parser = clap::value_parser!(u64).range(1..=31_536_000_000))]
    pub request_wait_ms: u64,
    /// Time between two comparisons of the sandbox with the sessions in Postgres, which remove files without a session; milliseconds.
    #[arg(long, env = "FLOTILLA_RECONCILE_MS", default_value_t = 3_600_000, value_parser = clap::value_parser!(u64).range(1_000..=604_800_000))]
    pub reconcile_ms: u64,
    /// Pause between two rounds of the work that removes what is kept for no longer; milliseconds.
    #[arg(long, env = "FLOTILLA_UPKEEP_MS", default_value_t = 60_000, value_parser = clap::value_parser!(u64).range(100..=86_400_000))]
    pub upkeep_ms: u64,
    /// Time between two measurements of the logs that grew, which quotas count; milliseconds.
    #[arg(long, env = "FLOTILLA_MEASURE_MS", default_value_t = 60_000, value_parser = clap::value_parser!(u64).range(100..=86_400_000))]
    pub measure_ms: u64,
    /// Days for which idle sessions are kept after their last change, unless their tenant has a number of its own. By default they are kept
    /// for ever.
    #[arg(long, env = "FLOTILLA_KEEP_IDLE_DAYS", value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub keep_idle_days: Option<u32>,
    /// The same after a session was archived.
    #[arg(long, env = "FLOTILLA_KEEP_ARCHIVED_DAYS", value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub keep_archived_days: Option<u32>,
    /// Which versions of the database it works with.
    #[command(flatten)]
    pub schema: chassis::backends::schema::SchemaConfig,
    /// What tenants without a quota of their own may store.
    #[command(flatten)]
    pub quota: chassis::quotas::QuotaConfig,
    /// Disable the webfetch tool. By default it reads what the settings of a session let it reach, and without any list of hosts the whole public web.
    #[arg(long, env = "FLOTILLA_WEB_OFF")]
    pub web_off: bool,
}

impl Config {
    /// Reads the platform's settings.
    pub(crate) fn platform(&self) -> anyhow::Result<Vec<Document>> {
        let Some((file, text)) = self.backends.read_settings()? else { return Ok(vec![]) };
        Ok(vec![standing::platform(&file, &text, &|name| std::env::var(name).ok())?])
    }

    pub(crate) fn providers(&self) -> anyhow::Result<llm::config::providers::Config> {
        let env = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        providers(self.config.as_deref(), &env)
    }
}

/// Reads the model providers from the file, or from the environment if there is no file.
///
/// # Errors
/// If the file cannot be read, or with all its problems.
pub fn providers(
    file: Option<&std::path::Path>,
    env: &dyn Fn(&str) -> Option<String>,
) -> anyhow::Result<llm::config::providers::Config> {
    let Some(file) = file else { return Ok(llm::config::environment::from_env(env)?) };
    let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    llm::config::file::parse(&text, env).with_context(|| format!("use {}", file.display()))
}
