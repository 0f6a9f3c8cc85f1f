//! Subtasks that work on a copy of the files: the copy before a subtask begins, and the merge of its changes into the files of the parent after it has
//! answered. Both may be repeated.

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
use domain::{
    ids::SessionId,
    limits,
    session::{Outcome, Source},
    text,
};
use rpc::v1::{self, ErrorCode};
use serde_json::Value;
use settings::SubtaskFiles;
use std::{pin::pin, time::Duration};
use store::{
    error::{Entity, Error},
    rows::session_row,
    session::{
        mailbox::Kind,
        tree::{answers::ChildAnswer, children::Dispatch},
    },
};
use tonic::Status;

/// Changed files of a subtask that its parent's model reads. The others are only counted.
const FILES_LISTED_MAX: usize = 50;
/// Bytes of a path in that list. A longer one is cut.
const LISTED_PATH_BYTES_MAX: usize = 200;
/// Longest wait for the patch: the parent's model then reads the answer without it.
const PATCH_WAIT: Duration = Duration::from_secs(5 * 60);
/// Longest wait for the merge, with that for busy helpers: the parent's model then reads that the changes may or may not be there.
const MERGE_WAIT: Duration = Duration::from_secs(15 * 60);

/// Pause between two looks for an abort while the files are copied or compared.
const ABORT_LOOK_PAUSE: Duration = Duration::from_secs(1);

/// The reason of a work that an abort ended.
const ABORTED: &str = "the turn was aborted";
/// What the model reads first.
const OWN_COPY: &str = "The subtask worked on its own copy of the files. ";
const UNCHANGED: &str = "Your files are unchanged. ";

/// What became of the changes in the files of this session.
enum MergeOutcome {
    /// There are no changes.
    Nothing,
    /// The subtask is not done, so its changes are not merged.
    Unfinished,
    /// The reason why the sandbox did not merge them.
    Refused(String),
    /// Why it is not known whether the sandbox has merged them.
    InDoubt(String),
    /// Why the sandbox merged only some of them.
    Incomplete(String),
    /// Files with conflicts are unchanged.
    Merged(v1::MergeCopyResponse),
}

/// The changes of a subtask, as far as they could be read.
enum Patch {
    Kept(v1::KeepPatchResponse),
    /// The reason.
    Missing(String),
}

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
        let code = rpc::status::code_of(&status).unwrap_or_else(|| ErrorCode::SandboxUnavailable.as_str().to_owned());
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

/// Merges the changes of a subtask that worked on a copy into the files of this session if the subtask is done, keeps them as a patch where the tools of this
/// session find it, and describes both for the model. `None`: the subtask worked in the files of this session.
///
/// # Errors
/// `Fenced`; those of the store.
pub(super) async fn take_over(
    session: &Session,
    call: &LoopCall,
    answer: &ChildAnswer,
) -> Result<Option<String>, WriteError> {
    let stored = session.deps.store.get_session(session.record.tenant(), &answer.child);
    let stored = match with_store_timeout(stored).await {
        Ok(stored) => stored,
        Err(Error::NotFound(Entity::Session)) => return Ok(None),
        Err(error) => return Err(WriteError::Store(error)),
    };
    if stored.workspace_id == session.identity.workspace {
        return Ok(None);
    }
    let dispatch = dispatch_of(call);
    if !stored.has_workspace {
        let nothing = Patch::Kept(v1::KeepPatchResponse::default());
        return Ok(Some(description(&nothing, &MergeOutcome::Nothing, dispatch, &answer.child)));
    }
    let keeping = tokio::time::timeout(PATCH_WAIT, keep_patch(session, call, &stored));
    let kept = unless_aborted(session, keeping).await;
    let is_aborted = kept.is_none();
    let patch = match kept {
        None => Patch::Missing(ABORTED.to_owned()),
        Some(Err(_)) => Patch::Missing("this took too long".to_owned()),
        Some(Ok(Err(status))) => Patch::Missing(unless_fenced(&status)?),
        Some(Ok(Ok(patch))) => Patch::Kept(patch),
    };
    let merging = match answer.outcome {
        Outcome::Failed | Outcome::Aborted | Outcome::NeedsHuman => MergeOutcome::Unfinished,
        // A subtask that continues may have taken back what was merged before.
        Outcome::Done if dispatch == Dispatch::New && patch.is_empty() => MergeOutcome::Nothing,
        // The worker before this one may have come as far as the merge.
        Outcome::Done if is_aborted => MergeOutcome::InDoubt(ABORTED.to_owned()),
        Outcome::Done => {
            let merging = tokio::time::timeout(MERGE_WAIT, merge(session, call, &stored));
            // The sandbox may finish a merge that this loop no longer waits for.
            match unless_aborted(session, merging).await {
                None => MergeOutcome::InDoubt(ABORTED.to_owned()),
                Some(Err(_)) => MergeOutcome::InDoubt("it took too long".to_owned()),
                Some(Ok(Err(status))) => failure_of(&status)?,
                Some(Ok(Ok(merged))) => MergeOutcome::Merged(merged),
            }
        }
    };
    Ok(Some(description(&patch, &merging, dispatch, &answer.child)))
}

