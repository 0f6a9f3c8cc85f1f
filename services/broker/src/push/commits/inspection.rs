//! Inspects each new commit, not only the newest: what a later commit removes again would still be in the history, and servers run workflows of any
//! commit.

use super::{
    change::{self, Change, Kind},
    lfs::{LfsFile, LfsSearch},
};
use crate::push::{
    error::PushError,
    git::{Input, WalledGit},
    objects::{missing, parse_batch},
    quarantine::Quarantine,
    request::ObjectId,
};
use domain::egress::push::{
    PUSH_CHANGES_MAX, PUSH_COMMITS_MAX, PUSH_FILE_BYTES_MAX,
    paths::{DeniedPaths, check_link},
};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Bytes of the target of a link. Beyond it: `push_path_refused`.
const LINK_BYTES_MAX: u64 = 4_096;

/// The repository in which commits are inspected.
#[derive(Debug, Clone, Copy)]
pub(in crate::push) struct Inspection<'a> {
    pub(in crate::push) git: &'a WalledGit,
    pub(in crate::push) quarantine: &'a Quarantine,
    pub(in crate::push) denied: &'a DeniedPaths,
}

/// What commits change.
#[derive(Debug, Default)]
pub(in crate::push) struct InspectionReport {
    /// How many files differ.
    pub(in crate::push) files: usize,
    /// The pointers of Git LFS among them.
    pub(in crate::push) pointers: Vec<LfsFile>,
}

