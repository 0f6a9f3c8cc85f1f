//! Reads what a commit of a repository has for agents: its configuration and its guidance. No program of a tenant runs with the cloned files meanwhile, so what
//! is read is what people have committed. The session that asks keeps the files as a draft, in case it opens them; those of a warm-up are removed.

use super::{
    ahead,
    clone::{ClonedFiles, GitClone},
    spec::OpenSpec,
};
use crate::{
    error::Error,
    helper::{Queue, Task, refused},
    isolation::launch::Mount,
    mirror::key::MirrorKey,
    session::{draft::Draft, slots::Slot, state::Session},
    tree::source::{LfsOrigins, Source},
    workspace::{close, door, scratch::Scratch},
};
use domain::limits;
use rpc::v1::{self, ErrorCode};
use sandbox_wire::{
    frame,
    v1::{Reply, reply},
};
use std::{path::Path, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// Prints the guidance of /workspace. `$@`: what it includes.
const SCRIPT: &str = "exec /opt/flotilla/init guidance \"$@\"";
/// Bytes of the guidance that a helper prints: somewhat more than its bounds in `flotilla-init` allow.
const GUIDANCE_BYTES_MAX: usize = 1024 * 1024;

/// What a caller wants to know of a source.
#[derive(Debug, Default)]
pub struct Question {
    /// What the guidance includes, as in the settings.
    pub instructions: Vec<String>,
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
    let guidance = read_guidance(session, &build, uid, &question.instructions).await;
    let Draft { base_commit, has_linked_content, configuration, .. } = &draft;
    let answer =
        guidance.map(|guidance| answer(base_commit, guidance, configuration.clone(), *has_linked_content));
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
        let guidance = read_guidance(door, build, uid, &question.instructions).await?;
        let configuration = cloned.configuration(door, build, uid).await?;
        let ClonedFiles { base_commit, .. } = cloned;
        Ok(answer(&base_commit, guidance, configuration, has_linked_content))
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

fn answer(
    commit: &str,
    mut guidance: v1::ReadGuidanceResponse,
    configuration: v1::ConfigurationFiles,
    has_linked_content: bool,
) -> v1::ReadSourceResponse {
    let v1::ConfigurationFiles { files, left_out, too_large } = configuration;
    guidance.configuration = files;
    guidance.left_out.extend(left_out);
    guidance.too_large.extend(too_large);
    commit.clone_into(&mut guidance.base_commit);
    let (commit, guidance) = (commit.to_owned(), Some(guidance));
    v1::ReadSourceResponse { commit, is_known: false, guidance, has_linked_content }
}

/// Reads the guidance of cloned files, by the same program that reads it in the sandbox of a session.
async fn read_guidance(
    session: &Session,
    build: &Path,
    uid: u32,
    instructions: &[String],
) -> Result<v1::ReadGuidanceResponse, Error> {
    let time_limit = Duration::from_millis(limits::WORKSPACE_HELPER_MS);
    let task = Task {
        script: SCRIPT,
        arguments: instructions.to_vec(),
        mounts: vec![Mount::read(build, "/workspace"), door::init(session)],
        queue: Queue::Quick,
        ..Task::new(session.key.tenant, uid, time_limit)
    };
    let output = session.shared.helpers.run(task, GUIDANCE_BYTES_MAX).await?;
    match frame::read::<Reply>(&mut output.stdout.as_slice()) {
        Ok(Some(Reply { body: Some(reply::Body::ReadGuidance(guidance)), .. })) => Ok(guidance),
        _ => Err(refused(
            ErrorCode::Internal,
            "the guidance of the repository could not be read",
            &output.stderr,
        )),
    }
}
