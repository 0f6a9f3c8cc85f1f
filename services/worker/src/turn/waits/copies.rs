//! Subtasks that work on a copy of the files: the copy before a subtask begins, and its changes as a patch for the parent after it has answered. Both may be
//! repeated.

use crate::{
    process::store_timeout::with_store_timeout,
    record::WriteError,
    repository::copy::copy_files,
    tools::{
        outcome::{ToolError, sandbox_error},
        task::Task,
    },
    turn::{session::Session, tool_calls::LoopCall},
};
use domain::{ids::SessionId, limits, session::Source, text};
use rpc::v1;
use serde_json::Value;
use settings::SubtaskFiles;
use std::{pin::pin, time::Duration};
use store::{
    error::{Entity, Error},
    session::{mailbox::Kind, row, tree::children::Dispatch},
};
use tonic::Status;

/// Changed files of a subtask that its parent's model reads. The others are only counted.
const FILES_LISTED_MAX: usize = 50;
/// Bytes of a path in that list. A longer one is cut.
const LISTED_PATH_BYTES_MAX: usize = 200;
/// Longest wait for the patch: the parent's model then reads the answer without it.
const PATCH_WAIT: Duration = Duration::from_secs(5 * 60);

/// Pause between two looks for an abort while the files are copied or compared.
const ABORT_LOOK_PAUSE: Duration = Duration::from_secs(1);

/// Why there is no copy.
pub(super) enum NoCopy {
    /// The session was aborted meanwhile.
    Aborted,
    /// The reason, for the model.
    Refused(String),
}

/// What a workspace of the subtask's own starts from; `None`: the subtask works in the files of this session, or continues with those that it has.
///
/// # Errors
/// As [`NoCopy`] says.
pub(super) async fn source_of(session: &Session, task: &Task) -> Result<Option<Source>, NoCopy> {
    match session.permissions.subtask_files(&task.agent) {
        SubtaskFiles::Fork if task.resumes.is_none() => {}
        SubtaskFiles::Fork | SubtaskFiles::Share => return Ok(None),
    }
    let copying = copy_files(&session.deps, &session.identity, &session.workspace);
    let copied = unless_aborted(session, copying).await.ok_or(NoCopy::Aborted)?;
    copied.map(Some).map_err(|status| {
        let (agent, message) = (&task.agent, status.message());
        let code = rpc::status::code_of(&status).unwrap_or_else(|| "sandbox_unavailable".to_owned());
        NoCopy::Refused(format!(
            "The agent {agent} works on its own copy of the files, and they cannot be copied: {message} ({code}). Do this yourself, or \
             give the task to an agent that works in the same files."
        ))
    })
}

/// Waits for work that may take minutes; `None`: the session was aborted meanwhile. The loop reads no input before the work ends.
async fn unless_aborted<T>(session: &Session, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return Some(done),
            () = tokio::time::sleep(ABORT_LOOK_PAUSE) => {}
        }
        // The loop finds out by itself why its inputs cannot be read.
        if session.list_inputs().await.is_ok_and(|inputs| inputs.iter().any(|it| it.kind == Kind::Abort)) {
            return None;
        }
    }
}

/// Keeps the changes of a subtask that worked on a copy as a patch where the tools of this session find it, and describes them for the model. `None`:
/// the subtask worked in the files of this session.
///
/// # Errors
/// `Fenced`; those of the store.
pub(super) async fn describe(
    session: &Session,
    call: &LoopCall,
    child: &SessionId,
) -> Result<Option<String>, WriteError> {
    let stored = session.deps.store.get_session(session.record.tenant(), child);
    let stored = match with_store_timeout(stored).await {
        Ok(stored) => stored,
        Err(Error::NotFound(Entity::Session)) => return Ok(None),
        Err(error) => return Err(WriteError::Store(error)),
    };
    if stored.workspace_id == session.identity.workspace {
        return Ok(None);
    }
    if !stored.has_workspace {
        return Ok(Some(description(&v1::KeepPatchResponse::default(), dispatch_of(call))));
    }
    let keeping = tokio::time::timeout(PATCH_WAIT, keep_patch(session, call, &stored));
    let late = || rpc::status::unavailable("patch_timeout", "reading its changes took too long");
    let aborted = || rpc::status::unavailable("aborted", "the turn was aborted");
    let kept = unless_aborted(session, keeping).await.unwrap_or_else(|| Ok(Err(aborted())));
    match kept.unwrap_or_else(|_| Err(late())) {
        Ok(patch) => Ok(Some(description(&patch, dispatch_of(call)))),
        Err(status) => match sandbox_error(&status) {
            ToolError::Fenced => Err(WriteError::Fenced),
            ToolError::Model(_) | ToolError::Broken(_) => Ok(Some(format!(
                "The subtask worked on its own copy of the files. Your files are unchanged. Its changes cannot be read: {}",
                status.message()
            ))),
        },
    }
}

