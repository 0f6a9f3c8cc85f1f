//! Reads and patches the files of a directory through the sandbox.

use super::{visits, workspace};
use crate::{
    app::{
        gateway::Gateway,
        sessions::output::{WorkspaceDiff, diff_workspace},
        settings::newest_open,
    },
    auth::principal::Principal,
    backends::{files::FileReader, sandbox::fence},
    errors::{error::Error, invalid::Invalid, refusal::Refusal},
    scope::Scope,
    state::State,
};
use domain::{ids::TenantId, session::WORKSPACE};
use futures::{StreamExt as _, stream};
use rpc::v1::{self, ErrorCode, FileKind};
use std::ops::Range;
use store::{Page, rows::session_row::Session, session::sessions::Filter, tenant::worktrees::SessionArea};
use tonic::Status;

/// Entries of a directory, and files that a search for a name examines. Further ones are left out.
const NAMES_MAX: u32 = 10_000;
/// Matching lines of a search. Further ones are left out.
const MATCHES_MAX: u32 = 200;
/// Bytes of a file. A longer file is cut.
const FILE_BYTES_MAX: u32 = 10 * 1024 * 1024;
/// Bytes of a skill. A longer one is cut.
const SKILL_BYTES_MAX: u32 = 64 * 1024;
/// Skills that are read at the same time.
const SKILLS_AT_ONCE: usize = 4;

/// The files of a directory: those of the session that the client last worked with there, else of the newest root session.
pub(crate) struct DirectoryFiles {
    state: State,
    tenant: TenantId,
    session: Session,
}

/// A line that matches a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LineMatch {
    pub(crate) path: String,
    pub(crate) line: u64,
    pub(crate) text: String,
    /// Where the line begins in its file.
    pub(crate) offset_bytes: u64,
    /// The matches in the text, in bytes.
    pub(crate) spans: Vec<Range<usize>>,
}

/// A skill of the repository, with its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SkillFile {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) location: String,
    pub(crate) content: String,
}

impl DirectoryFiles {
    /// Finds the files of a directory; `None` if it has no session.
    ///
    /// # Errors
    /// `store_unavailable`.
    pub(crate) async fn find(
        gateway: &Gateway,
        principal: &Principal,
        area: &SessionArea,
    ) -> Result<Option<Self>, Error> {
        let (state, tenant) = (&gateway.state, principal.tenant(Scope::Read)?);
        let visited = visits::list(gateway, principal, area).await?;
        Self::of_last(state, tenant, area, visited).await
    }

    /// The files of the session that was visited last, else of the newest one.
    async fn of_last(
        state: &State,
        tenant: TenantId,
        area: &SessionArea,
        visited: Vec<Session>,
    ) -> Result<Option<Self>, Error> {
        let session = match visited.into_iter().next() {
            Some(visited) => Some(visited),
            None => {
                let filter = Filter { only_roots: true, ..Filter::from(area.clone()) };
                let page = Page { limit: 1, cursor: None };
                state.store.list_sessions(tenant, &filter, &page).await?.pop()
            }
        };
        Ok(session.map(|session| Self { state: state.clone(), tenant, session }))
    }

    /// Finds the files to complete names and to search: those of the session that the client last worked with and whose files are open, else of the
    /// newest such session, because a new session has none before its first call. `None` if the directory has no session.
    ///
    /// # Errors
    /// `store_unavailable`.
    pub(crate) async fn find_open(
        gateway: &Gateway,
        principal: &Principal,
        area: &SessionArea,
    ) -> Result<Option<Self>, Error> {
        let (state, tenant) = (&gateway.state, principal.tenant(Scope::Read)?);
        let visited = visits::list(gateway, principal, area).await?;
        let open = match visited.iter().find(|session| session.has_workspace) {
            Some(visited) => Some(visited.clone()),
            None => newest_open(state, tenant, area).await?,
        };
        match open {
            Some(session) => Ok(Some(Self { state: state.clone(), tenant, session })),
            None => Self::of_last(state, tenant, area, visited).await,
        }
    }

