//! One set of servers for many short-lived processes (tests). The first process starts the set and the others join it.
//! The set ends by itself some seconds after its last user has ended for any reason.
//!
//! A small shell process, the keeper, is the servers' parent. Each user holds the file `lease` with a shared lock.
//! The keeper ends the set once it gets that lock exclusively and no process has joined lately. It keeps the lock until
//! the servers are gone, so a process that joins meanwhile waits and starts a new set.

use crate::{
    error::Error,
    home::{self, Home},
    lock::Lock,
    log,
    options::Options,
    plan::{self, Plan},
    probe, process,
    programs::{self, Programs},
};
use serde::{Deserialize, Serialize};
use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant, SystemTime},
};

/// How long the servers outlive the last user, so that consecutive tests share them. Seconds.
const LINGER_S: u32 = 10;
/// Longest wait for the servers of a new set.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// Poll interval while servers start.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A joined set of servers. The set lives at least as long as this value.
#[derive(Debug)]
pub struct Shared {
    /// See [`crate::stack::Stack::postgres_url`].
    pub postgres_url: String,
    /// See [`crate::stack::Stack::redis_url`].
    pub redis_url: String,
    /// See [`crate::stack::Stack::nats_url`].
    pub nats_url: String,
    _lease: Lock,
}

/// `state.json`: how to join a running set.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    keeper_pid: u32,
    postgres_url: String,
    redis_url: String,
    nats_url: String,
}

/// Joins the set of servers in `dir`, or starts one with empty databases. Joining takes about a millisecond.
///
/// Postgres runs without fsync. All users share the servers, each with its own database, key prefix and subjects.
/// The set ends some seconds after its last user process.
///
/// # Errors
/// As [`crate::stack::start`], without `Busy`.
pub async fn join(dir: &Path) -> Result<Shared, Error> {
    let dir = dir.to_owned();
    tokio::task::spawn_blocking({
        let dir = dir.clone();
        move || fs::create_dir_all(&dir).map_err(Error::io("make", &dir))
    })
    .await
    .map_err(|_| Error::Interrupted)??;
    let runtime = tokio::runtime::Handle::current();
    // Locks block the thread and must be held until the end, so all of it runs on one blocking thread.
    tokio::task::spawn_blocking(move || join_or_start(&dir, &runtime))
        .await
        .map_err(|_| Error::Interrupted)?
}

fn join_or_start(dir: &Path, runtime: &tokio::runtime::Handle) -> Result<Shared, Error> {
    let dir = dir.canonicalize().map_err(Error::io("open", dir))?;
    let _one_at_a_time = Lock::wait(&dir.join("join.lock"))?;
    let lease_file = dir.join("lease");
    let lease = Lock::wait_shared(&lease_file)?;
    touch(&lease_file)?;
    let state_file = dir.join("state.json");
    let running = fs::read(&state_file).ok().and_then(|json| serde_json::from_slice::<State>(&json).ok());
    let state = match running.filter(|state| process::exists_with(state.keeper_pid, &dir)) {
        Some(state) => state,
        None => {
            let state = runtime.block_on(plan::try_ports(|| start(&dir)))?;
            let json = serde_json::to_vec(&state).unwrap_or_default();
            home::write_private(&state_file, &json).map_err(Error::io("write", &state_file))?;
            touch(&lease_file)?;
            state
        }
    };
    let State { postgres_url, redis_url, nats_url, .. } = state;
    Ok(Shared { postgres_url, redis_url, nats_url, _lease: lease })
}

/// Records for the keeper that a process has just joined.
fn touch(file: &Path) -> Result<(), Error> {
    let set = || fs::File::options().write(true).open(file)?.set_modified(SystemTime::now());
    set().map_err(Error::io("touch", file))
}

/// Starts a set. Blocks: the caller has a thread for it.
async fn start(dir: &Path) -> Result<State, Error> {
    let programs = Programs::find()?;
    let sh = programs::find("sh").ok_or(Error::Missing { programs: vec!["sh"] })?;
    let setsid = programs::find("setsid").ok_or(Error::Missing { programs: vec!["setsid"] })?;
    let home = Home::open(dir)?;
    // A new set has new databases: those of killed tests would fill the disk.
    home::remove_dir(&home.server_dir("postgres"))?;
    let options = Options { fsync: false, postgres_connections: 300 };
    let plan = plan::make(&home, &programs, options)?;
    let script = dir.join("keeper.sh");
    home::write_private(&script, keeper_script(dir, &plan).as_bytes())
        .map_err(Error::io("write", &script))?;
    let log = fs::File::create(home.log("keeper")).map_err(Error::io("open", &home.log("keeper")))?;
    let mut keeper = Command::new(setsid)
        .arg(sh)
        .arg(&script)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .map_err(Error::io("start", &script))?;
    let keeper_pid = keeper.id();
    let deadline = Instant::now() + READY_WITHIN;
    for recipe in &plan.recipes {
        let role = recipe.role;
        while !probe::answers(role, recipe.address).await {
            // The keeper does not say which of its servers has ended. It has ended the others.
            if matches!(keeper.try_wait(), Ok(Some(_))) {
                let how = "it or another server of its set".to_owned();
                return Err(Error::Ended { role, how, log_tail: log::tail(&recipe.log) });
            }
            if Instant::now() > deadline {
                return Err(Error::Late { role, within: READY_WITHIN, log_tail: log::tail(&recipe.log) });
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
    let Plan { postgres_url, redis_url, nats_url, .. } = plan;
    Ok(State { keeper_pid, postgres_url, redis_url, nats_url })
}

/// Returns the keeper's script. The keeper ends the set when the last user is gone or a server has died.
fn keeper_script(dir: &Path, plan: &Plan) -> String {
    let (lease, state) = (quote(dir.join("lease")), quote(dir.join("state.json")));
    let mut script = format!(
        "# Keeps the servers of {} running while a process uses them.\nexec 9<>{lease}\n\
         # Postgres forks a process for each connection: symbols that it resolved at its start are not resolved again.\n\
         export LD_BIND_NOW=1\n",
        dir.display()
    );
    let (mut stops, mut alive) = (String::new(), String::new());
    for recipe in &plan.recipes {
        let argv: Vec<_> = recipe.argv.iter().map(quote).collect();
        let (role, log, signal) =
            (recipe.role, quote(&recipe.log), recipe.stop.as_str().trim_start_matches("SIG"));
        // 9>&- : a server must not hold the lease open.
        script.push_str(&format!("{} </dev/null >{log} 2>&1 9>&- &\n{role}=$!\n", argv.join(" ")));
        stops.push_str(&format!("kill -{signal} ${role}\n"));
        alive.push_str(&format!(" && kill -0 ${role}"));
    }
    script.push_str(&format!(
        "stop() {{\nrm -f {state}\n{stops}wait\nexit 0\n}}
trap stop TERM INT HUP
while sleep 1{alive}; do
  if flock --nonblock --exclusive 9; then
    [ $(($(date +%s) - $(stat -c %Y {lease}))) -lt {LINGER_S} ] || stop
    flock --unlock 9
  fi
done
stop
"
    ));
    script
}

/// Quotes one word for the shell.
fn quote(word: impl AsRef<OsStr>) -> String {
    format!("'{}'", PathBuf::from(word.as_ref()).display().to_string().replace('\'', r"'\''"))
}
