//! The observers: what is looked at past the system's own interfaces. Files in workspaces, requests at the model, rows
//! in Postgres, keys in Redis, processes of the machine.

use super::{
    canary,
    cluster::{Cluster, Service, address},
    history::{Effect, End, Injection, Request, now_us},
    script,
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

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A look that comes so much later than it should says that the machine stood still; microseconds.
const STALL_US: i64 = 1_000_000;
/// What a stall is called among the injections: what the machine does is no fault of the system either.
pub const STALL: &str = "machine stall";
/// How long the system may take to come to rest before waiting ends. The invariant's limit is shorter.
const SETTLE: Duration = Duration::from_secs(90);
/// How long leftovers may take to go once nothing runs: idle sandboxes end after three seconds, dead workers are
/// forgotten after their lease, and Postgres notices a dead client after at most twenty seconds.
const TIDY: Duration = Duration::from_secs(25);
/// Resident memory of one service after the run. A debug build at rest has a tenth of it. Kilobytes.
const MEMORY_KB_MAX: u64 = 400_000;
/// How long Redis may take.
const REDIS: Duration = Duration::from_secs(5);

/// Watches the model and the machine in the background.
pub struct Watcher {
    seen: Arc<Mutex<Seen>>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    requests: Vec<Request>,
    stalls: Vec<Injection>,
}

impl Watcher {
    /// Begins.
    pub fn start(journal: Journal) -> Self {
        let seen = Arc::new(Mutex::<Seen>::default());
        let kept = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            let mut before = now_us();
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                let now = now_us();
                let requests = journal.take();
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.requests.extend(requests.iter().map(request));
                if now - before > STALL_US {
                    let (kind, target) = (STALL, "machine".to_owned());
                    let stall =
                        Injection { kind, target, began_us: before, ended_us: now, ..Injection::default() };
                    kept.stalls.push(stall);
                }
                before = now;
            }
        });
        Self { seen, task }
    }

    /// Ends, and gives the requests to the model and the stalls of the machine.
    ///
    /// # Errors
    /// When requests were lost: the observer would be blind.
    pub async fn finish(self, journal: &Journal) -> Result<(Vec<Request>, Vec<Injection>)> {
        tokio::time::sleep(2 * LOOK_EVERY).await;
        self.task.abort();
        if journal.forgotten() > 0 {
            bail!("{} requests to the model were not seen", journal.forgotten());
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        Ok((std::mem::take(&mut seen.requests), std::mem::take(&mut seen.stalls)))
    }
}

