//! The observers. They look behind the system's interfaces: at files in workspaces, requests to the model, rows in
//! Postgres, keys in Redis, and processes of the machine.

use super::{
    cluster::{Cluster, Service, address},
    history::{Effect, FinalState, Injection, Request, STALL, micros, now_us},
    workload::{canary, script},
};
use anyhow::{Context as _, Result, bail};
use model_script::journal::{self, Journal};
use serde_json::Value;
use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use testkit::dump;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// A poll that is this late shows that the machine stalled; microseconds.
const STALL_US: i64 = 1_000_000;
/// How long the observers wait for the system to settle. The limit of the promise is shorter.
const SETTLE: Duration = Duration::from_secs(90);
/// Time limit for the release of resources after the system settled: idle sandboxes end after three seconds, the leases
/// of dead workers expire, and Postgres notices a dead client after at most twenty seconds. The command of a quarantined session
/// runs until its timeout, two minutes.
const RELEASE: Duration = Duration::from_secs(145);
/// Limit of the resident memory of one service after the run; kilobytes. An idle debug build uses a tenth of it.
const MEMORY_KB_MAX: u64 = 400_000;
/// Time limit for an answer of Redis.
const REDIS: Duration = Duration::from_secs(5);

/// Watches the model and the machine in the background.
pub struct Watcher {
    observations: Arc<Mutex<Observations>>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Observations {
    requests: Vec<Request>,
    stalls: Vec<Injection>,
}

impl Watcher {
    pub fn start(journal: Journal) -> Self {
        let observations = Arc::new(Mutex::<Observations>::default());
        let shared = Arc::clone(&observations);
        let task = tokio::spawn(async move {
            let mut before = now_us();
            loop {
                tokio::time::sleep(POLL_INTERVAL).await;
                let now = now_us();
                let requests = journal.take();
                let mut observations = shared.lock().unwrap_or_else(PoisonError::into_inner);
                observations.requests.extend(requests.iter().map(request));
                if now - before > STALL_US {
                    let (kind, target) = (STALL, "machine".to_owned());
                    let stall =
                        Injection { kind, target, began_us: before, ended_us: now, ..Injection::default() };
                    observations.stalls.push(stall);
                }
                before = now;
            }
        });
        Self { observations, task }
    }

