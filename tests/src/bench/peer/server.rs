//! The two servers: OpenCode's own, and a stack of Flotilla.

use crate::opencode::OpenCode;
use serde_json::json;
use std::{collections::BTreeMap, fs, process::Stdio, time::Duration};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Child,
};

/// Clock ticks per second in the process statistics of Linux.
const TICKS: u64 = 100;
/// Longest wait for OpenCode's server.
const START: Duration = Duration::from_secs(60);

/// A server with OpenCode's API.
#[derive(Debug)]
pub struct Server {
    /// Its address.
    pub url: String,
    /// The key of its client.
    pub key: Option<String>,
    /// The directory that its client names.
    pub directory: String,
    /// Its process. The processes below it count too.
    pub pid: u32,
}

impl Server {
    /// Returns the CPU time of its processes on all cores, also of those that have ended and that their parent has noticed. The time of a process whose
    /// parent ended before it is lost.
    pub(super) fn cpu_time(&self) -> Duration {
        let processes = processes();
        let mut ticks = 0;
        let mut open = vec![self.pid];
        while let Some(pid) = open.pop() {
            ticks += processes.get(&pid).map_or(0, |process| process.ticks);
            open.extend(processes.iter().filter(|(_, process)| process.parent == pid).map(|(pid, _)| *pid));
        }
        Duration::from_millis(ticks * (1_000 / TICKS))
    }
}

struct Process {
    parent: u32,
    ticks: u64,
}

/// All processes of the machine.
fn processes() -> BTreeMap<u32, Process> {
    let entries = fs::read_dir("/proc").expect("processes").filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name may contain spaces. After it come the state, the parent and, from the 14th field on, the times of the process and of its children that
        // have ended.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = fields.get(11..15)?.iter().filter_map(|field| field.parse::<u64>().ok()).sum();
        Some((pid, Process { parent: fields.get(1)?.parse().ok()?, ticks }))
    })
    .collect()
}

/// Starts OpenCode's server with a model. It ends when the child is dropped.
///
/// # Errors
/// If it does not start.
pub async fn opencode(opencode: &OpenCode, model_url: &str) -> anyhow::Result<(Child, Server)> {
    let directory = opencode.directory().join("project");
    fs::create_dir(&directory)?;
    let provider = json!({
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": format!("{model_url}/v1"), "apiKey": "bench"},
        "models": {"demo": {"limit": {"context": 100_000, "output": 8_000}}},
    });
    let config = json!({"model": "bench/demo", "provider": {"bench": provider}, "share": "disabled"});
    let mut command = opencode.command(&["serve", "--hostname", "127.0.0.1", "--port", "0"]);
    command.env("OPENCODE_CONFIG_CONTENT", config.to_string()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.current_dir(&directory).spawn()?;
    let output = child.stdout.take().ok_or_else(|| anyhow::anyhow!("no output"))?;
    let mut lines = BufReader::new(output).lines();
    let url = async {
        while let Some(line) = lines.next_line().await? {
            if let Some((_, url)) = line.split_once("listening on ") {
                return Ok(url.trim().to_owned());
            }
        }
        anyhow::bail!("OpenCode's server ended")
    };
    let url = tokio::time::timeout(START, url).await??;
    // A full pipe would stop it.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    let pid = child.id().ok_or_else(|| anyhow::anyhow!("OpenCode's server ended"))?;
    let directory = directory.display().to_string();
    Ok((child, Server { url, key: None, directory, pid }))
}
