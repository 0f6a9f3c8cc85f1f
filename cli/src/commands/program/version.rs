//! `flotilla version`: the versions of this program and of the gateway.

use crate::{
    client::Client,
    exit::{Exit, sentence},
    stack::target::Connection,
    terminal::output::Output,
};
use anyhow::Result;
use serde_json::{Value, json};

/// The commit that the program was built from, if it was built in a checkout of its repository.
const COMMIT: Option<&str> = option_env!("FLOTILLA_COMMIT");

/// The versions of both ends.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    /// The gateway that was asked; `None`: there is none.
    url: Option<String>,
    /// `None`: it did not answer.
    server: Option<String>,
}

impl Versions {
    pub(crate) fn to_json(&self) -> Value {
        let Self { url, server } = self;
        json!({"type": "version", "client": env!("CARGO_PKG_VERSION"), "commit": COMMIT, "server": server, "url": url})
    }
}

/// Shows the versions. A gateway that does not answer is no error: the program has a version without one.
pub(crate) async fn run(connection: &Connection, output: &Output) -> Result<Exit> {
    let mut versions = Versions::default();
    let asked = async {
        let client = Client::open(connection, output)?;
        versions.url = Some(client.url().to_owned());
        let health = client.get_json("/global/health", None).await?;
        versions.server = health["version"].as_str().map(str::to_owned);
        anyhow::Ok(())
    };
    if let Err(error) = asked.await {
        output.note(&sentence(&error).unwrap_or_default());
    }
    if output.is_json() {
        output.json(&versions.to_json())?;
        return Ok(Exit::Done);
    }
    let server = versions.server.as_deref().unwrap_or("–");
    output.line(&format!("client  {}", crate::help::VERSION))?;
    output.line(&format!("server  {server}  {}", versions.url.as_deref().unwrap_or_default()))?;
    Ok(Exit::Done)
}
