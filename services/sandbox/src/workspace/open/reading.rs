//! Reads what a commit of a repository has for agents: its configuration and its guidance, or files that a prompt names. No program of a tenant runs with the cloned files meanwhile, so what
//! is read is what people have committed. The session that asks keeps the files as a draft, in case it opens them; those of a warm-up are removed.

use super::{ahead, clone::GitClone, spec::OpenSpec};
use crate::{
    code,
    error::Error,
    helper::{Output, Queue, Task, refused},
    isolation::launch::Mount,
    mirror::key::MirrorKey,
    session::{draft::Draft, slots::Slot, state::Session},
    tree::source::{LfsOrigins, Source},
    workspace::{close, door, scratch::Scratch},
};
use domain::{limits, text};
use rpc::v1::{self, ErrorCode};
use sandbox_wire::{
    frame,
    v1::{Reply, Request, reply, request},
};
use std::{path::Path, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// Prints the guidance of /workspace. `$@`: what it includes.
const GUIDANCE_SCRIPT: &str = "exec /opt/flotilla/init guidance \"$@\"";
/// Prints lines of files in /workspace. `$@`: the requests.
const LINES_SCRIPT: &str = "exec /opt/flotilla/init lines \"$@\"";
/// Bytes that a helper prints: somewhat more than the bounds of guidance in `flotilla-init`, and of lines, allow.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// What a caller wants to know of a source.
#[derive(Debug, Default)]
pub struct Question {
    /// What the guidance includes, as in the settings.
    pub instructions: Vec<String>,
    /// Files to read in place of the guidance.
    pub files: Vec<v1::ReadLinesRequest>,
    /// The commit that the caller has read before; empty: none.
    pub known_commit: String,
    /// Whether no session waits for the answer, and the mirror is to be filled.
    pub is_ahead: bool,
}

/// Reads it. `session` has the door through which a private repository is read.
///
/// # Errors
/// Those of a clone; `argument_invalid` without a source; `helpers_busy`: it is asked ahead, and the tenant or the machine reads others already; `disk_full`.
///
/// It ends early when the caller has `left`. Dropped midway: the next clone of the session begins again, but must not do so before the last step has ended, so
/// call it from a task.
pub async fn run(
    session: &Arc<Session>,
    spec: &OpenSpec,
    question: &Question,
    left: &CancellationToken,
) -> Result<v1::ReadSourceResponse, Error> {
    let missing = || Error::refused(ErrorCode::ArgumentInvalid, "the call names no source");
    let source = spec.source.as_ref().ok_or_else(missing)?;
    spec.check_names()?;
    if question.is_ahead {
        return read_ahead(session, spec, source, question, left).await;
    }
    close::remove_older(session, spec.key.opening).await?;
    let mut files = session.files.lock().await;
    if session.find_workspace().await?.is_some() {
        return Ok(v1::ReadSourceResponse::default());
    }
    let of_draft = files.draft.as_ref().map(|draft| draft.base_commit.clone());
    if !question.known_commit.is_empty() || of_draft.is_some() {
        let place = HelperDirectory::take(session)?;
        let tip = spec.clone_of(source, session, place.scratch.path(), place.uid).find_tip(left).await;
        place.scratch.remove().await;
        let tip = tip?;
        if of_draft.is_some() && tip.is_some() && of_draft != tip {
            // The session has no files of an older commit than the one that guides it.
            files.draft = None;
        }
        if tip.is_some_and(|tip| tip == question.known_commit) {
            return Ok(known(question));
        }
    }
    let draft = ahead::take_draft(session, &mut files, spec, source, left).await?;
    let (build, uid) = (ahead::build_directory(session), session.shared.uid(draft.slot.number()));
    let tree = ClonedTree { session, path: &build, uid };
    let Draft { base_commit, has_linked_content, configuration, .. } = &draft;
    let answer = tree.answer(question, configuration.clone()).await;
    let answer = answer.map(|answer| of_commit(answer, base_commit, *has_linked_content));
    files.draft = Some(draft);
    drop(files);
    ahead::expire(session);
    answer
}

/// Reads it for sessions to come, and keeps what the clone transfers. `door` only has the door of the warm-ups of the project.
async fn read_ahead(
    door: &Arc<Session>,
    spec: &OpenSpec,
    source: &Source,
    question: &Question,
    left: &CancellationToken,
) -> Result<v1::ReadSourceResponse, Error> {
    let (mirrors, disk_bytes) = (&door.shared.mirrors, door.shared.config.disk_bytes);
    let mirror = spec.project.as_ref().and_then(|it| MirrorKey::of(door.key.tenant, it, source));
    let mirror = mirror.filter(|key| mirrors.wants(key));
    let _permit = mirrors.begin_warm_up(door.key.tenant).await?;
    // Held, so that the end of the tenant waits for this clone and removes what it kept.
    let _files = door.files.lock().await;
    let place = HelperDirectory::take(door)?;
    // Each session brings its own objects of Git LFS, and its submodules.
    let lfs = LfsOrigins::default();
    let clone = spec.clone_of(source, door, place.scratch.path(), place.uid);
    let clone = GitClone { lfs: &lfs, has_door: false, ..clone };
    let read = async {
        let knows_commit = !question.known_commit.is_empty();
        if mirror.is_none()
            && knows_commit
            && clone.find_tip(left).await?.as_ref() == Some(&question.known_commit)
        {
            return Ok(known(question));
        }
        // The clone, and the copy for the mirror: sessions keep the reserve.
        door.disk.check_room(2 * disk_bytes)?;
        let cloned = clone.run(left).await?;
        let GitClone { build, uid, .. } = clone;
        let has_linked_content = cloned.has_linked_content(build);
        let configuration = cloned.configuration(door, build, uid).await?;
        let answer = ClonedTree { session: door, path: build, uid }.answer(question, configuration).await?;
        Ok(of_commit(answer, &cloned.base_commit, has_linked_content))
    };
    let read = read.await;
    place.scratch.remove().await;
    if let Some(key) = mirror
        && read.is_ok()
        && mirrors.wants(&key)
    {
        // It cannot have a mirror, so another clone would be in vain.
        mirrors.give_up(&key);
    }
    read
}

/// A directory for a helper, which belongs to a user of its own.
struct HelperDirectory {
    _slot: Slot,
    uid: u32,
    scratch: Scratch,
}

impl HelperDirectory {
    fn take(session: &Session) -> Result<Self, Error> {
        let slot = session.shared.take_slot(session.key.tenant)?;
        let uid = session.shared.uid(slot.number());
        Ok(Self { scratch: Scratch::make(session, uid)?, _slot: slot, uid })
    }
}

/// The answer to a caller that knows the commit.
fn known(question: &Question) -> v1::ReadSourceResponse {
    v1::ReadSourceResponse { commit: question.known_commit.clone(), is_known: true, ..Default::default() }
}

/// An answer that says which commit it is about.
fn of_commit(
    mut answer: v1::ReadSourceResponse,
    commit: &str,
    has_linked_content: bool,
) -> v1::ReadSourceResponse {
    if let Some(guidance) = &mut answer.guidance {
        commit.clone_into(&mut guidance.base_commit);
    }
    v1::ReadSourceResponse { commit: commit.to_owned(), has_linked_content, ..answer }
}

/// The files of a clone, which belong to a user of their own.
struct ClonedTree<'a> {
    session: &'a Session,
    path: &'a Path,
    uid: u32,
}