/// What a failed call of the sandbox says about the files of this session.
fn failure_of(status: &Status) -> Result<MergeOutcome, WriteError> {
    let reason = unless_fenced(status)?;
    Ok(match rpc::status::code(status) {
        // The sandbox did not answer, or it failed at an unknown point.
        _ if rpc::status::code_of(status).is_none() => MergeOutcome::InDoubt(reason),
        Some(ErrorCode::SandboxUnavailable | ErrorCode::Internal) => MergeOutcome::InDoubt(reason),
        Some(ErrorCode::MergeIncomplete) => MergeOutcome::Incomplete(reason),
        Some(_) | None => MergeOutcome::Refused(reason),
    })
}

/// The text of a refusal for the model.
fn unless_fenced(status: &Status) -> Result<String, WriteError> {
    match sandbox_error(status) {
        ToolError::Fenced => Err(WriteError::Fenced),
        ToolError::Model(_) | ToolError::Broken(_) => Ok(status.message().to_owned()),
    }
}

/// Merges the files of a subtask into those of this session. A repeated call gets the answer of the first.
async fn merge(
    session: &Session,
    call: &LoopCall,
    child: &session_row::Session,
) -> Result<v1::MergeCopyResponse, Status> {
    // This session may not have used its files yet.
    session.workspace.ready().await?;
    let request = v1::MergeCopyRequest {
        fence: session.identity.fence(),
        output_id: format!("{}-merge", call.part_id),
        copy_session_id: child.workspace_id.to_string(),
        copy_opening: Some(child.workspace_opening),
        from_commit: child.forked_commit().unwrap_or_default().to_owned(),
    };
    let merged = session.deps.sandbox.call(|mut client| {
        let request = request.clone();
        async move { client.merge_copy(request).await }
    });
    merged.await
}

