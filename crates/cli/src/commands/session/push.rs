//! `flotilla push`: pushes a session's result to the repository that its files came from.

use crate::{
    client::Client,
    exit::Exit,
    terminal::{output::Output, paint::one_line, progress::Amount},
};
use anyhow::{Context as _, Result};
use domain::egress::PushReceipt;
use rpc::v1::{PushSessionRequest, PushSessionResponse};
use serde_json::json;

/// Characters of a line that the server of the repository says.
const LINE_CHARS: usize = 300;

/// `flotilla push`.
#[derive(Debug, clap::Args)]
pub(crate) struct PushArgs {
    /// The session.
    id: String,
    /// Name of the branch, below the prefix that the settings allow; default: the prefix (agent/) and the session's id.
    #[arg(long, value_name = "NAME")]
    branch: Option<String>,
    /// Message of the commit; default: the session's title.
    #[arg(long, value_name = "TEXT")]
    message: Option<String>,
}

pub(crate) async fn run(client: &Client, output: &Output, arguments: PushArgs) -> Result<Exit> {
    let PushArgs { id, branch, message } = arguments;
    let request = PushSessionRequest {
        session_id: id.clone(),
        branch: branch.unwrap_or_default(),
        message: message.unwrap_or_default(),
    };
    let pushing = output.progress("pushing", Amount::Unknown);
    let pushed = client.sessions().push_session(request).await;
    drop(pushing);
    let pushed = pushed.context("push the session")?.into_inner();
    for line in pushed.remote_message.lines() {
        output.note(&format!("remote: {}", one_line(line, LINE_CHARS)));
    }
    let object = json!({
        "type": "push", "session": id, "url": pushed.url, "branch": pushed.branch, "commit": pushed.commit,
        "commits": pushed.commits, "files": pushed.files, "remote_message": pushed.remote_message,
    });
    let PushSessionResponse { url, branch, commit, commits, files, .. } = pushed;
    output.result(&PushReceipt { url, branch, commit, commits, files }.sentence(), &object)?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;
    use crate::fake::{Fake, SESSION};

    #[tokio::test]
    async fn a_push_says_what_went_where() {
        let (fake, output) = (Fake::default(), Output::kept(false));
        fake.run(&output, &["push", SESSION, "--branch", "agent/fix", "--message", "Fix it"]).await.unwrap();
        assert_eq!(output.take().trim(), "pushed 1 commit with 2 files to agent/fix of https://h/r: c0ffee");
        assert_eq!(fake.0.lock().unwrap().orders, ["Fix it"]);
    }
}
