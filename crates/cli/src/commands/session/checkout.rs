//! `flotilla checkout`: fetches a session's result as a branch of the user's repository. It changes no files of the
//! work tree unless asked.

use crate::{
    client::Client,
    exit::{Exit, coded},
    repository::{bundle, git::Git},
    terminal::{output::Output, progress::Amount, show},
};
use anyhow::{Context as _, Result, bail};
use domain::limits;
use rpc::v1::ExportSessionRequest;
use serde_json::json;
use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

/// `flotilla checkout`.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckoutArgs {
    /// The session.
    id: String,
    /// Name of the branch; default: flotilla/ and the end of the session's id.
    #[arg(long, value_name = "NAME")]
    branch: Option<String>,
    /// Your repository.
    #[arg(long, default_value = ".", value_name = "PATH")]
    repo: PathBuf,
    /// Check out the branch as well; git refuses if that would overwrite your changes.
    #[arg(long)]
    switch: bool,
}

/// The export that the server sent.
struct Export {
    commit: String,
    base_commit: String,
}

pub(crate) async fn run(client: &Client, output: &Output, arguments: CheckoutArgs) -> Result<Exit> {
    let git = Git::at(&arguments.repo);
    let git = Git::at(&git.root()?);
    let branch = arguments.branch.unwrap_or_else(|| format!("flotilla/{}", show::short_id(&arguments.id)));
    if !git.is(&["check-ref-format", "--branch", &branch]) {
        bail!("{branch:?} is not a valid branch name");
    }
    let temporary = tempfile::tempdir().context("make a temporary directory")?;
    let file = temporary.path().join("result.bundle");
    let export = download(client, output, &arguments.id, &file).await?;
    fetch(&git, &export, &file)?;
    git.run(&["branch", "--force", "--no-track", &branch, &export.commit])
        .with_context(|| format!("set the branch {branch}"))?;
    let text = if arguments.switch {
        git.run(&["switch", "--quiet", &branch])?;
        format!("on branch {branch}")
    } else {
        format!("branch {branch} holds the result; `git switch {branch}` checks it out")
    };
    let Export { commit, base_commit } = export;
    let object = json!({
        "type": "checkout", "session": arguments.id, "branch": branch, "commit": commit, "base_commit": base_commit,
        "is_switched": arguments.switch,
    });
    output.result(&text, &object)?;
    Ok(Exit::Done)
}

async fn download(client: &Client, output: &Output, session_id: &str, file: &Path) -> Result<Export> {
    let progress = output.progress("loading the result", Amount::Bytes);
    let request = ExportSessionRequest { session_id: session_id.to_owned() };
    let mut stream =
        client.sessions().export_session(request).await.context("export the session")?.into_inner();
    let mut writer = fs::File::create(file).context("make a temporary file")?;
    let mut export = Export { commit: String::new(), base_commit: String::new() };
    let mut size = 0;
    while let Some(response) = stream.message().await.context("load the result")? {
        if !response.commit.is_empty() {
            export = Export { commit: response.commit, base_commit: response.base_commit };
        }
        let bytes = response.data.len() as u64;
        size += bytes;
        progress.add(bytes);
        if size > limits::BUNDLE_BYTES_MAX {
            bail!("the result is larger than {} MiB", limits::BUNDLE_BYTES_MAX >> 20);
        }
        writer.write_all(&response.data).context("write a temporary file")?;
    }
    if export.commit.is_empty() {
        bail!("the server sent no commit");
    }
    Ok(export)
}

/// Adds the commit to the repository, without any ref.
fn fetch(git: &Git, export: &Export, file: &Path) -> Result<()> {
    let has = |commit: &str| git.is(&["cat-file", "-e", &format!("{commit}^{{commit}}")]);
    if !has(&export.base_commit) {
        // The session may have started from uncommitted changes of this machine.
        let dirty_bundle = bundle::dirty_file(&export.base_commit)?;
        if dirty_bundle.exists() {
            unbundle(git, &dirty_bundle)?;
        }
    }
    // A result without changes is the base itself, and its bundle may be empty.
    if has(&export.commit) {
        return Ok(());
    }
    unbundle(git, file).map_err(|error| {
        let base = &export.base_commit;
        if base.is_empty() || has(base) {
            return error.context("use the result");
        }
        let message = format!(
            "this repository lacks the commit {base}, which the session started from; name the repository that it came from with --repo, \
             or fetch the commit first: {error:#}"
        );
        coded("commit_missing", message)
    })
}

fn unbundle(git: &Git, file: &Path) -> Result<()> {
    git.run(&["bundle".as_ref(), "unbundle".as_ref(), file.as_os_str()]).map(drop)
}
