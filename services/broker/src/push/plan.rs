//! The plan of a push: how its branch is to be moved, and to which commit. Every commit of a plan is inspected. Git packs the commits during the inspection,
//! and the pack stays in the directory of the push if the inspection refuses them.
//!
//! A branch that has commits of earlier pushes gets one on top of them. The preparation has fetched these commits into a file, and git loads and
//! checks them during the inspection, which does not depend on them: nothing that the server has sent since the base commit is in the repository
//! before the bundle is loaded and its commits are listed.

use super::{
    commits::{
        blobs::Blobs,
        inspection::{Inspection, InspectionReport},
        pointers::{LfsObject, PointerCommit, Pointers},
    },
    error::PushError,
    git::{Input, Output},
    objects::{Commit, Object, missing, parse_batch},
    order::{alongside, in_order},
    preparation::{EARLIER_PACK, RemoteBranch},
    remote::{receive::Capabilities, server::Server},
    repository::Repository,
    request::{ObjectId, PushRequest},
};

/// Commits that a session may have pushed before. Beyond it: `push_branch_moved`.
const OWN_COMMITS_MAX: usize = 1_000;
/// The file of what the server gets.
pub(super) const PUSHED_PACK: &str = "pushed.pack";

/// How a branch is to be moved. The objects that the server lacks are in [`PUSHED_PACK`], unless the branch has everything.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) old: Option<ObjectId>,
    pub(super) new: ObjectId,
    /// New commits, and the files that they change.
    pub(super) commits: usize,
    pub(super) files: usize,
    /// The objects of Git LFS that the server may lack.
    pub(super) objects: Vec<LfsObject>,
}

/// What a plan is made of.
#[derive(Debug)]
pub(super) struct Planner<'a> {
    pub(super) request: &'a PushRequest,
    pub(super) server: &'a Server<'a>,
    /// It has the base commit.
    pub(super) repository: Repository<'a>,
    /// The commit that the session exported.
    pub(super) commit: &'a ObjectId,
    pub(super) capabilities: &'a Capabilities,
}

/// The commits of a bundle, as they may be pushed.
#[derive(Debug)]
struct InspectedCommits {
    /// Newest first.
    commits: Vec<ObjectId>,
    /// The tree of the newest one, if it has pointers in place of contents. Otherwise it is the exported commit.
    pointer_tree: Option<ObjectId>,
    /// Those of the files of the newest one that the inspection knows.
    blobs: Blobs,
    files: usize,
    objects: Vec<LfsObject>,
}

#[derive(Debug)]
struct CommitTexts {
    /// The commit that the session exported.
    exported: Vec<u8>,
    /// The newest commit of the branch.
    tip: Vec<u8>,
}

impl Plan {
    fn up_to_date(tip: ObjectId) -> Self {
        Self { old: Some(tip.clone()), new: tip, commits: 0, files: 0, objects: vec![] }
    }
}

