//! A running private stack: its servers as children of this process.

use crate::{
    error::Error,
    home::Home,
    lock::Lock,
    log,
    options::Options,
    plan::{self, Plan, Recipe},
    probe, process,
    programs::Programs,
};
use std::{collections::BTreeMap, fs, path::Path, process::Stdio, time::Duration};
use tokio::process::{Child, Command};

/// Longest wait until one server accepts clients. Replaying a large Postgres log is the slow case.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// Poll interval while a server starts.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Longest wait for one server to shut down cleanly.
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// Private servers in one data directory. They end with [`Stack::stop`], and also when this process dies.
#[derive(Debug)]
pub struct Stack {
    /// Postgres as its superuser, who is also the migrator: `postgres://postgres:…@127.0.0.1:PORT/postgres`.
    pub postgres_url: String,
    /// Redis with its password: `redis://:…@127.0.0.1:PORT/`.
    pub redis_url: String,
    /// NATS with user and password: `nats://flotilla:…@127.0.0.1:PORT`.
    pub nats_url: String,
    servers: Vec<Server>,
    _lock: Lock,
}

/// A server that ended unexpectedly.
#[derive(Debug)]
pub struct Exit {
    /// "postgres", "redis" or "nats".
    pub role: &'static str,
    /// How it ended, as text.
    pub status: String,
    /// The last lines of its log.
    pub log_tail: String,
}

#[derive(Debug)]
pub struct Server {
    recipe: Recipe,
    child: Child,
}

/// Starts Postgres, Redis and NATS on free loopback ports with their files below `dir`.
///
/// First ends servers that a killed launcher left behind. System instances are never touched.
///
/// # Errors
/// `Missing` names the programs that are not installed, `Busy` the process that holds `dir`, `Ended` and `Late` show the
/// end of the log of a server that does not start. On error no server keeps running.
///
/// Dropped midway: the servers started so far are killed.
pub async fn start(dir: &Path, options: Options) -> Result<Stack, Error> {
    let programs = Programs::find()?;
    fs::create_dir_all(dir).map_err(Error::io("make", dir))?;
    let lock = Lock::take(&dir.join("servers.lock"))?;
    let dir = dir.to_owned();
    let (plan, servers) = plan::try_ports(|| {
        let (dir, programs) = (dir.clone(), programs.clone());
        async move {
            let plan = move || plan::make(&Home::open(&dir)?, &programs, options);
            let plan = tokio::task::spawn_blocking(plan).await.map_err(|_| Error::Interrupted)??;
            let servers = launch(&plan.recipes).await?;
            Ok((plan, servers))
        }
    })
    .await?;
    let Plan { postgres_url, redis_url, nats_url, .. } = plan;
    Ok(Stack { postgres_url, redis_url, nats_url, servers, _lock: lock })
}

impl Stack {
    /// Returns the process ids by role.
    pub fn pids(&self) -> BTreeMap<&'static str, u32> {
        self.servers.iter().filter_map(|server| Some((server.recipe.role, server.child.id()?))).collect()
    }

    /// The servers, in starting order.
    pub fn servers_mut(&mut self) -> &mut [Server] {
        &mut self.servers
    }

    /// Waits until a server ends unexpectedly. Cancel-safe.
    pub async fn next_exit(&mut self) -> Exit {
        let waits = self.servers.iter_mut().map(|server| Box::pin(server.exit()));
        futures::future::select_all(waits).await.0
    }

    /// Restarts the server in `role` at the same address if it has ended.
    ///
    /// # Errors
    /// `Ended` or `Late` if it does not accept clients.
    pub async fn restart(&mut self, role: &str) -> Result<(), Error> {
        for server in self.servers.iter_mut().filter(|server| server.role() == role) {
            server.restart().await?;
        }
        Ok(())
    }

    /// Stops the servers in reverse starting order. A server that does not end within 10 s is killed.
    ///
    /// # Errors
    /// `Io` if waiting fails; the other servers are stopped nevertheless.
    pub async fn stop(mut self) -> Result<(), Error> {
        let mut result = Ok(());
        while let Some(mut server) = self.servers.pop() {
            if let Err(error) = process::stop(&mut server.child, server.recipe.stop, STOP_WITHIN).await {
                result = Err(Error::io("wait for", server.recipe.role)(error));
            }
        }
        result
    }
}

impl Server {
    /// "postgres", "redis" or "nats".
    pub fn role(&self) -> &'static str {
        self.recipe.role
    }

    /// The process id; `None` if it has ended.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits until the server ends unexpectedly. Cancel-safe.
    pub async fn exit(&mut self) -> Exit {
        let status = self.child.wait().await;
        let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        Exit { role: self.recipe.role, status, log_tail: log::tail(&self.recipe.log) }
    }

    /// Restarts the server at the same address if it has ended, and waits until it accepts clients. One that is still starting is not
    /// restarted: replaying a large log takes its time.
    ///
    /// # Errors
    /// `Ended` or `Late` if it does not accept clients. After a crash of Postgres its processes keep its memory for a moment, so the next attempt
    /// may succeed.
    pub async fn restart(&mut self) -> Result<(), Error> {
        if self.child.id().is_none() {
            self.child = spawn(&self.recipe).await?;
        }
        wait_ready(self).await
    }
}

async fn launch(recipes: &[Recipe]) -> Result<Vec<Server>, Error> {
    let mut servers = Vec::new();
    // The servers are independent: start all at once, then wait.
    for recipe in recipes {
        servers.push(Server { recipe: recipe.clone(), child: spawn(recipe).await? });
    }
    for server in &mut servers {
        wait_ready(server).await?;
    }
    Ok(servers)
}

async fn spawn(recipe: &Recipe) -> Result<Child, Error> {
    let log = fs::OpenOptions::new().create(true).append(true).open(&recipe.log);
    let log = log.map_err(Error::io("open", &recipe.log))?;
    let again = log.try_clone().map_err(Error::io("open", &recipe.log))?;
    let mut command = Command::new(&recipe.argv[0]);
    command.args(&recipe.argv[1..]).current_dir("/").stdin(Stdio::null()).stdout(log).stderr(again);
    process::spawn(command).await.map_err(Error::io("start", recipe.role))
}

async fn wait_ready(server: &mut Server) -> Result<(), Error> {
    let Recipe { role, address, log, .. } = &server.recipe;
    let role = *role;
    let wait = async {
        while !probe::answers(role, *address).await {
            if let Ok(Some(status)) = server.child.try_wait() {
                return Err(Error::Ended { role, how: status.to_string(), log_tail: log::tail(log) });
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    };
    let late = |_| Err(Error::Late { role, within: READY_WITHIN, log_tail: log::tail(log) });
    tokio::time::timeout(READY_WITHIN, wait).await.unwrap_or_else(late)
}
