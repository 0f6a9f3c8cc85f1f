//! `flotilla-bench` starts a whole stack of release processes. It measures the main job on this machine and prints the cost next to that of the raw
//! round trips in the same run. Each group measures something else: `durability` takeovers and queues, `loop` long conversations and many files,
//! `history` what the length of a conversation costs, `events` the delivery of events, `fanout` many subscribers, `hostile` what a hostile tenant does to another one, `peer` OpenCode's own server compared with Flotilla, `week` what a week of
//! use leaves behind, `files` what the files of a session cost, `repositories` the first turn of sessions on private repositories, `env` environments and the broker, and `profile` what the services ask of Postgres and the CPU time of each
//! process. The report shows each figure
//! with its target.
#![allow(clippy::print_stdout, reason = "its output is the report")]

use anyhow::Context as _;
use clap::{Parser as _, ValueEnum};
use e2e::{
    api::Api,
    bench::{
        durability, events,
        figure::Figure,
        files, hostile, loops,
        machine::{process, usage::MeasuredProcess},
        main_job::{self, raw},
        model::Model,
        peer, profile,
        samples::Samples,
        sandbox::{broker, environments, repositories},
        testbed::Servers,
        week,
    },
    opencode::OpenCode,
};
use serde_json::Value;
use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Files of the repository on which sessions are measured beside those without files.
const MAIN_JOB_FILES: usize = 2_000;

/// Measures the main job.
#[derive(Debug, clap::Parser)]
struct Arguments {
    /// Number of sessions of each kind.
    #[arg(long, default_value_t = 50)]
    rounds: usize,
    /// Another group of measurements instead of the main job.
    #[command(subcommand)]
    group: Option<Group>,
}

/// The other groups of measurements.
#[derive(Debug, clap::Subcommand)]
enum Group {
    /// Takeovers, handovers, fairness, the ready queue, memory, the control row.
    Durability {
        /// Run only these, separated by commas.
        #[arg(long, value_enum, value_delimiter = ',')]
        only: Vec<durability::Measure>,
    },
    /// Long conversations: loading, a step, the effect on other sessions; snapshots of many files.
    Loop {
        /// Run only these, separated by commas.
        #[arg(long, value_enum, value_delimiter = ',')]
        only: Vec<loops::Measure>,
        /// Use small sizes, to check that it runs.
        #[arg(long)]
        small: bool,
    },
    /// Conversations of several lengths: from a prompt to the model request, and loading 50 MB.
    History {
        /// Use small sizes, to check that it runs.
        #[arg(long)]
        small: bool,
    },
    /// One session with 500 subscribers, over gRPC and over HTTP, and the memory of 10,000 idle ones.
    Fanout {
        /// Use small sizes, to check that it runs.
        #[arg(long)]
        small: bool,
    },
    /// What a tenant that attacks everything at once does to another one, and to the memory of the services.
    Hostile {
        /// Leave these attacks out, separated by commas, to see what each costs: "large forks".
        #[arg(long, value_delimiter = ',')]
        without: Vec<String>,
        /// Use small sizes, to check that it runs.
        #[arg(long)]
        small: bool,
    },
    /// The clients of the hostile tenant, which `hostile` starts as a process of its own.
    #[command(hide = true)]
    Attackers,
    /// What the services ask of Postgres for a session and for a step, compared with the counts that were committed last, and the CPU time of each process.
    Profile {
        /// Print how often each statement runs.
        #[arg(long)]
        statements: bool,
        /// Print the counts as JSON for `tests/src/bench/profile/committed.json`.
        #[arg(long)]
        json: bool,
        /// Use small sizes, to check that it runs.
        #[arg(long)]
        small: bool,
    },
    /// Sessions on repositories of 20, 2,000 and 40,000 files, beside sessions without files.
    Files {
        /// Use small sizes, to check that it runs.
        #[arg(long)]
        small: bool,
    },
    /// A week of 10,000 sessions in fast time: what is stored must stop growing.
    Week {
        /// Use small sizes, to check that it runs.
        #[arg(long)]
        small: bool,
    },
    /// The first turn of sessions on repositories of 1 GB and of a few bytes, with mirrors and without, and in an image with a setup and an install.
    Repositories {
        /// Use small sizes, to check that it runs.
        #[arg(long)]
        small: bool,
    },
    /// Sandboxes in an image, layers that arrive, environments that are there already, and what the broker adds to pushes and connections.
    Env {
        /// Use small sizes, to check that it runs.
        #[arg(long)]
        small: bool,
    },
    /// OpenCode's own server compared with Flotilla: the same client, the same model, the same calls.
    Peer {
        /// Use small sizes, to check that it runs.
        #[arg(long)]
        small: bool,
    },
    /// Event delivery: latency, fan-out, catching up, idle clients, stored text.
    Events {
        /// Run only these, separated by commas.
        #[arg(long, value_enum, value_delimiter = ',')]
        only: Vec<events::Measure>,
        /// Use small sizes, to check that it runs.
        #[arg(long)]
        small: bool,
    },
}