fn request(request: &journal::Request) -> Request {
    let messages = request.body["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let newest = messages.iter().rev().find(|message| message["role"] == "user" && !is_result(message));
    let newest = newest.map(|message| message["content"].to_string()).unwrap_or_default();
    let age = i64::try_from(request.received_at.elapsed().as_micros()).unwrap_or(0);
    let text = request.body["messages"].to_string();
    Request {
        at_us: now_us() - age,
        session_id: request.headers.get("x-session-id").cloned().unwrap_or_default(),
        prompt: canary::find(&newest).first().map(ToString::to_string).unwrap_or_default(),
        canaries: canary::find(&text).into_iter().map(ToOwned::to_owned).collect(),
    }
}

/// The other protocol carries tool results in messages of the user.
fn is_result(message: &Value) -> bool {
    message["content"][0]["type"] == "tool_result"
}

/// Reads what tools left in all workspaces.
///
/// # Errors
/// Those of the file system.
pub fn effects(workspaces: &Path) -> Result<Vec<Effect>> {
    let mut effects = vec![];
    for tenant in fs::read_dir(workspaces).context("list the workspaces")? {
        let tenant = tenant?;
        for session in fs::read_dir(tenant.path())? {
            let session = session?;
            // Absent when no call ever made it.
            let text = |file| fs::read_to_string(session.path().join("tree").join(file)).unwrap_or_default();
            let (tenant_id, session_id) = (tenant.file_name(), session.file_name());
            effects.extend(script::effects(
                &tenant_id.to_string_lossy(),
                &session_id.to_string_lossy(),
                &text(script::EFFECTS),
                &text(script::LOG),
            ));
        }
    }
    Ok(effects)
}

/// Sends one command to Redis, past every proxy, and gives the raw answer.
///
/// # Errors
/// When it does not answer or refuses.
pub async fn redis(cluster: &Cluster, command: &[&str]) -> Result<String> {
    let password = cluster.redis_url.split([':', '@']).nth(2).context("a password")?;
    let ask = async {
        let mut stream = TcpStream::connect(address(&cluster.redis_url)?).await?;
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

/// Waits until nothing is left to do, and says how that went.
///
/// # Errors
/// When Postgres does not answer.
pub async fn settle(cluster: &Cluster) -> Result<End> {
    let mut end = End { mended_us: now_us(), ..End::default() };
    let until = tokio::time::Instant::now() + SETTLE;
    loop {
        end.unsettled =
            dump::unsettled(&cluster.postgres_url).await.context("look for unsettled sessions")?;
        if end.unsettled.is_empty() {
            end.settled_us = Some(now_us());
            return Ok(end);
        }
        if tokio::time::Instant::now() > until {
            return Ok(end);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Waits until everything is given back, and says what is not.
///
/// # Errors
/// When Postgres or Redis does not answer.
pub async fn tidy(cluster: &Cluster) -> Result<Vec<String>> {
    let until = tokio::time::Instant::now() + TIDY;
    loop {
        let left = leftovers(cluster).await?;
        if left.is_empty() || tokio::time::Instant::now() > until {
            return Ok(left);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn leftovers(cluster: &Cluster) -> Result<Vec<String>> {
    let mut left = vec![];
    let connections = dump::connections(&cluster.postgres_url).await.context("count connections")?;
    if connections.idle_in_transaction > 0 {
        left.push(format!("{} transactions of Postgres stand open", connections.idle_in_transaction));
    }
    for kind in ["l:*", "run:*"] {
        let pattern = format!("{{{}}}:{kind}", cluster.namespace);
        let keys = redis(cluster, &["KEYS", &pattern]).await?;
        if !keys.starts_with("*0") {
            left.push(format!("Redis holds {}", keys.replace("\r\n", " ")));
        }
    }
    for (service, process) in &cluster.services {
        let pid = process.lock().await.pid();
        left.extend(pid.and_then(|pid| too_much_memory(*service, pid.as_raw())));
    }
    let sandbox = cluster.sandbox.lock().await.pid();
    let sandboxes = sandbox.map_or(0, |pid| children(pid.as_raw(), "bwrap"));
    if sandboxes > 0 {
        left.push(format!("{sandboxes} sandboxes run"));
    }
    Ok(left)
}

fn too_much_memory(service: Service, pid: i32) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    let text = format!("{} has {kilobytes} kB in memory", service.name());
    (kilobytes > MEMORY_KB_MAX).then_some(text)
}

/// How many descendants of a process run this program.
fn children(of: i32, program: &str) -> usize {
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
    let (mut family, mut found) = (vec![of], 0);
    while let Some(parent) = family.pop() {
        for (pid, name, _) in parents.iter().filter(|(_, _, above)| *above == parent) {
            family.push(*pid);
            found += usize::from(name == program);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeMap, time::Instant};

    #[test]
    fn a_request_tells_whose_prompt_it_is_about() {
        let body = serde_json::json!({"messages": [
            {"role": "system", "content": "You are"},
            {"role": "user", "content": "cn.t1.s2.1\n@text cn.t1.s2.2"},
            {"role": "assistant", "content": "cn.t1.s2.2"},
            {"role": "user", "content": "cn.t1.s2.3\n@text x"},
            {"role": "tool", "content": "out"},
        ]});
        let headers = BTreeMap::from([("x-session-id".to_owned(), "ses_1".to_owned())]);
        let seen =
            request(&journal::Request { path: String::new(), headers, body, received_at: Instant::now() });
        assert_eq!((seen.session_id.as_str(), seen.prompt.as_str()), ("ses_1", "cn.t1.s2.3"));
        assert_eq!(seen.canaries.len(), 4);
    }

    #[test]
    fn descendants_are_counted() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("a process");
        let own = i32::try_from(std::process::id()).expect("a pid");
        assert_eq!(children(own, "sleep"), 1);
        child.kill().expect("a process that runs");
        child.wait().expect("its end");
        assert_eq!(children(own, "sleep"), 0);
    }
}
