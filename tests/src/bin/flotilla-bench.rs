//! `flotilla-bench`: starts a whole stack of release processes and prints what the main job costs on this machine,
//! beside the raw round trips of the same run. Judges nothing. `flotilla-bench durability` prints what survives and what
//! that costs, each figure beside its target; `flotilla-bench loop` what long conversations and many files cost;
//! `flotilla-bench events` what it costs to bring events to clients.
#![allow(clippy::print_stdout, reason = "its output is the report")]

use anyhow::Context as _;
use clap::{Parser as _, ValueEnum};
use e2e::{
    api::Api,
    bench::{self, Samples, durability, events, figure::Figure, ground::Servers, loops, model::Model},
};
use serde_json::Value;
use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Measures the main job.
#[derive(Debug, clap::Parser)]
struct Arguments {
    /// Sessions of each kind.
    #[arg(long, default_value_t = 50)]
    rounds: usize,
    /// Something else than the main job.
    #[command(subcommand)]
    other: Option<Other>,
}

/// What else is measured.
#[derive(Debug, clap::Subcommand)]
enum Other {
    /// Take-overs, hand-overs, fairness, the ready queue, memory, the control row.
    Durability {
        /// Only these, with commas between them.
        #[arg(long, value_enum, value_delimiter = ',')]
        only: Vec<durability::What>,
    },
    /// A long conversation: loading it, a step of it, what it costs others; the states of many files.
    Loop {
        /// Only these, with commas between them.
        #[arg(long, value_enum, value_delimiter = ',')]
        only: Vec<loops::What>,
        /// Small sizes, to see that it runs.
        #[arg(long)]
        small: bool,
    },
    /// From models to clients: how soon, to how many, what was missed, what idle clients and stored text cost.
    Events {
        /// Only these, with commas between them.
        #[arg(long, value_enum, value_delimiter = ',')]
        only: Vec<events::What>,
        /// Small sizes, to see that it runs.
        #[arg(long)]
        small: bool,
    },
}

/// A stack of processes; ended when it is dropped.
struct Stack {
    child: Child,
    ready: Value,
    ready_after: Duration,
}