    /// The branch of the session's files.
    pub(crate) fn branch(&self) -> Option<&str> {
        self.session.branch.as_deref()
    }

    fn fence(&self) -> Option<v1::Fence> {
        Some(fence(self.tenant, &self.session))
    }

    async fn reader(&self) -> Result<FileReader, Error> {
        self.state.file_reads.take(self.tenant).await
    }

    /// Lists the entries of a directory; the names of subdirectories end with a slash. Empty for a file.
    ///
    /// # Errors
    /// `file_not_found` and other refusals of the sandbox; `sandbox_unavailable`, `requests_too_many`.
    pub(crate) async fn list(&self, path: &str) -> Result<Vec<String>, Error> {
        let request = v1::ReadLinesRequest {
            fence: self.fence(),
            path: inside(path),
            lines_max: NAMES_MAX,
            bytes_max: FILE_BYTES_MAX,
            ..Default::default()
        };
        let reader = self.reader().await?;
        let listing = self.or_no_files(reader.read_lines(request).await)?;
        Ok(if listing.kind() == FileKind::Directory { listing.lines } else { vec![] })
    }

    /// Reads a file.
    ///
    /// # Errors
    /// Those of [`DirectoryFiles::list`]; `workspace_missing`.
    pub(crate) async fn read(&self, path: &str) -> Result<Vec<u8>, Error> {
        let request = v1::ReadFileRequest {
            fence: self.fence(),
            path: inside(path),
            bytes_max: FILE_BYTES_MAX,
            ..Default::default()
        };
        let reader = self.reader().await?;
        Ok(reader.read_file(request).await?.data)
    }

    /// Lists the paths of the files.
    ///
    /// # Errors
    /// Those of [`DirectoryFiles::list`].
    pub(crate) async fn paths(&self) -> Result<Vec<String>, Error> {
        let request = v1::GlobFilesRequest {
            fence: self.fence(),
            pattern: "**/*".to_owned(),
            entries_max: NAMES_MAX,
            ..Default::default()
        };
        let reader = self.reader().await?;
        let files = self.or_no_files(reader.glob_files(request).await)?;
        Ok(files.entries.into_iter().map(|entry| entry.path).collect())
    }

    /// Finds the lines that match a regular expression.
    ///
    /// # Errors
    /// Those of [`DirectoryFiles::list`].
    pub(crate) async fn search(&self, pattern: String) -> Result<Vec<LineMatch>, Error> {
        let request = v1::GrepFilesRequest {
            fence: self.fence(),
            pattern,
            matches_max: MATCHES_MAX,
            ..Default::default()
        };
        let reader = self.reader().await?;
        let found = self.or_no_files(reader.grep_files(request).await)?;
        let span = |span: v1::GrepSpan| span.start as usize..span.end as usize;
        let line = |line: v1::GrepMatch| LineMatch {
            path: line.path,
            line: line.line,
            text: line.text,
            offset_bytes: line.offset_bytes,
            spans: line.spans.into_iter().map(span).collect(),
        };
        Ok(found.matches.into_iter().map(line).collect())
    }

    /// Returns the changes of the session since it began; empty before its files exist.
    ///
    /// # Errors
    /// Those of [`DirectoryFiles::list`].
    pub(crate) async fn diff(&self) -> Result<WorkspaceDiff, Error> {
        match diff_workspace(&self.state, self.tenant, &self.session).await {
            Err(Error::Sandbox(Refusal { code: Some(ErrorCode::WorkspaceMissing), .. })) => {
                Ok(WorkspaceDiff::default())
            }
            diff => diff,
        }
    }

