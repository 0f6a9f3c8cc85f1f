//! `flotilla doctor`: shows what is installed and what is missing, one line each.

use crate::{
    client::{Client, call},
    exit::{Exit, sentence},
    stack::target::{self, Connection},
    terminal::out,
};
use anyhow::{Result, bail};
use rpc::v1::{ListProjectsRequest, Page};
use std::{process::Command, time::Duration};

/// Longest wait for the gateway: `doctor` itself must not hang.
const GATEWAY_WITHIN: Duration = Duration::from_secs(5);

/// Programs and their purposes; the last word is the Debian package.
const PROGRAMS: [(&str, &str, &str); 6] = [
    ("git", "carries repositories", "git"),
    ("postgres", "`flotilla up`: the private database", "postgresql"),
    ("redis-server", "`flotilla up`: the private queue", "redis-server"),
    ("nats-server", "`flotilla up`: the private event bus", "nats-server"),
    ("bwrap", "the sandbox's isolation", "bubblewrap"),
    ("setpriv", "`flotilla up`: ends servers with their launcher", "util-linux"),
];

pub(crate) async fn run(connection: &Connection) -> Result<Exit> {
    let mut missing = 0;
    for (name, purpose, package) in PROGRAMS {
        match local::programs::find(name) {
            Some(path) => {
                let version = Command::new(&path).arg("--version").output().ok();
                let version = version
                    .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
                    .unwrap_or_default();
                out::line(&format!(
                    "found    {name:<13} {}  {}",
                    path.display(),
                    version.lines().next().unwrap_or_default()
                ))?;
            }
            None => {
                missing += 1;
                out::line(&format!("missing  {name:<13} {purpose}; Debian package {package}"))?;
            }
        }
    }
    match target::choose(connection) {
        Ok(target) => out::line(&format!("found    {:<13} {} ({})", "gateway", target.url, target.source))?,
        Err(error) => out::line(&format!("absent   {:<13} {error:#}", "gateway"))?,
    }
    let probe = async {
        let client = Client::open(connection)?;
        let page = Some(Page { limit: 1, cursor: String::new() });
        call("list projects", || async {
            client.projects().list_projects(ListProjectsRequest { page: page.clone() }).await
        })
        .await
    };
    match tokio::time::timeout(GATEWAY_WITHIN, probe).await.unwrap_or_else(|_| bail!("it does not answer")) {
        Ok(_) => {
            out::line(&format!("found    {:<13} the gateway answers and accepts the key", "connection"))?
        }
        Err(error) => {
            out::line(&format!("absent   {:<13} {}", "connection", sentence(&error).unwrap_or_default()))?
        }
    }
    Ok(if missing == 0 { Exit::Done } else { Exit::Usage })
}