impl Drop for Stack {
    fn drop(&mut self) {
        let stopped = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        if stopped.is_ok() {
            drop(self.child.wait());
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    chassis::install_crypto();
    let directory = tempfile::Builder::new().prefix("flotilla-bench-").tempdir()?;
    println!("machine: {} cores, load {}", std::thread::available_parallelism()?, load());
    let servers = Servers::Own(directory.path().to_owned());
    match &arguments.other {
        Some(Other::Durability { only }) => {
            let raw = bench::raw::measure(&directory.path().join("raw"), 200).await;
            row("Postgres, one durable insert", &raw.commit, None);
            let sizes = durability::Sizes::full();
            report(only, async |what| Box::pin(durability::measure(what, &servers, &sizes)).await).await;
            return Ok(());
        }
        Some(Other::Loop { only, small }) => {
            let sizes = if *small { loops::Sizes::smoke() } else { loops::Sizes::full() };
            report(only, async |what| Box::pin(loops::measure(what, &servers, &sizes)).await).await;
            return Ok(());
        }
        Some(Other::Events { only, small }) => {
            let sizes = if *small { events::Sizes::smoke() } else { events::Sizes::full() };
            report(only, async |what| Box::pin(events::measure(what, &servers, &sizes)).await).await;
            return Ok(());
        }
        None => {}
    }
    let raw = bench::raw::measure(&directory.path().join("raw"), 200).await;
    for (name, samples) in [
        ("Postgres, one durable insert", &raw.commit),
        ("Redis, one answer", &raw.redis),
        ("NATS, client to client", &raw.nats),
    ] {
        row(name, samples, None);
    }
    let model = Model::start().await;
    let stack = start(directory.path(), &model.url).await?;
    println!("`flotilla up` to ready: {:.2} s", stack.ready_after.as_secs_f64());
    println!("resident memory of the idle services: {}", memory(&stack.ready)?);
    let api = Api::of_stack(text(&stack.ready, "gateway_url")?, text(&stack.ready, "api_key")?).await;
    let latencies = bench::measure(&api, &model, arguments.rounds).await;
    // Two commits and a claim are the least that lies between a prompt and its model request.
    let least = raw.commit.percentile(50) * 2 + raw.redis.percentile(50);
    row(
        "prompt to model request, fresh session",
        &latencies.prompt_to_model,
        Some(("2 commits + claim", least)),
    );
    let least = raw.commit.percentile(50) + raw.nats.percentile(50);
    row("last model byte to idle at the client", &latencies.model_to_idle, Some(("commit + NATS", least)));
    row(
        "model chunk to client, 40 ms apart",
        &latencies.chunk_to_client,
        Some(("NATS", raw.nats.percentile(50))),
    );
    row("tool step, bash true", &latencies.tool_step, Some(("3 commits", raw.commit.percentile(50) * 3)));
    println!("load at the end: {}", load());
    Ok(())
}

/// Prints each figure of these, or of all, as soon as it is measured.
async fn report<W: ValueEnum + fmt::Debug + PartialEq + Copy>(
    only: &[W],
    measure: impl AsyncFn(W) -> Vec<Figure>,
) {
    for what in W::value_variants().iter().filter(|what| only.is_empty() || only.contains(what)) {
        println!("{what:?}, load {}", load());
        for figure in measure(*what).await {
            println!("  {figure}");
        }
    }
    println!("load at the end: {}", load());
}

async fn start(directory: &Path, model_url: &str) -> anyhow::Result<Stack> {
    let config = directory.join("flotilla.toml");
    fs::write(&config, e2e::parts::provider_config(model_url))?;
    let program = sibling("flotilla")?;
    let data = directory.join("stack");
    let begun = Instant::now();
    let mut command = Command::new(program);
    command.arg("up").env("FLOTILLA_CONFIG", &config).env("FLOTILLA_DATA", &data).stdout(Stdio::null());
    let mut child = command.spawn().context("start flotilla up")?;
    let file = data.join("ready.json");
    loop {
        if let Ok(json) = fs::read(&file) {
            let ready = serde_json::from_slice(&json).context("read ready.json")?;
            return Ok(Stack { child, ready, ready_after: begun.elapsed() });
        }
        if let Some(status) = child.try_wait()? {
            anyhow::bail!("flotilla up ended ({status})");
        }
        anyhow::ensure!(
            begun.elapsed() < Duration::from_secs(60),
            "flotilla up was not ready within a minute"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The program of that name beside this one.
fn sibling(name: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    anyhow::ensure!(path.exists(), "{} is not built", path.display());
    Ok(path)
}

fn text<'a>(ready: &'a Value, key: &str) -> anyhow::Result<&'a str> {
    ready[key].as_str().with_context(|| format!("ready.json has no {key}"))
}

/// Resident memory of gateway, worker and sandbox, in MB.
fn memory(ready: &Value) -> anyhow::Result<String> {
    let (mut total, mut each) = (0, vec![]);
    for role in ["gateway", "worker-1", "sandbox"] {
        let pid = ready["pids"][role].as_u64().with_context(|| format!("ready.json has no pid of {role}"))?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
        total += kilobytes;
        each.push(format!("{role} {} MB", kilobytes / 1024));
    }
    Ok(format!("{} MB ({})", total / 1024, each.join(", ")))
}

fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

fn row(name: &str, samples: &Samples, against: Option<(&str, Duration)>) {
    let ms = |duration: Duration| duration.as_secs_f64() * 1000.0;
    let (p50, p99) = (samples.percentile(50), samples.percentile(99));
    let ratio =
        against.map(|(what, least)| format!(", {:.1} x {what}", p50.as_secs_f64() / least.as_secs_f64()));
    let count = samples.count();
    println!(
        "{name:<40} p50 {:8.3} ms  p99 {:8.3} ms  ({count} samples{})",
        ms(p50),
        ms(p99),
        ratio.unwrap_or_default()
    );
}