async fn keep_patch(
    session: &Session,
    call: &LoopCall,
    child: &row::Session,
) -> Result<v1::KeepPatchResponse, Status> {
    // The session of this loop keeps the patch of the workspace of the other one.
    let fence = session.identity.fence().map(|fence| v1::Fence {
        workspace_session_id: child.workspace_id.to_string(),
        workspace_opening: Some(child.workspace_opening),
        ..fence
    });
    let request = v1::KeepPatchRequest {
        fence,
        output_id: format!("{}-patch", call.part_id),
        from_commit: child.forked_commit().unwrap_or_default().to_owned(),
    };
    let kept = session.deps.sandbox.call(|mut client| {
        let request = request.clone();
        async move { client.keep_patch(request).await }
    });
    kept.await
}

/// Whether a call began its subtask.
fn dispatch_of(call: &LoopCall) -> Dispatch {
    let task_id = call.tool.state.input().get("task_id").and_then(Value::as_str);
    if task_id.is_some_and(|id| !id.is_empty()) { Dispatch::Resumed } else { Dispatch::New }
}

/// What the model reads about the changes.
fn description(patch: &v1::KeepPatchResponse, dispatch: Dispatch) -> String {
    let v1::KeepPatchResponse { path, files, files_total, left_out } = patch;
    let mut text = "The subtask worked on its own copy of the files. Your files are unchanged. ".to_owned();
    text.push_str(&match files_total {
        0 => "It changed no files.".to_owned(),
        1 => "It changed 1 file:".to_owned(),
        count => format!("It changed {count} files:"),
    });
    for file in files.iter().take(FILES_LISTED_MAX) {
        // A name may hold line breaks.
        let name = text::head(&file.path, LISTED_PATH_BYTES_MAX).escape_debug();
        text.push_str(&format!("\n- {name} (+{} -{})", file.additions, file.deletions));
    }
    let listed = files.len().min(FILES_LISTED_MAX);
    match usize::try_from(*files_total).unwrap_or(usize::MAX).saturating_sub(listed) {
        0 => {}
        more => text.push_str(&format!("\n- and {more} more")),
    }
    if !left_out.is_empty() {
        let names: Vec<String> = left_out.iter().map(|name| name.escape_debug().to_string()).collect();
        text.push_str(&format!("\nToo large to compare, so not among these: {}", names.join("; ")));
    }
    if !path.is_empty() {
        text.push_str(&format!(
            "\nThe patch is in {path}. To take these changes over, run: git apply {path}"
        ));
        text.push_str(match dispatch {
            Dispatch::New => "",
            Dispatch::Resumed => {
                "\nIt has everything that the subtask changed in its copy. If you applied an earlier patch of this subtask, first undo that \
                 one with git apply -R."
            }
        });
    } else if *files_total > 0 {
        text.push_str(&format!(
            "\nThe patch is larger than {} bytes, so it was not kept. Let the subtask make smaller changes, or make them yourself.",
            limits::EXEC_OUTPUT_BYTES_MAX
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(count: u32, path: &str) -> v1::KeepPatchResponse {
        let file = |number| v1::DiffStat { path: format!("f{number}\n"), additions: number, deletions: 1 };
        v1::KeepPatchResponse {
            path: path.to_owned(),
            files: (0..count.min(1_000)).map(file).collect(),
            files_total: count,
            left_out: vec![],
        }
    }

    #[test]
    fn the_model_reads_what_changed_and_how_to_take_it() {
        let begin = "The subtask worked on its own copy of the files. Your files are unchanged.";
        assert_eq!(description(&changed(0, ""), Dispatch::New), format!("{begin} It changed no files."));
        let want = format!(
            "{begin} It changed 1 file:\n- f0\\n (+0 -1)\nThe patch is in /p. To take these changes over, run: git apply /p"
        );
        assert_eq!(description(&changed(1, "/p"), Dispatch::New), want);
        let again = description(&changed(1, "/p"), Dispatch::Resumed);
        assert!(again.starts_with(&want) && again.contains("git apply -R"), "{again}");
    }

    #[test]
    fn long_lists_and_patches_are_bounded_and_told() {
        let large = vec!["x, 8.0 GiB".to_owned()];
        let text =
            description(&v1::KeepPatchResponse { left_out: large, ..changed(2_000, "") }, Dispatch::New);
        assert_eq!(text.matches("\n- f").count(), FILES_LISTED_MAX);
        for part in ["changed 2000 files", "- and 1950 more", "x, 8.0 GiB", "larger than 10485760 bytes"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("git apply"), "{text}");
        let long = v1::DiffStat { path: "d/".repeat(1_000), additions: 1, deletions: 0 };
        let text =
            description(&v1::KeepPatchResponse { files: vec![long], ..changed(1, "/p") }, Dispatch::New);
        assert!(text.len() < 600, "{text}");
    }
}