impl Inspection<'_> {
    /// Lists the commits from `base` to `tip`, newest first. Each descends from the base by commits of the list.
    ///
    /// # Errors
    /// `TooLarge`, `ContentInvalid`.
    pub(in crate::push) async fn list(
        &self,
        base: &ObjectId,
        tip: &ObjectId,
    ) -> Result<Vec<ObjectId>, PushError> {
        let count = format!("--max-count={}", PUSH_COMMITS_MAX + 1);
        let (tip, without) = (tip.as_str(), format!("^{base}"));
        let arguments = ["rev-list", "--topo-order", "--parents", &count, tip, &without, "--"];
        let output = self.git.check(self.quarantine, &arguments, Input::Nothing).await?;
        let text = String::from_utf8_lossy(&output);
        let commits: Option<Vec<Vec<ObjectId>>> =
            text.lines().map(|line| line.split(' ').map(ObjectId::parse).collect()).collect();
        let commits = commits.ok_or_else(missing)?;
        if commits.len() > PUSH_COMMITS_MAX {
            return Err(PushError::TooLarge { most: PUSH_COMMITS_MAX as u64, what: "commits" });
        }
        let known: BTreeSet<&ObjectId> =
            commits.iter().filter_map(|line| line.first()).chain([base]).collect();
        let descends =
            |line: &Vec<ObjectId>| line.len() > 1 && line[1..].iter().all(|parent| known.contains(parent));
        if !commits.iter().all(descends) {
            let text =
                format!("some commits do not descend from {}, on which the session began", base.short());
            return Err(PushError::ContentInvalid(text));
        }
        Ok(commits.into_iter().filter_map(|line| line.into_iter().next()).collect())
    }

    /// Inspects what each of these commits, newest first, changes against each of its parents.
    ///
    /// # Errors
    /// `PathRefused`, `FileTooLarge`, `TooLarge`, `LfsContent`, `ContentInvalid`.
    pub(in crate::push) async fn inspect(&self, commits: &[ObjectId]) -> Result<InspectionReport, PushError> {
        let Some(tip) = commits.first() else { return Ok(InspectionReport::default()) };
        let list: String = commits.iter().map(|commit| format!("{commit}\n")).collect();
        let arguments = ["diff-tree", "--stdin", "-r", "-m", "--raw", "-z", "--no-renames", "--no-abbrev"];
        let output = self.git.check(self.quarantine, &arguments, Input::Bytes(list.as_bytes())).await?;
        let changes = change::parse(&output).ok_or_else(missing)?;
        if changes.len() > PUSH_CHANGES_MAX {
            return Err(PushError::TooLarge { most: PUSH_CHANGES_MAX as u64, what: "changes of files" });
        }
        for change in &changes {
            self.check_path(change)?;
        }
        let sizes = self.sizes(&changes).await?;
        self.check_links(&changes, &sizes).await?;
        let search = LfsSearch { git: self.git, quarantine: self.quarantine, sizes: &sizes };
        let pointers = search.run(tip, &changes).await?;
        let files = changes.iter().map(|change| change.path.as_slice()).collect::<BTreeSet<_>>().len();
        Ok(InspectionReport { files, pointers })
    }

    fn check_path(&self, change: &Change) -> Result<(), PushError> {
        if change.kind == Kind::Other {
            return Err(refused(change, "it is a submodule, and pushes must not change these"));
        }
        let checked = self.denied.check(&String::from_utf8_lossy(&change.path));
        checked.map_err(|error| refused(change, &error.to_string()))
    }

    /// The lengths of all new objects.
    async fn sizes(&self, changes: &[Change]) -> Result<HashMap<ObjectId, u64>, PushError> {
        let wanted: BTreeMap<&ObjectId, &Change> =
            present(changes).map(|change| (&change.object, change)).collect();
        let list: String = wanted.keys().map(|object| format!("{object}\n")).collect();
        let arguments = ["cat-file", "--batch-check=%(objectname) %(objecttype) %(objectsize)"];
        let output = self.git.check(self.quarantine, &arguments, Input::Bytes(list.as_bytes())).await?;
        let mut sizes = HashMap::new();
        for line in String::from_utf8_lossy(&output).lines() {
            let [id, "blob", bytes] = line.split(' ').collect::<Vec<_>>()[..] else { return Err(missing()) };
            let (Some(id), Ok(bytes)) = (ObjectId::parse(id), bytes.parse()) else { return Err(missing()) };
            if let Some(change) = wanted.get(&id).filter(|_| bytes > PUSH_FILE_BYTES_MAX) {
                let (commit, path) = (change.commit.short(), change.shown_path());
                return Err(PushError::FileTooLarge { commit, path, bytes, bytes_max: PUSH_FILE_BYTES_MAX });
            }
            sizes.insert(id, bytes);
        }
        if sizes.len() == wanted.len() { Ok(sizes) } else { Err(missing()) }
    }

    async fn check_links(&self, changes: &[Change], sizes: &HashMap<ObjectId, u64>) -> Result<(), PushError> {
        let links: Vec<&Change> = changes.iter().filter(|change| change.kind == Kind::Link).collect();
        let is_long =
            |change: &&&Change| sizes.get(&change.object).is_none_or(|bytes| *bytes > LINK_BYTES_MAX);
        if let Some(link) = links.iter().find(is_long) {
            return Err(refused(link, "it is a link with a target that is too long"));
        }
        let objects: BTreeSet<&ObjectId> = links.iter().map(|link| &link.object).collect();
        let list: String = objects.iter().map(|object| format!("{object}\n")).collect();
        let output =
            self.git.check(self.quarantine, &["cat-file", "--batch"], Input::Bytes(list.as_bytes())).await?;
        let targets: HashMap<ObjectId, String> = parse_batch(&output)?
            .into_iter()
            .map(|object| (object.id, String::from_utf8_lossy(object.content).into_owned()))
            .collect();
        for link in links {
            let target = targets.get(&link.object).ok_or_else(missing)?;
            let checked = check_link(&String::from_utf8_lossy(&link.path), target);
            checked.map_err(|error| refused(link, &error.to_string()))?;
        }
        Ok(())
    }
}

fn present(changes: &[Change]) -> impl Iterator<Item = &Change> {
    changes.iter().filter(|change| change.kind != Kind::Removed)
}

fn refused(change: &Change, reason: &str) -> PushError {
    PushError::PathRefused {
        commit: change.commit.short(),
        path: change.shown_path(),
        reason: reason.to_owned(),
    }
}
