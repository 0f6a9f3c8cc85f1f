//! `flotilla push`: pushes a session's result to the repository that its files came from, and shows before what that would bring.

use crate::{
    client::Client,
    exit::Exit,
    terminal::{
        output::Output,
        paint::{Paint, one_line},
        progress::Amount,
        show,
    },
};
use anyhow::{Context as _, Result};
use domain::egress::PushReceipt;
use rpc::v1::{PushSessionRequest, PushSessionResponse, PushedFile};
use serde_json::{Value, json};

/// Characters of a line that the server of the repository says.
const LINE_CHARS: usize = 300;
/// Characters of a path.
const PATH_CHARS: usize = 120;
/// Files that are named before a push. `--dry-run` names all that the server gives.
const SHOWN_FILES: usize = 20;
/// New files from which on a person should look whether they are meant: a task of a person rarely makes so many.
const NEW_FILES_MANY: usize = 50;
/// Bytes of a file that is named in the warning.
const LARGE_FILE_BYTES: u64 = 1 << 20;

/// `flotilla push`.
#[derive(Debug, clap::Args)]
pub(crate) struct PushArgs {
    /// The session.
    pub(crate) id: String,
    /// Name of the branch, below the prefix that the settings allow; default: the prefix (agent/) and the session's id.
    #[arg(long, value_name = "NAME")]
    branch: Option<String>,
    /// Message of the commit; default: the session's title.
    #[arg(long, value_name = "TEXT")]
    message: Option<String>,
    /// Push nothing: show the commits and files that would be pushed, with all checks of a push.
    #[arg(long)]
    dry_run: bool,
    /// Push one commit, with the commits of the agent and everything else.
    #[arg(long)]
    squash: bool,
}

pub(crate) async fn run(client: &Client, output: &Output, arguments: PushArgs) -> Result<Exit> {
    let PushArgs { id, branch, message, dry_run, squash } = arguments;
    let request = PushSessionRequest {
        session_id: id.clone(),
        branch: branch.unwrap_or_default(),
        message: message.unwrap_or_default(),
        dry_run,
        squash,
    };
    // Programs ask for it themselves.
    if dry_run || !output.is_json() {
        let preview = push(client, output, PushSessionRequest { dry_run: true, ..request.clone() }).await?;
        if dry_run {
            output.result(&described(&preview, usize::MAX, output.paint()), &preview_json(&id, &preview))?;
            return Ok(Exit::Done);
        }
        if preview.commits > 0 {
            output.note(&described(&preview, SHOWN_FILES, output.paint()));
        }
    }
    let pushed = push(client, output, request).await?;
    for line in pushed.remote_message.lines() {
        output.note(&format!("remote: {}", one_line(line, LINE_CHARS)));
    }
    let object = json!({
        "type": "push", "session": id, "url": pushed.url, "branch": pushed.branch, "commit": pushed.commit,
        "commits": pushed.commits, "files": pushed.files, "remote_message": pushed.remote_message,
        "left_out": pushed.left_out,
    });
    let lacks = show::lacks(&pushed.left_out);
    output.result(&format!("{}{lacks}", receipt(pushed).sentence()), &object)?;
    Ok(Exit::Done)
}

async fn push(client: &Client, output: &Output, request: PushSessionRequest) -> Result<PushSessionResponse> {
    let working = output.progress(if request.dry_run { "looking" } else { "pushing" }, Amount::Unknown);
    let pushed = client.sessions().push_session(request).await;
    drop(working);
    Ok(pushed.context("push the session")?.into_inner())
}

fn receipt(pushed: PushSessionResponse) -> PushReceipt {
    let PushSessionResponse { url, branch, commit, commits, files, .. } = pushed;
    PushReceipt { url, branch, commit, commits, files }
}

/// What would be pushed: a sentence, a line for each of the first `shown` files, and a warning of what is rarely meant.
fn described(preview: &PushSessionResponse, shown: usize, paint: Paint) -> String {
    let receipt = receipt(preview.clone());
    if receipt.commits == 0 {
        return receipt.sentence();
    }
    let mut lines = vec![receipt.intention()];
    lines.extend(preview.changes.iter().take(shown).map(|file| line(file, paint)));
    let unnamed = (receipt.files as usize).saturating_sub(preview.changes.len().min(shown));
    if unnamed > 0 {
        lines.push(format!("  and {unnamed} more; `flotilla push --dry-run` lists them"));
    }
    lines.extend(warning(&preview.changes).map(|text| paint.yellow(&text)));
    lines.join("\n")
}

