//! Inspects each new commit, not only the newest: what a later commit removes again would still be in the history, and servers run workflows of any
//! commit.

use super::{
    blobs::Blobs,
    change::{self, Change, Kind},
    lfs::{LfsChanges, LfsContent, LfsSearch},
};
use crate::push::{
    error::PushError,
    git::Input,
    objects::{missing, parse_batch},
    problem::{Problem, ProblemKind, Problems},
    repository::Repository,
    request::ObjectId,
};
use domain::egress::push::{
    PUSH_CHANGES_MAX, PUSH_COMMITS_MAX, PUSH_FILE_BYTES_MAX, PUSH_LFS_BYTES_MAX, PUSH_LFS_FILE_BYTES_MAX,
    PUSH_LFS_OBJECTS_MAX,
    paths::{DeniedPaths, check_link},
};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Bytes of the target of a link. Beyond it: `push_path_refused`.
const LINK_BYTES_MAX: u64 = 4_096;

/// The repository in which commits are inspected.
#[derive(Debug, Clone, Copy)]
pub(in crate::push) struct Inspection<'a> {
    pub(in crate::push) repository: Repository<'a>,
    pub(in crate::push) denied: &'a DeniedPaths,
}

#[derive(Debug, Default)]
pub(in crate::push) struct InspectionReport {
    pub(in crate::push) files: usize,
    /// Those of Git LFS among them.
    pub(in crate::push) lfs: LfsChanges,
    pub(in crate::push) blobs: Blobs,
    /// What no push may bring.
    pub(in crate::push) problems: Problems,
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
        let output = self.repository.check(&arguments, Input::Nothing).await?;
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

    /// Inspects what each of these commits, newest first, changes against each of its parents, and lists every problem. The `known` blobs are those of
    /// an inspection of commits whose newest has the same files.
    ///
    /// # Errors
    /// `TooLarge`, `ContentInvalid`.
    pub(in crate::push) async fn inspect(
        &self,
        commits: &[ObjectId],
        known: Blobs,
    ) -> Result<InspectionReport, PushError> {
        let Some(tip) = commits.first() else { return Ok(InspectionReport::default()) };
        let list: String = commits.iter().map(|commit| format!("{commit}\n")).collect();
        let arguments = ["diff-tree", "--stdin", "-r", "-m", "--raw", "-z", "--no-renames", "--no-abbrev"];
        let output = self.repository.check(&arguments, Input::Bytes(list.as_bytes())).await?;
        let mut changes = change::parse(&output).ok_or_else(missing)?;
        if changes.len() > PUSH_CHANGES_MAX {
            return Err(PushError::TooLarge { most: PUSH_CHANGES_MAX as u64, what: "changes of files" });
        }
        // Git prints a change of a merge for each of the parents.
        let mut seen = HashSet::new();
        changes.retain(|change| seen.insert(change.clone()));
        let mut problems = Problems::default();
        for change in &changes {
            if let Some(reason) = self.find_refusal(change) {
                problems.add(refused(change, reason));
            }
        }
        let blobs = Blobs::find(self.repository, tip, &changes, known).await?;
        let lfs = LfsSearch { repository: self.repository, blobs: &blobs }.run(&changes).await?;
        let large: HashSet<&Change> = lfs.contents.iter().map(|content| &content.change).collect();
        for change in changes.iter().filter(|change| change.is_stored()) {
            let bytes_max =
                if large.contains(change) { PUSH_LFS_FILE_BYTES_MAX } else { PUSH_FILE_BYTES_MAX };
            if let Some(bytes) = blobs.sizes.get(&change.object).copied().filter(|it| *it > bytes_max) {
                problems.add(change.problem(ProblemKind::FileTooLarge { bytes, bytes_max }));
            }
        }
        self.check_links(&changes, &blobs, &mut problems).await?;
        check_contents(&lfs.contents)?;
        if commits.len() > 1 {
            for content in &lfs.contents {
                problems.add(content.change.problem(ProblemKind::LfsContent));
            }
        }
        let files = changes.iter().map(|change| change.path.as_slice()).collect::<BTreeSet<_>>().len();
        Ok(InspectionReport { files, lfs, blobs, problems })
    }

