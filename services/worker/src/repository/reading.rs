//! What the commit of a source has for agents: its configuration and its guidance, and files that prompts name. It is read once for all sessions of the project, and stored. So the first
//! model call of a session needs no files. Of a repository with submodules or files of Git LFS nothing is stored but that: what a reader gets of these depends on the
//! reader.

use super::stored::from_store;
use crate::process::{deps::Deps, store_timeout::with_store_timeout};
use domain::{
    ids::{ProjectId, TenantId},
    session::{Source, files::SourceFiles},
    text,
};
use prost::Message as _;
use rpc::v1::{self, open_workspace_request::Part};
use std::time::Duration;
use store::tenant::readings::{KnownCommit, NewReading, PeoplesSource};
use tonic::Status;

/// Time for which a branch is taken to name the same commit, in the first loop of a session: sessions that begin together ask the server once. Milliseconds.
const FIRST_LOOP_FRESH_MS: u64 = 5_000;
/// The same for a later loop, in a conversation that goes on without files. Milliseconds.
const LATER_LOOP_FRESH_MS: u64 = 600_000;
/// Longest wait for another session that reads the same source.
const TURN_WAIT: Duration = Duration::from_secs(5);

/// The epoch of the first loop of a session.
const FIRST_EPOCH: u64 = 1;

/// What is read of a commit.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CommitQuestion<'a> {
    /// Its guidance, with what these instructions include.
    Guidance(&'a [String]),
    /// These files, in place of the guidance.
    Files(&'a [v1::ReadLinesRequest]),
}

impl CommitQuestion<'_> {
    fn request(self) -> v1::ReadSourceRequest {
        match self {
            Self::Guidance(instructions) => {
                v1::ReadSourceRequest { instructions: instructions.to_vec(), ..Default::default() }
            }
            Self::Files(files) => v1::ReadSourceRequest { files: files.to_vec(), ..Default::default() },
        }
    }

    /// Its name among the questions about a commit.
    fn name(self) -> Vec<String> {
        match self {
            Self::Guidance(instructions) => instructions.to_vec(),
            // No instruction has a zero byte.
            Self::Files(files) => {
                files.iter().map(|file| format!("\0{}", text::hex(&file.encode_to_vec()))).collect()
            }
        }
    }
}

/// The readings of the source of one session.
pub(super) struct CommitReadings<'a> {
    deps: &'a Deps,
    tenant: TenantId,
    of: PeoplesSource<'a>,
    fresh_ms: u64,
}

impl<'a> CommitReadings<'a> {
    /// `epoch` is that of the loop. `None`: an agent may have written the files of the source, so they guide only this session.
    pub(super) fn of(
        deps: &'a Deps,
        tenant: TenantId,
        epoch: u64,
        project: &'a ProjectId,
        source: &'a Source,
    ) -> Option<Self> {
        let SourceFiles::People(files) = source.files() else { return None };
        let fresh_ms = if epoch <= FIRST_EPOCH { FIRST_LOOP_FRESH_MS } else { LATER_LOOP_FRESH_MS };
        Some(Self { deps, tenant, of: PeoplesSource { project, source, files }, fresh_ms })
    }

    /// Finds the answer about the commit that the source names, or has it read with `ask`. `None`: the session has files already.
    ///
    /// # Errors
    /// `store_unavailable`; those of `ask`.
    ///
    /// Cancel-safe.
    pub(super) async fn read(
        &self,
        question: CommitQuestion<'_>,
        ask: impl AsyncFnOnce(v1::ReadSourceRequest) -> Result<v1::ReadSourceResponse, Status>,
    ) -> Result<Option<v1::ReadSourceResponse>, Status> {
        if let Some(found) = self.find(question).await?.and_then(|known| self.fresh(known)) {
            return Ok(Some(found));
        }
        let key = (self.tenant, self.of.project.clone(), self.of.digest());
        let turn = self.deps.source_reads.of(key);
        // A clone that takes long holds up only itself.
        let _turn = tokio::time::timeout(TURN_WAIT, turn.lock()).await;
        // The loop before may have read it meanwhile.
        let known = self.find(question).await?;
        if let Some(found) = known.clone().and_then(|known| self.fresh(known)) {
            return Ok(Some(found));
        }
        self.ask(known, question, ask).await
    }

    /// Has the source read with `ask`, unless it names the known commit. `None`: the session has files already.
    ///
    /// # Errors
    /// Those of `ask`.
    pub(super) async fn ask(
        &self,
        known: Option<KnownCommit>,
        question: CommitQuestion<'_>,
        ask: impl AsyncFnOnce(v1::ReadSourceRequest) -> Result<v1::ReadSourceResponse, Status>,
    ) -> Result<Option<v1::ReadSourceResponse>, Status> {
        let known = known.and_then(|KnownCommit { commit, reading, .. }| Some((commit, decode(&reading?)?)));
        let known_commit = known.as_ref().map(|(commit, _)| commit.clone()).unwrap_or_default();
        let read = ask(v1::ReadSourceRequest { known_commit, ..question.request() }).await?;
        if read.commit.is_empty() {
            return Ok(None);
        }
        let (store, tenant) = (&self.deps.store, self.tenant);
        if read.is_known {
            self.note(store.note_source_commit(tenant, self.of, &read.commit)).await;
            return Ok(known.map(|(_, reading)| reading));
        }
        let read = match read.has_linked_content {
            true => v1::ReadSourceResponse { guidance: None, files: vec![], ..read },
            false => read,
        };
        let new =
            NewReading { commit: &read.commit, question: &question.name(), reading: &read.encode_to_vec() };
        self.note(store.note_reading(tenant, self.of, new)).await;
        Ok(Some(read))
    }

    /// Finds what is known of the source.
    ///
    /// # Errors
    /// `store_unavailable`.
    pub(super) async fn find(&self, question: CommitQuestion<'_>) -> Result<Option<KnownCommit>, Status> {
        let name = question.name();
        from_store(|| self.deps.store.find_source_commit(self.tenant, self.of, &name)).await
    }

    /// The reading, if the source still names its commit.
    fn fresh(&self, known: KnownCommit) -> Option<v1::ReadSourceResponse> {
        let KnownCommit { age_ms, reading, .. } = known;
        let is_fresh = age_ms < self.fresh_ms || self.of.source.is_fixed();
        reading.filter(|_| is_fresh).and_then(|reading| decode(&reading))
    }

    /// Waits for a record of the store. If it fails, a later session reads the commit again.
    async fn note(&self, noted: impl Future<Output = Result<(), store::error::Error>>) {
        if let Err(error) = with_store_timeout(noted).await {
            let error = &error as &dyn std::error::Error;
            tracing::debug!(error, "what was read of a commit is not stored");
        }
    }
}

/// `None` for a reading of a version that this one does not know: it is read again.
fn decode(reading: &[u8]) -> Option<v1::ReadSourceResponse> {
    v1::ReadSourceResponse::decode(reading).ok()
}

/// A question as the messages of its call. `parts` has the header and the bytes of a bundle.
pub(super) fn messages<S>(
    question: v1::ReadSourceRequest,
    parts: S,
) -> impl tokio_stream::Stream<Item = v1::ReadSourceRequest> + use<S>
where
    S: tokio_stream::Stream<Item = v1::OpenWorkspaceRequest>,
{
    let mut question = Some(question);
    tokio_stream::StreamExt::map(parts, move |part| {
        let question = if matches!(part.part, Some(Part::Header(_))) { question.take() } else { None };
        v1::ReadSourceRequest { workspace: Some(part), ..question.unwrap_or_default() }
    })
}
