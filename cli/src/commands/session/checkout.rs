//! `flotilla checkout`: fetches a session's result as a branch of the user's repository. It changes no files of the
//! work tree unless asked, or unless the branch is checked out. Commits of a person on the branch stay.

use crate::{
    client::Client,
    exit::{Exit, coded},
    repository::{bundle, git::Git},
    terminal::{output::Output, progress::Amount, show},
};
use anyhow::{Context as _, Result, bail};
use domain::{egress::push::AGENT_EMAIL, limits, text::is_object_id};
use rpc::v1::{ExportSessionRequest, ExportSessionResponse};
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
    pub(crate) id: String,
    /// Name of the branch; default: flotilla/ and the end of the session's id.
    #[arg(long, value_name = "NAME")]
    branch: Option<String>,
    /// Your repository.
    #[arg(long, default_value = ".", value_name = "PATH")]
    repo: PathBuf,
    /// Check out the branch as well; git refuses if that would overwrite your changes.
    #[arg(long)]
    switch: bool,
    /// Make one commit of the commits of the agent and everything else.
    #[arg(long)]
    squash: bool,
}

/// The export that the server sent.
#[derive(Default)]
struct Export {
    commit: String,
    base_commit: String,
    /// What of the session's work the commit lacks.
    left_out: Vec<String>,
}

pub(crate) async fn run(client: &Client, output: &Output, arguments: CheckoutArgs) -> Result<Exit> {
    let git = Git::at(&arguments.repo);
    let git = Git::at(&git.root()?);
    let branch = arguments.branch.unwrap_or_else(|| default_branch(&git, &arguments.id));
    if !git.is(&["check-ref-format", "--branch", &branch]) {
        bail!("{branch:?} is not a valid branch name");
    }
    let temporary = tempfile::tempdir().context("make a temporary directory")?;
    let file = temporary.path().join("result.bundle");
    let request = ExportSessionRequest { session_id: arguments.id.clone(), squash: arguments.squash };
    let export = download(client, output, request, &file).await?;
    fetch(&git, &export, &file)?;
    let is_checked_out = move_branch(&git, &branch, &export)?;
    if arguments.switch && !is_checked_out {
        git.run(&["switch", "--quiet", &branch])?;
    }
    let is_switched = arguments.switch || is_checked_out;
    output.result(&told(&branch, is_switched, &export), &json!({
        "type": "checkout", "session": arguments.id, "branch": branch, "commit": export.commit, "base_commit": export.base_commit,
        "is_switched": is_switched, "left_out": export.left_out,
    }))?;
    Ok(Exit::Done)
}

/// The branch for a session. A branch `flotilla` of the user leaves no room for branches below it.
fn default_branch(git: &Git, session_id: &str) -> String {
    let end = show::short_id(session_id);
    let is_taken = git.is(&["show-ref", "--verify", "--quiet", "refs/heads/flotilla"]);
    if is_taken { format!("flotilla-{end}") } else { format!("flotilla/{end}") }
}

/// The sentence about a result: where it is, and what it lacks.
fn told(branch: &str, is_switched: bool, export: &Export) -> String {
    let lacks = show::lacks(&export.left_out);
    if export.commit == export.base_commit {
        return format!(
            "the session changed nothing: branch {branch} is at the commit that it started from{lacks}"
        );
    }
    if is_switched {
        format!("on branch {branch}, which holds the result{lacks}")
    } else {
        format!("branch {branch} holds the result{lacks}; `git switch {branch}` checks it out")
    }
}

/// Moves the branch to the result, and the files too where it is checked out; returns whether it is. Only commits that the agent made are replaced.
fn move_branch(git: &Git, branch: &str, export: &Export) -> Result<bool> {
    let commit = &export.commit;
    let reference = format!("refs/heads/{branch}");
    let tip = git.run(&["rev-parse", "--verify", "--quiet", &format!("{reference}^{{commit}}")]).ok();
    if let Some(tip) = &tip {
        let own = git.run(&["log", "--format=%ce", tip, "--not", commit, &export.base_commit])?;
        if own.lines().any(|committer| committer != AGENT_EMAIL) {
            let message = format!(
                "the branch {branch} has commits that the agent did not make, so it was not moved to the result {commit}; `git merge {commit}` on \
                 the branch takes the result in, --branch NAME makes another branch"
            );
            return Err(coded("branch_has_other_commits", message));
        }
    }
    if git.run(&["symbolic-ref", "--quiet", "HEAD"]).is_ok_and(|head| head == reference) {
        git.run(&["reset", "--quiet", "--keep", commit]).with_context(|| {
            format!("move the branch {branch}, which is checked out; commit or stash your changes first")
        })?;
        return Ok(true);
    }
    git.run(&["branch", "--force", "--no-track", branch, commit])
        .with_context(|| format!("set the branch {branch}; --branch NAME makes another one"))?;
    Ok(false)
}

async fn download(
    client: &Client,
    output: &Output,
    request: ExportSessionRequest,
    file: &Path,
) -> Result<Export> {
    let progress = output.progress("loading the result", Amount::Bytes);
    let mut stream =
        client.sessions().export_session(request).await.context("export the session")?.into_inner();
    let mut writer = fs::File::create(file).context("make a temporary file")?;
    let mut export = Export::default();
    let mut size = 0;
    while let Some(response) = stream.message().await.context("load the result")? {
        if !response.commit.is_empty() {
            let ExportSessionResponse { commit, base_commit, left_out, .. } = &response;
            export = Export {
                commit: commit.clone(),
                base_commit: base_commit.clone(),
                left_out: left_out.clone(),
            };
        }
        let bytes = response.data.len() as u64;
        size += bytes;
        progress.add(bytes);
        if size > limits::BUNDLE_BYTES_MAX {
            bail!("the result is larger than {} MiB", limits::BUNDLE_BYTES_MAX >> 20);
        }
        writer.write_all(&response.data).context("write a temporary file")?;
    }
    export.check()?;
    Ok(export)
}

impl Export {
    /// Checks the names of its commits before git sees them: git takes other texts for options or for names of its own.
    fn check(&self) -> Result<()> {
        let base = Some(&self.base_commit).filter(|base| !base.is_empty());
        match [Some(&self.commit), base].into_iter().flatten().find(|id| !is_object_id(id)) {
            Some(id) => Err(invalid(&format!("{id:?} is not the name of a commit"))),
            None => Ok(()),
        }
    }
}

fn invalid(why: &str) -> anyhow::Error {
    coded("result_invalid", format!("the server sent a result that cannot be used: {why}"))
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
    })?;
    if has(&export.commit) { Ok(()) } else { Err(invalid(&format!("it lacks the commit {}", export.commit))) }
}

/// Adds the objects of a bundle to the repository. Git checks each of them first, which `git bundle unbundle` does not: a file called `.git`, for example, would
/// be written at the next checkout of some git.
fn unbundle(git: &Git, file: &Path) -> Result<()> {
    git.run(&["bundle".as_ref(), "verify".as_ref(), "--quiet".as_ref(), file.as_os_str()])?;
    let bundle = fs::read(file).context("read the result")?;
    // An empty line ends the head of a bundle; the pack follows.
    let head_end = bundle.windows(2).position(|two| two == b"\n\n").context("the bundle has no pack")?;
    git.run_with(&["index-pack", "--stdin", "--fix-thin", "--strict"], &bundle[head_end + 2..]).map(drop)
}