/// A stack of processes. It is stopped when this value is dropped.
struct Stack {
    child: Child,
    ready: Value,
    ready_after: Duration,
}

impl Drop for Stack {
    fn drop(&mut self) {
        if process::terminate(&self.child).is_ok() {
            drop(self.child.wait());
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    chassis::install_crypto();
    if let Some(Group::Attackers) = arguments.group {
        return attackers().await;
    }
    let directory = tempfile::Builder::new().prefix("flotilla-bench-").tempdir()?;
    println!("machine: {} cores, load {}", std::thread::available_parallelism()?, load());
    let servers = Servers::Own(directory.path().to_owned());
    match &arguments.group {
        Some(Group::Durability { only }) => {
            measure_durability(directory.path(), &servers, only).await;
            return Ok(());
        }
        Some(Group::Loop { only, small }) => {
            let sizes = if *small { loops::sizes::Sizes::smoke() } else { loops::sizes::Sizes::full() };
            report(only, async |measure| Box::pin(loops::measure(measure, &servers, &sizes)).await).await;
            return Ok(());
        }
        Some(Group::History { small }) => {
            let sizes = if *small { loops::sizes::Sizes::smoke() } else { loops::sizes::Sizes::full() };
            let only = [loops::Measure::History];
            report(&only, async |measure| Box::pin(loops::measure(measure, &servers, &sizes)).await).await;
            return Ok(());
        }
        Some(Group::Fanout { small }) => {
            let sizes = if *small { events::sizes::Sizes::smoke() } else { events::sizes::Sizes::full() };
            let only = [events::Measure::Fanout, events::Measure::Idle];
            report(&only, async |measure| Box::pin(events::measure(measure, &servers, &sizes)).await).await;
            return Ok(());
        }
        Some(Group::Events { only, small }) => {
            let sizes = if *small { events::sizes::Sizes::smoke() } else { events::sizes::Sizes::full() };
            report(only, async |measure| Box::pin(events::measure(measure, &servers, &sizes)).await).await;
            return Ok(());
        }
        Some(Group::Week { small }) => {
            let sizes = if *small { week::Sizes::smoke() } else { week::Sizes::full() };
            return print(&Box::pin(week::measure(&servers, &sizes)).await);
        }
        Some(Group::Profile { statements, json, small }) => {
            let sizes = if *small { profile::sizes::Sizes::smoke() } else { profile::sizes::Sizes::full() };
            let profile = Box::pin(profile::measure(&servers, &sizes)).await;
            print_profile(&profile, *statements, *json)?;
            return profile_cpu(directory.path(), &sizes).await;
        }
        Some(Group::Files { small }) => {
            let sizes = if *small { files::Sizes::smoke() } else { files::Sizes::full() };
            Box::pin(files::measure(&sizes, |figure| println!("  {figure}"))).await;
            return Ok(());
        }
        Some(Group::Repositories { small }) => {
            let sizes = if *small { repositories::Sizes::smoke() } else { repositories::Sizes::full() };
            return print(&Box::pin(repositories::measure(&sizes)).await);
        }
        Some(Group::Env { small }) => {
            let sizes = if *small { environments::Sizes::smoke() } else { environments::Sizes::full() };
            print(&Box::pin(environments::measure(&sizes)).await)?;
            let sizes = if *small { broker::Sizes::smoke() } else { broker::Sizes::full() };
            return print(&Box::pin(broker::measure(&sizes)).await);
        }
        Some(Group::Peer { small }) => {
            let sizes = if *small { peer::Sizes::smoke() } else { peer::Sizes::full() };
            return compare(directory.path(), &sizes).await;
        }
        Some(Group::Hostile { without, small }) => {
            return attack(directory.path(), &hostile::sizes::Sizes::of(*small, without)).await;
        }
        Some(Group::Attackers) | None => {}
    }
    measure_main_job(directory.path(), arguments.rounds).await
}

/// Prints the figures of durability, and what the disk takes for a commit.
async fn measure_durability(directory: &Path, servers: &Servers, only: &[durability::Measure]) {
    let raw = raw::measure(&directory.join("raw"), 200).await;
    row("Postgres, one durable insert", &raw.commit, None);
    let sizes = durability::sizes::Sizes::full();
    report(only, async |measure| Box::pin(durability::measure(measure, servers, &sizes)).await).await;
}

/// Prints the cost of the main job of `rounds` sessions, and the raw round trips.
async fn measure_main_job(directory: &Path, rounds: usize) -> anyhow::Result<()> {
    let raw = raw::measure(&directory.join("raw"), 200).await;
    for (name, samples) in [
        ("Postgres, one durable insert", &raw.commit),
        ("Redis, one answer", &raw.redis),
        ("NATS, client to client", &raw.nats),
    ] {
        row(name, samples, None);
    }
    let model = Model::start().await;
    let stack = start(directory, &model.url).await?;
    println!("`flotilla up` to ready: {:.2} s", stack.ready_after.as_secs_f64());
    println!("resident memory of the idle services: {}", memory(&stack.ready)?);
    let api = Api::of_stack(text(&stack.ready, "gateway_url")?, text(&stack.ready, "api_key")?).await;
    for files in [0, MAIN_JOB_FILES] {
        println!("sessions on {files} files");
        let latencies = main_job::measure(&api, &model, rounds, files).await;
        // A prompt needs at least two commits and a claim before its model request.
        let least = raw.commit.percentile(50) * 2 + raw.redis.percentile(50);
        row(
            "prompt to model request, fresh session",
            &latencies.prompt_to_model,
            Some(("2 commits + claim", least)),
        );
        let least = raw.commit.percentile(50) + raw.nats.percentile(50);
        row(
            "last model byte to idle at the client",
            &latencies.model_to_idle,
            Some(("commit + NATS", least)),
        );
        row(
            "model chunk to client, 40 ms apart",
            &latencies.chunk_to_client,
            Some(("NATS", raw.nats.percentile(50))),
        );
        row("tool step, bash true", &latencies.tool_step, Some(("3 commits", raw.commit.percentile(50) * 3)));
        row("the first tool step of a session", &latencies.first_tool_step, None);
        row("tool step, bash true, 8 sessions at once", &latencies.crowded_tool_step, None);
    }
    println!("load at the end: {}", load());
    Ok(())
}

/// Prints what OpenCode's own server and a stack of release processes need for the same calls.
async fn compare(directory: &Path, sizes: &peer::Sizes) -> anyhow::Result<()> {
    let model = Model::start().await;
    let stack = start(directory, &model.url).await?;
    let own = peer::Server {
        url: text(&stack.ready, "gateway_url")?.to_owned(),
        key: Some(text(&stack.ready, "api_key")?.to_owned()),
        directory: "bench".to_owned(),
        pid: stack.child.id(),
    };
    let opencode =
        OpenCode::find().context("opencode-ai is not installed; `./dev bench peer` installs it")?;
    let api = Api::of_stack(&own.url, text(&stack.ready, "api_key")?).await;
    peer::project(&api, &own.directory, sizes.files).await;
    let (_running, peer) = peer::opencode(&opencode, &model.url, sizes.files).await?;
    print(&Box::pin(peer::measure(&peer, &own, &model, sizes)).await)?;
    println!("load at the end: {}", load());
    Ok(())
}

/// Prints figures, each on a line.
fn print(figures: &[Figure]) -> anyhow::Result<()> {
    for figure in figures {
        println!("  {figure}");
    }
    Ok(())
}

fn print_profile(profile: &profile::Profile, with_statements: bool, with_json: bool) -> anyhow::Result<()> {
    print(&profile.figures)?;
    for (shape, statements) in profile.statements.iter().filter(|_| with_statements) {
        println!("{shape}");
        for (count, text) in statements {
            println!("  {count:6.2}  {text}");
        }
    }
    if with_json {
        println!("{}", profile.counts);
    }
    Ok(())
}

/// Prints the CPU time and the memory of each process of a stack for short sessions.
async fn profile_cpu(directory: &Path, sizes: &profile::sizes::Sizes) -> anyhow::Result<()> {
    let model = Model::start().await;
    let stack = start(directory, &model.url).await?;
    let api = Api::of_stack(text(&stack.ready, "gateway_url")?, text(&stack.ready, "api_key")?).await;
    let roles = ["gateway", "worker-1", "sandbox", "broker", "postgres", "redis", "nats"];
    let processes = processes(&stack.ready, &roles)?;
    print(&profile::cpu::measure(&api, &model, &processes, sizes).await)?;
    println!("load at the end: {}", load());
    Ok(())
}

/// Runs the clients of the hostile tenant, and prints what became of their attacks.
async fn attackers() -> anyhow::Result<()> {
    println!("{}", hostile::attackers::run().await?);
    Ok(())
}

/// Attacks a stack of release processes.
async fn attack(directory: &Path, sizes: &hostile::sizes::Sizes) -> anyhow::Result<()> {
    let model = testkit::model("").await;
    let stack = start(directory, &model.url).await?;
    let victim = hostile::Victim {
        gateway_url: text(&stack.ready, "gateway_url")?.to_owned(),
        operator_key: text(&stack.ready, "operator_key")?.to_owned(),
        services: processes(&stack.ready, &["gateway", "worker-1", "sandbox"])?,
        servers: processes(&stack.ready, &["postgres", "redis", "nats"])?,
    };
    print(&hostile::measure(&victim, sizes).await)?;
    println!("load at the end: {}", load());
    Ok(())
}

/// Runs the measurements in `only`, or all if it is empty, and prints each figure as soon as it is measured.
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
    fs::write(&config, e2e::settings::provider_config(model_url))?;
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
            anyhow::bail!("flotilla up exited ({status})");
        }
        anyhow::ensure!(
            begun.elapsed() < Duration::from_secs(60),
            "flotilla up was not ready within a minute"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Finds the program of that name next to this one.
fn sibling(name: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    anyhow::ensure!(path.exists(), "{} is not built", path.display());
    Ok(path)
}

fn text<'a>(ready: &'a Value, key: &str) -> anyhow::Result<&'a str> {
    ready[key].as_str().with_context(|| format!("ready.json has no {key}"))
}

fn pid(ready: &Value, role: &str) -> anyhow::Result<u32> {
    let pid = ready["pids"][role].as_u64().and_then(|pid| u32::try_from(pid).ok());
    pid.with_context(|| format!("ready.json has no pid of {role}"))
}

/// Returns processes of a stack by their roles.
fn processes(ready: &Value, roles: &[&str]) -> anyhow::Result<Vec<MeasuredProcess>> {
    roles.iter().map(|role| Ok(MeasuredProcess::of_stack(role, pid(ready, role)?))).collect()
}

/// Returns the resident memory of gateway, worker and sandbox, in MB.
fn memory(ready: &Value) -> anyhow::Result<String> {
    let (mut total, mut each) = (0, vec![]);
    for role in ["gateway", "worker-1", "sandbox"] {
        let pid = pid(ready, role)?;
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