impl ClonedTree<'_> {
    /// Reads them by the same program that reads them in the sandbox of a session.
    ///
    /// # Errors
    /// `internal`: the program failed; those of a helper.
    async fn answer(
        &self,
        question: &Question,
        configuration: v1::ConfigurationFiles,
    ) -> Result<v1::ReadSourceResponse, Error> {
        if !question.files.is_empty() {
            let files = self.read_files(&question.files).await?;
            return Ok(v1::ReadSourceResponse { files, ..Default::default() });
        }
        let printed = self.print(GUIDANCE_SCRIPT, question.instructions.clone()).await?;
        let Some(reply::Body::ReadGuidance(mut guidance)) = printed.replies().next() else {
            return Err(printed.failed("the guidance of the repository could not be read"));
        };
        let v1::ConfigurationFiles { files, left_out, too_large } = configuration;
        guidance.configuration = files;
        guidance.left_out.extend(left_out);
        guidance.too_large.extend(too_large);
        Ok(v1::ReadSourceResponse { guidance: Some(guidance), ..Default::default() })
    }

    async fn read_files(&self, files: &[v1::ReadLinesRequest]) -> Result<Vec<v1::SourceFile>, Error> {
        let request = |file: &v1::ReadLinesRequest| {
            let body = request::Body::ReadLines(v1::ReadLinesRequest { fence: None, ..file.clone() });
            text::hex(&frame::encode(&Request { id: 0, body: Some(body) }))
        };
        let printed = self.print(LINES_SCRIPT, files.iter().map(request).collect()).await?;
        let read: Option<Vec<_>> = printed.replies().map(source_file).collect();
        match read {
            Some(read) if read.len() == files.len() => Ok(read),
            _ => Err(printed.failed("files of the repository could not be read")),
        }
    }

    async fn print(&self, script: &'static str, arguments: Vec<String>) -> Result<Printed, Error> {
        let Self { session, path, uid } = *self;
        let time_limit = Duration::from_millis(limits::WORKSPACE_HELPER_MS);
        let task = Task {
            script,
            arguments,
            mounts: vec![Mount::read(path, "/workspace"), door::init(session)],
            queue: Queue::Quick,
            ..Task::new(session.key.tenant, uid, time_limit)
        };
        session.shared.helpers.run(task, ANSWER_BYTES_MAX).await.map(Printed)
    }
}

/// What the program printed.
struct Printed(Output);

impl Printed {
    fn replies(&self) -> impl Iterator<Item = reply::Body> {
        let mut frames = self.0.stdout.as_slice();
        std::iter::from_fn(move || frame::read::<Reply>(&mut frames).ok().flatten()?.body)
    }

    fn failed(&self, what: &'static str) -> Error {
        refused(ErrorCode::Internal, what, &self.0.stderr)
    }
}

/// `None` for a reply to another request.
fn source_file(reply: reply::Body) -> Option<v1::SourceFile> {
    match reply {
        reply::Body::ReadLines(lines) => Some(v1::SourceFile { lines: Some(lines), ..Default::default() }),
        reply::Body::Failure(failure) => Some(v1::SourceFile {
            refusal: code::of_failure(failure.code()).as_str().to_owned(),
            reason: failure.message,
            ..Default::default()
        }),
        _ => None,
    }
}