    /// Stops, and returns the requests to the model, and the stalls of the machine.
    ///
    /// # Errors
    /// If the journal lost requests: the record would be incomplete.
    pub async fn finish(self, journal: &Journal) -> Result<(Vec<Request>, Vec<Injection>)> {
        tokio::time::sleep(2 * POLL_INTERVAL).await;
        self.task.abort();
        if journal.forgotten() > 0 {
            bail!("the journal lost {} requests to the model", journal.forgotten());
        }
        let mut observations = self.observations.lock().unwrap_or_else(PoisonError::into_inner);
        Ok((std::mem::take(&mut observations.requests), std::mem::take(&mut observations.stalls)))
    }
}

fn request(request: &journal::Request) -> Request {
    let messages = request.body["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let newest = messages.iter().rev().find(|message| message["role"] == "user" && !is_result(message));
    let newest = newest.map(|message| message["content"].to_string()).unwrap_or_default();
    let text = request.body["messages"].to_string();
    Request {
        at_us: micros(request.received_at),
        session_id: request.headers.get("x-session-id").cloned().unwrap_or_default(),
        prompt: canary::find(&newest).first().map(ToString::to_string).unwrap_or_default(),
        canaries: canary::find(&text).into_iter().map(ToOwned::to_owned).collect(),
    }
}

/// The Anthropic protocol puts tool results into user messages.
fn is_result(message: &Value) -> bool {
    message["content"][0]["type"] == "tool_result"
}

/// Reads the effects of tool calls in all workspaces.
///
/// # Errors
/// If the workspaces cannot be read.
pub fn effects(workspaces: &Path) -> Result<Vec<Effect>> {
    let mut effects = vec![];
    for tenant in fs::read_dir(workspaces).context("list the workspaces")? {
        let tenant = tenant?;
        for session in fs::read_dir(tenant.path())? {
            let session = session?;
            // The file is absent if no call created it.
            let text = |file| fs::read_to_string(session.path().join("tree").join(file)).unwrap_or_default();
            let (tenant_id, session_id) = (tenant.file_name(), session.file_name());
            effects.extend(script::effects(
                &tenant_id.to_string_lossy(),
                &session_id.to_string_lossy(),
                &script::Files { effects: text(script::EFFECTS), log: text(script::LOG) },
            ));
        }
    }
    Ok(effects)
}

/// Sends one command to Redis without a proxy, and returns the raw answer.
///
/// # Errors
/// If Redis does not answer, or answers with an error.
pub async fn call_redis(cluster: &Cluster, command: &[&str]) -> Result<String> {
    call_redis_at(&cluster.redis_url, command).await
}

/// The same, for the Redis at a URL.
///
/// # Errors
/// If Redis does not answer, or answers with an error.
pub async fn call_redis_at(url: &str, command: &[&str]) -> Result<String> {
    let password = url.split([':', '@']).nth(2).context("a password")?;
    let ask = async {
        let mut stream = TcpStream::connect(address(url)?).await?;
        let text = format!("AUTH {password}\r\n{}\r\nQUIT\r\n", command.join(" "));
        stream.write_all(text.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        anyhow::Ok(answer)
    };
    let answer = tokio::time::timeout(REDIS, ask).await.context("wait for Redis")??;
    let answer = answer.strip_prefix("+OK\r\n").context("log in to Redis")?;
    anyhow::ensure!(!answer.starts_with('-'), "Redis refused {}: {answer}", command.join(" "));
    Ok(answer.trim_end_matches("+OK\r\n").to_owned())
}

/// Waits until no work is left, and returns the final state of the sessions.
///
/// # Errors
/// If Postgres does not answer.
pub async fn settle(cluster: &Cluster) -> Result<FinalState> {
    let mut state = FinalState { repaired_us: now_us(), ..FinalState::default() };
    let until = tokio::time::Instant::now() + SETTLE;
    loop {
        state.unsettled = dump::unsettled(&cluster.postgres_url).await.context("list unsettled sessions")?;
        if state.unsettled.is_empty() {
            state.settled_us = Some(now_us());
            return Ok(state);
        }
        if tokio::time::Instant::now() > until {
            return Ok(state);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Waits until all resources are released, and lists those that are not.
///
/// # Errors
/// If Postgres or Redis does not answer.
pub async fn await_release(cluster: &Cluster) -> Result<Vec<String>> {
    let until = tokio::time::Instant::now() + RELEASE;
    loop {
        let left = leftovers(cluster).await?;
        if left.is_empty() || tokio::time::Instant::now() > until {
            return Ok(left);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn leftovers(cluster: &Cluster) -> Result<Vec<String>> {
    let mut left = vec![];
    let connections = dump::connections(&cluster.postgres_url).await.context("count connections")?;
    if connections.idle_in_transaction > 0 {
        left.push(format!("{} transactions are open in Postgres", connections.idle_in_transaction));
    }
    for kind in ["l:*", "run:*"] {
        let pattern = format!("{{{}}}:{kind}", cluster.namespace);
        let keys = call_redis(cluster, &["KEYS", &pattern]).await?;
        if !keys.starts_with("*0") {
            left.push(format!("Redis holds {}", keys.replace("\r\n", " ")));
        }
    }
    for (service, process) in &cluster.services {
        let pid = process.lock().await.pid();
        left.extend(pid.and_then(|pid| excess_memory(*service, pid.as_raw())));
    }
    let sandbox = cluster.sandbox.lock().await.pid();
    let sandboxes = sandbox.map_or(0, |pid| descendants(pid.as_raw(), "bwrap"));
    if sandboxes > 0 {
        left.push(format!("{sandboxes} sandboxes still run"));
    }
    Ok(left)
}

fn excess_memory(service: Service, pid: i32) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    let text = format!("{} uses {kilobytes} kB of memory", service.name());
    (kilobytes > MEMORY_KB_MAX).then_some(text)
}

/// Counts the descendants of a process that run this program.
fn descendants(ancestor: i32, program: &str) -> usize {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stats = processes.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    // `pid (name) state parent …`
    let parents: Vec<(i32, String, i32)> = stats
        .filter_map(|stat| {
            let (head, tail) = stat.rsplit_once(')')?;
            let (pid, name) = head.split_once(" (")?;
            Some((pid.parse().ok()?, name.to_owned(), tail.split_whitespace().nth(1)?.parse().ok()?))
        })
        .collect();
    let (mut family, mut found) = (vec![ancestor], 0);
    while let Some(parent) = family.pop() {
        for (pid, name, _) in parents.iter().filter(|(_, _, own_parent)| *own_parent == parent) {
            family.push(*pid);
            found += usize::from(name == program);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeMap, time::SystemTime};

    #[test]
    fn a_request_is_assigned_to_its_session_and_newest_prompt() {
        let body = serde_json::json!({"messages": [
            {"role": "system", "content": "You are"},
            {"role": "user", "content": "cn.t1.s2.1\n@text cn.t1.s2.2"},
            {"role": "assistant", "content": "cn.t1.s2.2"},
            {"role": "user", "content": "cn.t1.s2.3\n@text x"},
            {"role": "tool", "content": "out"},
        ]});
        let headers = BTreeMap::from([("x-session-id".to_owned(), "ses_1".to_owned())]);
        let recorded =
            request(&journal::Request { path: String::new(), headers, body, received_at: SystemTime::now() });
        assert_eq!((recorded.session_id.as_str(), recorded.prompt.as_str()), ("ses_1", "cn.t1.s2.3"));
        assert_eq!(recorded.canaries.len(), 4);
    }

    #[test]
    fn descendants_are_counted() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("a process");
        let own = i32::try_from(std::process::id()).expect("a pid");
        assert_eq!(descendants(own, "sleep"), 1);
        child.kill().expect("a process that runs");
        child.wait().expect("its end");
        assert_eq!(descendants(own, "sleep"), 0);
    }
}