    /// Why no push may touch the path of a change.
    fn find_refusal(&self, change: &Change) -> Option<String> {
        if change.kind == Kind::Other {
            return Some("it is a submodule, and pushes must not change these".to_owned());
        }
        let checked = self.denied.check(&String::from_utf8_lossy(&change.path));
        checked.err().map(|error| error.to_string())
    }

    async fn check_links(
        &self,
        changes: &[Change],
        blobs: &Blobs,
        problems: &mut Problems,
    ) -> Result<(), PushError> {
        let is_long =
            |change: &&Change| blobs.sizes.get(&change.object).is_none_or(|bytes| *bytes > LINK_BYTES_MAX);
        let links = changes.iter().filter(|change| change.kind == Kind::Link);
        let (long, links): (Vec<&Change>, Vec<&Change>) = links.partition(is_long);
        for link in long {
            problems.add(refused(link, "it is a link with a target that is too long".to_owned()));
        }
        let objects: BTreeSet<&ObjectId> = links.iter().map(|link| &link.object).collect();
        let output = self.repository.read(&Vec::from_iter(objects)).await?;
        let targets: HashMap<ObjectId, String> = parse_batch(&output)?
            .into_iter()
            .map(|object| (object.id, String::from_utf8_lossy(object.content).into_owned()))
            .collect();
        for link in links {
            let target = targets.get(&link.object).ok_or_else(missing)?;
            if let Err(error) = check_link(&String::from_utf8_lossy(&link.path), target) {
                problems.add(refused(link, error.to_string()));
            }
        }
        Ok(())
    }
}

/// Checks that there is room for the objects that are to be made of these contents.
///
/// # Errors
/// `TooLarge`.
fn check_contents(contents: &[LfsContent]) -> Result<(), PushError> {
    let objects: HashMap<&ObjectId, u64> =
        contents.iter().map(|content| (&content.change.object, content.bytes)).collect();
    if objects.len() > PUSH_LFS_OBJECTS_MAX {
        return Err(PushError::TooLarge { most: PUSH_LFS_OBJECTS_MAX as u64, what: "contents of Git LFS" });
    }
    if objects.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes)) > PUSH_LFS_BYTES_MAX {
        return Err(PushError::TooLarge { most: PUSH_LFS_BYTES_MAX, what: "bytes of contents of Git LFS" });
    }
    Ok(())
}

fn refused(change: &Change, reason: String) -> Problem {
    change.problem(ProblemKind::PathRefused { reason })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The refusal of contents with these lengths.
    fn refusal(lengths: &[u64]) -> Option<String> {
        let commit = ObjectId::parse(&"1".repeat(40)).unwrap();
        let content = |(number, bytes): (usize, &u64)| {
            let object = ObjectId::parse(&format!("{number:040x}")).unwrap();
            let change = Change { commit: commit.clone(), kind: Kind::File, object, path: b"a.bin".to_vec() };
            LfsContent { change, bytes: *bytes }
        };
        let contents: Vec<LfsContent> = lengths.iter().enumerate().map(content).collect();
        check_contents(&contents).err().map(|error| format!("{} {error}", error.code().as_str()))
    }

    #[test]
    fn the_contents_of_a_push_are_bounded() {
        assert_eq!(refusal(&[PUSH_LFS_BYTES_MAX]), None);
        assert_eq!(refusal(&[1; PUSH_LFS_OBJECTS_MAX]), None);
        for (lengths, want) in [
            (&[PUSH_LFS_BYTES_MAX, 1][..], "1073741824 bytes of contents of Git LFS"),
            (&[u64::MAX, u64::MAX][..], "bytes of contents of Git LFS"),
            (&[1; PUSH_LFS_OBJECTS_MAX + 1][..], "1000 contents of Git LFS"),
        ] {
            let text = refusal(lengths).unwrap();
            assert!(text.starts_with("push_too_large ") && text.contains(want), "{text}");
        }
    }
}
