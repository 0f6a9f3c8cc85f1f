//! `flotilla doctor`: shows what is installed and what is missing, one line each.

use crate::{
    client::{Client, call},
    exit::{Exit, is_answer, sentence},
    stack::target::{self, Connection},
    terminal::output::Output,
};
use anyhow::{Result, bail};
use rpc::v1::{ListProjectsRequest, Page};
use serde_json::json;
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

/// One line of the report.
pub(crate) struct Check<'a> {
    /// "found", "missing" (a program), or "absent" (something that need not be there).
    pub(crate) status: &'static str,
    pub(crate) name: &'a str,
    pub(crate) detail: String,
}

impl Check<'_> {
    pub(crate) fn print(&self, output: &Output) -> Result<()> {
        let Self { status, name, detail } = self;
        let object = json!({"type": "check", "status": status, "name": name, "detail": detail});
        output.result(&format!("{status:<8} {name:<13} {detail}"), &object)
    }
}

pub(crate) async fn run(connection: &Connection, output: &Output) -> Result<Exit> {
    let mut missing = 0;
    for (name, purpose, package) in PROGRAMS {
        let check = match local::programs::find(name) {
            Some(path) => {
                let version = Command::new(&path).arg("--version").output().ok();
                let version = version
                    .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
                    .unwrap_or_default();
                let version = version.lines().next().unwrap_or_default();
                Check { status: "found", name, detail: format!("{}  {version}", path.display()) }
            }
            None => {
                missing += 1;
                Check { status: "missing", name, detail: format!("{purpose}; Debian package {package}") }
            }
        };
        check.print(output)?;
    }
    check_gateway(connection, output).await?;
    Ok(if missing == 0 { Exit::Done } else { Exit::Usage })
}

/// Shows the gateway, which is found if it answers, and whether it accepts the key.
async fn check_gateway(connection: &Connection, output: &Output) -> Result<()> {
    let target = target::choose(connection);
    let probe = async {
        let client = Client::open(connection, output)?;
        let page = Some(Page { limit: 1, cursor: String::new() });
        call("list projects", || async {
            client.projects().list_projects(ListProjectsRequest { page: page.clone() }).await
        })
        .await
    };
    let answer = tokio::time::timeout(GATEWAY_WITHIN, probe).await;
    let answer = answer.unwrap_or_else(|_| bail!("it does not answer"));
    let is_there = answer.as_ref().map_or_else(is_answer, |_| true);
    let status = |is_there: bool| if is_there { "found" } else { "absent" };
    let detail = match target {
        Ok(target) => format!("{} ({})", target.url, target.source),
        Err(error) => format!("{error:#}"),
    };
    Check { status: status(is_there), name: "gateway", detail }.print(output)?;
    let detail = match &answer {
        Ok(_) => "the gateway answers and accepts the key".to_owned(),
        Err(error) => sentence(error).unwrap_or_default(),
    };
    Check { status: status(answer.is_ok()), name: "connection", detail }.print(output)
}