async fn keep_patch(
    session: &Session,
    call: &LoopCall,
    child: &session_row::Session,
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
fn description(patch: &Patch, merging: &MergeOutcome, dispatch: Dispatch, child: &SessionId) -> String {
    let head = format!("{OWN_COPY}{}", merging.head(dispatch));
    let v1::KeepPatchResponse { path, files, files_total, left_out } = match patch {
        Patch::Kept(patch) => patch,
        Patch::Missing(reason) => {
            let rest = merging.rest() + &merging.copy_use(child);
            return format!("{head}The list of what it changed cannot be read: {reason}{rest}");
        }
    };
    let mut text = head;
    text.push_str(&match (*files_total, dispatch) {
        (0, Dispatch::New) => "It changed no files.".to_owned(),
        (0, Dispatch::Resumed) => "Its copy is as it was at the beginning.".to_owned(),
        (1, Dispatch::New) => "It changed 1 file:".to_owned(),
        (1, Dispatch::Resumed) => "In all, it changed 1 file:".to_owned(),
        (count, Dispatch::New) => format!("It changed {count} files:"),
        (count, Dispatch::Resumed) => format!("In all, it changed {count} files:"),
    });
    let line =
        |file: &v1::DiffStat| format!("{} (+{} -{})", shown(&file.path), file.additions, file.deletions);
    text.push_str(&list(files.iter().map(line), *files_total));
    if !left_out.is_empty() {
        let names: Vec<String> = left_out.iter().map(|name| name.escape_debug().to_string()).collect();
        text.push_str(&format!("\nToo large to compare, so not among these: {}", names.join("; ")));
    }
    text.push_str(&merging.rest());
    if path.is_empty() && *files_total > 0 {
        text.push_str(&format!(
            "\nThe patch of its changes is larger than {} bytes, so it was not kept.",
            limits::EXEC_OUTPUT_BYTES_MAX
        ));
    } else if *files_total > 0 {
        text.push_str(&merging.use_of_patch(path, dispatch));
    }
    if *files_total > 0 || !left_out.is_empty() {
        text.push_str(&merging.copy_use(child));
    }
    text
}

impl Patch {
    /// Whether it is known that there are no changes.
    fn is_empty(&self) -> bool {
        match self {
            Self::Kept(patch) => patch.files_total == 0,
            Self::Missing(_) => false,
        }
    }
}

impl MergeOutcome {
    /// What became of the files of this session.
    fn head(&self, dispatch: Dispatch) -> String {
        match self {
            Self::Nothing => UNCHANGED.to_owned(),
            Self::Unfinished => format!("{UNCHANGED}The subtask is not done, so nothing was merged. "),
            Self::Refused(reason) => format!("{UNCHANGED}Its changes cannot be merged: {reason}. "),
            Self::InDoubt(reason) => format!(
                "The merge was interrupted ({reason}), so its changes may or may not be in your files: check the files before you repeat a change. "
            ),
            Self::Incomplete(reason) => {
                format!("Its changes cannot be merged, and your files are not all as they were: {reason}. ")
            }
            Self::Merged(merged) => {
                let but = match merged.conflicts_total {
                    0 => "",
                    _ => ", except those to files with conflicts",
                };
                match (dispatch, merged.files_merged) {
                    (Dispatch::New, _) => format!("Its changes were merged into your files{but}. "),
                    (Dispatch::Resumed, count) => {
                        let changed = match count {
                            0 => "no file of yours".to_owned(),
                            1 => "1 file of yours".to_owned(),
                            count => format!("{count} files of yours"),
                        };
                        format!(
                            "Its changes since its last merge were merged into your files{but}. That changed {changed}. "
                        )
                    }
                }
            }
        }
    }

    /// The files that were not merged.
    fn rest(&self) -> String {
        let Self::Merged(merged) = self else { return String::new() };
        let v1::MergeCopyResponse { conflicts, conflicts_total, conflicts_path, left_out, .. } = merged;
        let mut text = String::new();
        if *conflicts_total > 0 {
            text.push_str("\nThese files have conflicts, so they are as they were in your files:");
            text.push_str(&list(conflicts.iter().map(|path| shown(path)), *conflicts_total));
            if conflicts_path.is_empty() {
                text.push_str("\nMake these changes yourself.");
            } else {
                text.push_str(&format!(
                    "\nThe patch {conflicts_path} shows both versions with conflict markers. Read it and make these changes yourself; or write the \
                     markers into the files with git apply {conflicts_path} and resolve them there. The patch leaves out \
                     binary files and files that git ignores in your workspace."
                ));
            }
        }
        if !left_out.is_empty() {
            let names: Vec<String> = left_out.iter().map(|path| shown(path)).collect();
            text.push_str(&format!("\nToo large to merge, so only in its copy: {}", names.join("; ")));
        }
        text
    }

    /// Where changes are that the files of this session may not have, and for how long.
    fn copy_use(&self, child: &SessionId) -> String {
        match self {
            Self::Nothing | Self::Merged(_) => String::new(),
            Self::Unfinished | Self::Refused(_) | Self::InDoubt(_) | Self::Incomplete(_) => format!(
                "\nThe copy has these changes until the subtask or this session is deleted; the patch may go earlier, as old outputs do. A task with task_id {child} \
                 continues in the copy. People see its changes with `flotilla diff {child}`."
            ),
        }
    }

    /// What the patch with all changes is good for.
    fn use_of_patch(&self, path: &str, dispatch: Dispatch) -> String {
        match self {
            Self::Nothing => String::new(),
            Self::Merged(_) | Self::InDoubt(_) | Self::Incomplete(_) => {
                format!("\nThe patch with everything that it changed is in {path}.")
            }
            Self::Unfinished | Self::Refused(_) => {
                let apply =
                    format!("\nThe patch is in {path}. To take these changes over, run: git apply {path}");
                match dispatch {
                    Dispatch::New => apply,
                    Dispatch::Resumed => format!(
                        "{apply}\nIt has everything that the subtask changed in its copy. If an earlier patch or merge of this subtask is in your files, \
                         revert it first."
                    ),
                }
            }
        }
    }
}

/// A name on one line: it may hold line breaks.
fn shown(path: &str) -> String {
    text::head(path, LISTED_PATH_BYTES_MAX).escape_debug().to_string()
}

/// One line for each of the first files, and the number of the others.
fn list(lines: impl Iterator<Item = String>, total: u32) -> String {
    let listed: Vec<String> = lines.take(FILES_LISTED_MAX).map(|line| format!("\n- {line}")).collect();
    let more = usize::try_from(total).unwrap_or(usize::MAX).saturating_sub(listed.len());
    let rest = if more > 0 { format!("\n- and {more} more") } else { String::new() };
    listed.concat() + &rest
}

#[cfg(test)]
mod tests;