fn line(file: &PushedFile, paint: Paint) -> String {
    let path = one_line(&file.path, PATH_CHARS);
    let size = show::size(file.size_bytes);
    let change = match file {
        PushedFile { is_binary: true, size_bytes: 0, .. } => "binary, removed".to_owned(),
        PushedFile { is_binary: true, .. } => format!("binary, {size}"),
        PushedFile { additions, deletions, .. } => {
            format!("{} {}", paint.green(&format!("+{additions}")), paint.red(&format!("-{deletions}")))
        }
    };
    let large = (file.size_bytes >= LARGE_FILE_BYTES && !file.is_binary).then(|| format!(", {size}"));
    let new = if file.is_new { "new, " } else { "" };
    format!("  {path}  {new}{change}{}", large.unwrap_or_default())
}

/// What a person should look at: build results that no `.gitignore` keeps out.
fn warning(files: &[PushedFile]) -> Option<String> {
    let count = |is: fn(&&PushedFile) -> bool| files.iter().filter(is).count();
    let new = count(|file| file.is_new);
    let binary = count(|file| file.is_new && file.is_binary);
    let large = count(|file| file.is_new && file.size_bytes >= LARGE_FILE_BYTES);
    let mut parts = vec![];
    if new >= NEW_FILES_MANY {
        parts.push(format!("new files: {new}"));
    }
    if binary > 0 {
        parts.push(format!("new binary files: {binary}"));
    }
    if large > 0 {
        parts.push(format!("new files of {} or more: {large}", show::size(LARGE_FILE_BYTES)));
    }
    let advice = "if a build made them, list them in .gitignore or remove them, and push again";
    (!parts.is_empty()).then(|| format!("warning: {}; {advice}", parts.join(", ")))
}

fn preview_json(id: &str, preview: &PushSessionResponse) -> Value {
    let file = |file: &PushedFile| {
        json!({
            "path": file.path, "additions": file.additions, "deletions": file.deletions, "is_binary": file.is_binary,
            "is_new": file.is_new, "size_bytes": file.size_bytes,
        })
    };
    json!({
        "type": "push_preview", "session": id, "url": preview.url, "branch": preview.branch, "commits": preview.commits,
        "files": preview.files, "changes": preview.changes.iter().map(file).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::tests::fake::{Fake, SESSION};

    #[tokio::test]
    async fn a_push_says_before_what_would_go_and_then_what_went_where() {
        let (fake, output) = (Fake::default(), Output::kept(false));
        let words = ["push", SESSION, "--branch", "agent/fix", "--message", "Fix it"];
        fake.run(&output, &words).await.unwrap();
        assert_eq!(
            output.take().trim(),
            "pushed 1 commit with 2 files to agent/fix of https://h/r: c0ffee, but not: the stash, 1 entry"
        );
        let before = output.take_notes();
        assert!(
            before.starts_with("would push 1 commit with 2 files to agent/fix of https://h/r\n"),
            "{before}"
        );
        assert_eq!(fake.0.lock().unwrap().orders, ["dry run", "Fix it"]);
    }

    #[tokio::test]
    async fn a_dry_run_names_the_files_and_pushes_nothing() {
        let (fake, output) = (Fake::default(), Output::kept(false));
        fake.run(&output, &["push", SESSION, "--branch", "agent/fix", "--dry-run"]).await.unwrap();
        assert_eq!(
            output.take(),
            "would push 1 commit with 2 files to agent/fix of https://h/r\n  src/a.rs  +3 -1\n  target/a.bin  new, binary, 5 MiB\n  old  +0 -9\n\
             warning: new binary files: 1, new files of 1 MiB or more: 1; if a build made them, list them in .gitignore or remove them, and push again\n"
        );
        assert_eq!(fake.0.lock().unwrap().orders, ["dry run"]);
    }

    #[test]
    fn many_new_files_are_counted_and_the_first_are_named() {
        let file = |at: usize| PushedFile {
            path: format!("f{at}"),
            is_new: true,
            additions: 1,
            ..PushedFile::default()
        };
        let preview = PushSessionResponse {
            commits: 1,
            files: 1_300,
            changes: (0..1_000).map(file).collect(),
            ..PushSessionResponse::default()
        };
        let text = described(&preview, SHOWN_FILES, Paint::Plain);
        assert!(text.contains("  f19  new, +1 -0\n  and 1280 more;") && !text.contains("f20"), "{text}");
        assert!(text.contains("warning: new files: 1000;"), "{text}");
        let few = PushSessionResponse { changes: vec![file(1)], files: 1, ..preview };
        assert!(!described(&few, SHOWN_FILES, Paint::Plain).contains("warning"));
    }
}
