//! What a push has before git loads its bundle: the answers of the server, the files of the base commit, and the bundle in a file. Its parts run at the same
//! time, and their errors have the order of this list, whichever comes first:
//!
//! 1. the name of the newest commit, which says whether there is anything to push;
//! 2. the version of the server;
//! 3. what the server can do with pushes;
//! 4. the references;
//! 5. the bundle;
//! 6. the files of the base commit.
//!
//! The server gets three questions at once, and the sandbox may still read the files of the session then. The request for the base commit waits for the version,
//! and the one for the commits of earlier pushes for the references, so a credential that the server refuses fails three requests and not more.

use super::{
    bundle,
    error::PushError,
    order::{alongside, in_order},
    remote::{
        receive::Capabilities,
        server::Server,
        upload::{Fetch, References},
    },
    repository::Repository,
    request::{ObjectId, PushPart, PushRequest},
};
use futures::{FutureExt as _, Stream, TryFutureExt as _};
use tokio::sync::oneshot;

/// The file of the files of the base commit.
const BASE_PACK: &str = "base.pack";
/// The file of the commits that the branch has.
pub(super) const EARLIER_PACK: &str = "earlier.pack";
/// The file with the commits that have no history here.
const SHALLOW: &str = "repository/shallow";

/// What a plan begins with. The directory has the bundle, and its repository the base commit.
#[derive(Debug)]
pub(super) struct Preparation {
    /// The newest commit of the bundle.
    pub(super) commit: ObjectId,
    pub(super) capabilities: Capabilities,
    pub(super) branch: RemoteBranch,
}

/// The branch of a push at the server.
#[derive(Debug)]
pub(super) struct RemoteBranch {
    /// The commit at which it is. `None`: there is no such branch.
    pub(super) tip: Option<ObjectId>,
    /// Whether [`EARLIER_PACK`] has what the branch has more than the base commit. An error counts only if the plan needs these commits.
    pub(super) fetched: Result<(), PushError>,
}

/// What a preparation is made of.
#[derive(Debug)]
pub(super) struct Preparer<'a> {
    pub(super) request: &'a PushRequest,
    pub(super) server: &'a Server<'a>,
    pub(super) repository: Repository<'a>,
}

impl Preparer<'_> {
    /// Asks the server, receives the bundle, and loads the base commit.
    ///
    /// # Errors
    /// Those of [`PushError`].
    ///
    /// Dropped midway: every request and every git ends.
    pub(super) async fn run(
        &self,
        mut parts: impl Stream<Item = Option<PushPart>> + Unpin,
    ) -> Result<Preparation, PushError> {
        let (pass, passed) = oneshot::channel();
        // An error of the server ends the reception of the bundle, but not that of the name, whose errors come first.
        let commit = async {
            let commit = bundle::receive_commit(&mut parts, &self.request.base).await?;
            drop(pass.send(parts));
            Ok(commit)
        };
        let version = self.server.check_version(&self.request.base).shared();
        let tip = self.find_tip().shared();
        let content = in_order(self.receive(passed), self.load_base(version.clone()));
        let objects = alongside(content, self.fetch_earlier(tip.clone())).map_ok(|(_, fetched)| fetched);
        let branch = in_order(tip, objects).map_ok(|(tip, fetched)| RemoteBranch { tip, fetched });
        let answers = in_order(self.server.capabilities(), branch);
        let answers = in_order(version, answers).map_ok(|((), answers)| answers);
        let (commit, (capabilities, branch)) = in_order(commit, answers).await?;
        Ok(Preparation { commit, capabilities, branch })
    }

    /// Finds the commit at which the branch is. `None`: there is no such branch.
    ///
    /// # Errors
    /// `DefaultBranch`, `Unauthorized`, `NotFound`, `Unreachable`.
    async fn find_tip(&self) -> Result<Option<ObjectId>, PushError> {
        let PushRequest { branch, base, .. } = self.request;
        let References { default, tip } = self.server.references(branch, base).await?;
        if default.as_ref() == Some(&branch.reference()) {
            return Err(PushError::DefaultBranch(branch.to_string()));
        }
        Ok(tip)
    }

    /// Receives the bundle, when the name of the newest commit is there.
    async fn receive(
        &self,
        passed: oneshot::Receiver<impl Stream<Item = Option<PushPart>> + Unpin>,
    ) -> Result<(), PushError> {
        // Without a name, its error counts.
        let parts = passed.await.map_err(|_| PushError::Failed)?;
        bundle::receive(self.repository.directory, parts).await
    }

    /// Loads the files of the base commit, all of them: the bundle has only the differences to them, and git checks that nothing is missing. A server
    /// could send less (`filter`), but git would then look for the rest while it reads the bundle. For this repository the files are 2.6 MiB in 0.6 s; with its
    /// history they are 5.6 MiB in 1.1 s.
    async fn load_base(&self, version: impl Future<Output = Result<(), PushError>>) -> Result<(), PushError> {
        let (base, directory) = (&self.request.base, self.repository.directory);
        let made = directory.make_repository(base.format()).await;
        made.map_err(|error| PushError::failed("make a repository", &error))?;
        version.await?;
        let shallow = self.server.fetch(Fetch::Base(base), directory, BASE_PACK).await?;
        self.repository.load(BASE_PACK).await?;
        let lines: String = shallow.iter().map(|commit| format!("{commit}\n")).collect();
        let written = directory.write(SHALLOW, lines.as_bytes()).await;
        written.map_err(|error| PushError::failed("write the end of the history", &error))
    }

    /// Fetches what the branch has more than the base commit into a file. Git loads it when it has loaded the bundle.
    async fn fetch_earlier(
        &self,
        tip: impl Future<Output = Result<Option<ObjectId>, PushError>>,
    ) -> Result<(), PushError> {
        let base = &self.request.base;
        let Some(tip) = tip.await?.filter(|tip| tip != base) else { return Ok(()) };
        let fetch = Fetch::Since { tip: &tip, base };
        self.server.fetch(fetch, self.repository.directory, EARLIER_PACK).await.map(drop)
    }
}
