//! The two servers: OpenCode's own, and a stack of Flotilla.

use crate::{
    api::Api,
    bench::{
        machine::usage::{self, Extent},
        sources,
    },
    opencode::OpenCode,
};
use anyhow::Context as _;
use rpc::v1;
use serde_json::json;
use std::{process::Stdio, time::Duration};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Child,
};

/// Longest wait for OpenCode's server.
const START: Duration = Duration::from_secs(60);

/// A server with OpenCode's API.
#[derive(Debug)]
pub struct Server {
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
        usage::cpu_time(self.pid, Extent::Tree).total()
    }
}

/// Starts OpenCode's server with a model, in a clone of a repository of so many files. It ends when the child is dropped.
///
/// # Errors
/// If it does not start.
pub async fn opencode(opencode: &OpenCode, model_url: &str, files: usize) -> anyhow::Result<(Child, Server)> {
    let directory = opencode.directory().join("project");
    let place = directory.to_str().context("a path in UTF-8")?;
    sources::repository_of(files).git(&["clone", "--quiet", ".", place]);
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

/// Makes the project of a directory, whose sessions start from a repository of so many files.
pub async fn project(api: &Api, directory: &str, files: usize) {
    let source = Some(sources::upload(api, &sources::repository_of(files)).await);
    let request = v1::CreateProjectRequest { name: directory.to_owned(), source, ..Default::default() };
    api.projects().create_project(request).await.expect("a project");
}