    /// Applies a patch. A patch that does not fit changes nothing. Opens the workspace if no prompt has done so yet.
    ///
    /// # Errors
    /// `scope_missing`; `patch_refused`, `file_not_permitted`, `workspace_missing`, all as mistakes of the call; other refusals of the sandbox;
    /// `sandbox_unavailable`, `store_unavailable`.
    pub(crate) async fn apply(&self, principal: &Principal, patch: String) -> Result<(), Error> {
        principal.require(Scope::Write)?;
        let request = v1::ApplyPatchRequest { fence: self.fence(), patch };
        let apply = || {
            let (files, request) = (self.state.sandbox.files(), request.clone());
            async move { files.apply_patch(request).await }
        };
        let owner = &self.session.workspace_id;
        let applied = workspace::with_files(&self.state, self.tenant, owner, apply).await;
        applied.map(drop).map_err(|error| match error {
            Error::Sandbox(Refusal { code: Some(ErrorCode::WorkspaceMissing), message, .. }) => {
                Invalid::WorkspaceMissing.because(message)
            }
            Error::Sandbox(Refusal { code: Some(ErrorCode::PatchRefused), message, .. }) => {
                Invalid::PatchRefused.because(message)
            }
            Error::Sandbox(Refusal { code: Some(ErrorCode::FileNotPermitted), message, .. }) => {
                Invalid::PatchNotPermitted.because(message)
            }
            other => other,
        })
    }

    /// Reads the skills of the repository. A skill that cannot be read is left out.
    ///
    /// # Errors
    /// Those of [`DirectoryFiles::list`].
    pub(crate) async fn skills(&self) -> Result<Vec<SkillFile>, Error> {
        let request = v1::ReadGuidanceRequest { fence: self.fence(), ..Default::default() };
        let reader = self.reader().await?;
        let guidance = self.or_no_files(reader.read_guidance(request).await)?;
        let skills = stream::iter(guidance.skills).map(|skill| self.skill(&reader, skill));
        Ok(skills.buffered(SKILLS_AT_ONCE).filter_map(std::future::ready).collect().await)
    }

    async fn skill(&self, reader: &FileReader, skill: v1::Skill) -> Option<SkillFile> {
        let location = format!("{WORKSPACE}/{}", skill.path);
        let request = v1::ReadFileRequest {
            fence: self.fence(),
            path: location.clone(),
            bytes_max: SKILL_BYTES_MAX,
            ..Default::default()
        };
        let file = reader.read_file(request).await.ok()?;
        let content = String::from_utf8_lossy(&file.data).into_owned();
        Some(SkillFile { name: skill.name, description: skill.description, location, content })
    }

    /// The result, or an empty one before the workspace exists.
    fn or_no_files<T: Default>(&self, answer: Result<T, Status>) -> Result<T, Error> {
        match answer.map_err(|status| Error::from(status).about_files(self.session.has_workspace)) {
            Ok(answer) => Ok(answer),
            Err(Error::Sandbox(refusal)) if refusal.code == Some(ErrorCode::WorkspaceMissing) => {
                Ok(T::default())
            }
            Err(error) => Err(error),
        }
    }
}

/// Converts a client's path to a path in the sandbox, always below the workspace.
pub(crate) fn inside(path: &str) -> String {
    let below = path.strip_prefix(WORKSPACE).filter(|rest| rest.is_empty() || rest.starts_with('/'));
    let names = below.unwrap_or(path).split('/').filter(|name| !name.is_empty() && *name != ".");
    std::iter::once(WORKSPACE).chain(names).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_below_the_workspace() {
        for (path, want) in [
            (".", "/workspace"),
            ("", "/workspace"),
            ("/workspacer/a/", "/workspace/workspacer/a"),
            ("./a/../b", "/workspace/a/../b"),
            ("/workspace/a", "/workspace/a"),
            ("a/b", "/workspace/a/b"),
            ("/etc/passwd", "/workspace/etc/passwd"),
        ] {
            assert_eq!(inside(path), want);
        }
    }
}