impl Planner<'_> {
    /// Loads the bundle, inspects its commits, packs them, and decides how the branch is to be moved.
    ///
    /// # Errors
    /// Those of [`PushError`]. A problem of the commits wins over `BranchMoved`.
    pub(super) async fn plan(&self, branch: RemoteBranch) -> Result<Plan, PushError> {
        let old = match branch.tip {
            Some(tip) if tip != self.request.base => return self.plan_on_top(tip, branch.fetched).await,
            old => old,
        };
        let listed = self.load_bundle().await?;
        let packed = self.pack(self.commit, old.as_ref());
        let (inspected, packed) = alongside(self.inspect(listed), packed).await?;
        let InspectedCommits { commits, files, objects, .. } = inspected;
        let new = commits.first().ok_or_else(missing)?.clone();
        if new == *self.commit {
            packed?;
        } else {
            // It has pointers in place of contents of Git LFS.
            self.pack(&new, old.as_ref()).await?;
        }
        Ok(Plan { old, new, commits: commits.len(), files, objects })
    }

    /// Plans the push to a branch that has more than the base commit.
    async fn plan_on_top(&self, tip: ObjectId, fetched: Result<(), PushError>) -> Result<Plan, PushError> {
        let listed = self.load_bundle().await?;
        let earlier = self.load_earlier(&tip, fetched);
        let (inspected, earlier) = alongside(self.inspect(listed), earlier).await?;
        let InspectedCommits { commits, pointer_tree, blobs, files, objects } = inspected;
        let commit = commits.first().ok_or_else(missing)?;
        // The bundle may have the commits of the branch itself. Then nothing of what the server sent counts.
        match commits.iter().position(|commit| *commit == tip) {
            Some(0) => return Ok(Plan::up_to_date(tip)),
            Some(at) => {
                self.pack(commit, Some(&tip)).await?;
                return Ok(Plan { new: commit.clone(), old: Some(tip), commits: at, files, objects });
            }
            None => {}
        }
        let CommitTexts { exported, tip: earlier } = earlier?;
        let own = Commit::parse(&exported).ok_or_else(missing)?;
        let own = match &pointer_tree {
            Some(tree) => own.with_tree(tree.as_str()),
            None => own,
        };
        let earlier = Commit::parse(&earlier).ok_or_else(missing)?;
        if own.tree == earlier.tree {
            return Ok(Plan::up_to_date(tip));
        }
        let new = self.repository.add_commit(&own.on_top_of(&tip)).await?;
        // Its files are those of the commits before. A content of Git LFS among its changes is one of the base commit, to which the session went back.
        let inspected = async {
            let report = self.inspection().inspect(std::slice::from_ref(&new), blobs).await?;
            PushError::check(report.problems)?;
            Ok::<_, PushError>(report.files)
        };
        let (files, ()) = in_order(inspected, self.pack(&new, Some(&tip))).await?;
        Ok(Plan { old: Some(tip), new, commits: 1, files, objects })
    }

    fn inspection(&self) -> Inspection<'_> {
        Inspection { repository: self.repository, denied: &self.request.denied }
    }

    /// Loads the bundle, and lists its commits, newest first.
    async fn load_bundle(&self) -> Result<Vec<ObjectId>, PushError> {
        self.repository.load_bundle().await?;
        self.inspection().list(&self.request.base, self.commit).await
    }

    /// Inspects the commits of the bundle, and puts pointers in place of contents of Git LFS.
    async fn inspect(&self, commits: Vec<ObjectId>) -> Result<InspectedCommits, PushError> {
        let report = self.inspection().inspect(&commits, Blobs::default()).await?;
        let InspectionReport { files, lfs, blobs, mut problems } = report;
        let checked = self.server.check_lfs(&lfs.pointers, &mut problems).await;
        match checked {
            Err(error) if problems.is_empty() => return Err(error),
            // The person mends the problems of the commits first.
            Ok(()) | Err(_) => PushError::check(problems)?,
        }
        if lfs.contents.is_empty() {
            return Ok(InspectedCommits { commits, pointer_tree: None, blobs, files, objects: vec![] });
        }
        // The inspection lets no contents pass in a push of several commits.
        let pointers = Pointers { repository: self.repository };
        let pointers = pointers.put(self.commit, &self.request.base, &lfs.contents).await?;
        let PointerCommit { commit, tree, objects } = pointers;
        // The attributes may be one of the files that became pointers.
        let blobs = Blobs::default();
        Ok(InspectedCommits { commits: vec![commit], pointer_tree: Some(tree), blobs, files, objects })
    }

    /// Packs the commits from `old` to `new`, or from the base commit if `old` is `None`. Another pack of the same push is overwritten.
    ///
    /// # Errors
    /// `ContentInvalid`, `Failed`.
    async fn pack(&self, new: &ObjectId, old: Option<&ObjectId>) -> Result<(), PushError> {
        let mut arguments = vec!["pack-objects", "--revs", "--stdout", "--quiet"];
        arguments.extend(self.capabilities.has("ofs-delta").then_some("--delta-base-offset"));
        arguments.extend((!self.capabilities.has("no-thin")).then_some("--thin"));
        let known = [Some(&self.request.base), old];
        let known: String = known.into_iter().flatten().map(|commit| format!("^{commit}\n")).collect();
        let wanted = format!("{new}\n{known}");
        self.repository.succeed(&arguments, Input::Bytes(wanted.as_bytes()), Output::File(PUSHED_PACK)).await
    }

    /// Loads the commits that this session pushed before.
    ///
    /// # Errors
    /// `BranchMoved`: there are others among them.
    async fn load_earlier(
        &self,
        tip: &ObjectId,
        fetched: Result<(), PushError>,
    ) -> Result<CommitTexts, PushError> {
        let PushRequest { session, base, .. } = self.request;
        match fetched {
            Ok(()) => self.repository.load(EARLIER_PACK).await?,
            // It was moved again meanwhile.
            Err(PushError::BaseMissing(_)) => return Err(self.request.moved(tip)),
            Err(error) => return Err(error),
        }
        let (count, without) = (format!("--max-count={}", OWN_COMMITS_MAX + 1), format!("^{base}"));
        let arguments = ["rev-list", "--parents", &count, tip.as_str(), &without, "--"];
        let output = self.repository.check(&arguments, Input::Nothing).await?;
        let output = String::from_utf8_lossy(&output);
        let lines: Vec<Vec<&str>> = output.lines().map(|line| line.split(' ').collect()).collect();
        let is_chain = lines.len() <= OWN_COMMITS_MAX
            && lines.iter().all(|line| line.len() == 2)
            && lines.last().is_some_and(|line| line[1] == base.as_str());
        if !is_chain {
            return Err(self.request.moved(tip));
        }
        let names: Option<Vec<ObjectId>> = lines.iter().map(|line| ObjectId::parse(line[0])).collect();
        let names = names.ok_or_else(missing)?;
        let wanted: Vec<&ObjectId> = [self.commit].into_iter().chain(&names).collect();
        let output = self.repository.read(&wanted).await?;
        let objects = parse_batch(&output)?;
        let [exported, earlier @ ..] = &objects[..] else { return Err(missing()) };
        let is_own =
            |object: &Object<'_>| Commit::parse(object.content).is_some_and(|commit| commit.is_of(session));
        if !earlier.iter().all(is_own) {
            return Err(self.request.moved(tip));
        }
        let newest = earlier.iter().find(|object| object.id == *tip).ok_or_else(missing)?;
        Ok(CommitTexts { exported: exported.content.to_vec(), tip: newest.content.to_vec() })
    }
}
