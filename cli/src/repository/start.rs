//! The commit of the user's repository that a session starts from. Git works in the repository itself, with its own configuration, and writes only to a
//! temporary directory: the objects, index, refs and files of the user are only read.

use super::{
    git::Git,
    status::{self, WorkTree},
};
use crate::exit::coded;
use anyhow::{Context as _, Result};
use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// What a session starts from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Start {
    /// The checked-out commit, whatever the work tree has in addition.
    Head,
    /// This commit, branch or tag.
    Revision(String),
    /// The checked-out commit, and on top of it one commit with all changes and new files that are not ignored.
    Dirty,
}

/// The commit, before anything of it is packed.
#[derive(Debug)]
pub(crate) struct StartCommit {
    pub(super) id: String,
    /// The branch on which the files begin.
    pub(super) branch: String,
    /// The user's repository, and the objects that were made here.
    pub(super) git: Git,
    /// Set if the commit was made here and the user's repository has no such object: its parent, if it has one.
    pub(super) made: Option<Option<String>>,
    /// What of the work tree the commit does not have.
    pub(crate) left: WorkTree,
    _objects: tempfile::TempDir,
}

impl StartCommit {
    /// Finds the commit in the repository that contains `dir`, or makes it. Blocks.
    ///
    /// # Errors
    /// `repository_missing`, `commit_missing`; git's own message.
    pub(crate) fn find(dir: &Path, start: &Start) -> Result<Self> {
        let root = Git::at(dir).root()?;
        let user = reading(Git::at(&root));
        let objects = tempfile::tempdir().context("make a temporary directory")?;
        let branch =
            user.run(&["symbolic-ref", "--quiet", "--short", "HEAD"]).unwrap_or_else(|_| "main".to_owned());
        let git = with_objects(&user, objects.path())?;
        let Commit { id, made, left } = match start {
            Start::Head => {
                let id = find_commit(&user, &root, "HEAD")?;
                Commit { id, made: None, left: status::read(&user)? }
            }
            Start::Revision(revision) => {
                Commit { id: find_commit(&user, &root, revision)?, made: None, left: WorkTree::default() }
            }
            Start::Dirty => commit_all(&user, &git, objects.path())?,
        };
        Ok(Self { id, branch, git, made, left, _objects: objects })
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The branch on which the files begin.
    pub(crate) fn branch(&self) -> &str {
        &self.branch
    }
}

/// Git without the programs that a repository runs beside a command, and that may change it.
fn reading(git: Git) -> Git {
    git.with_text("GIT_CONFIG_COUNT", "2")
        .with_text("GIT_CONFIG_KEY_0", "core.hooksPath")
        .with_text("GIT_CONFIG_VALUE_0", "/dev/null")
        .with_text("GIT_CONFIG_KEY_1", "core.fsmonitor")
        .with_text("GIT_CONFIG_VALUE_1", "false")
}

/// The user's repository with another place for new objects.
fn with_objects(user: &Git, temporary: &Path) -> Result<Git> {
    let objects = temporary.join("objects");
    fs::create_dir(&objects).context("make a directory for objects")?;
    // Git reads a list of paths, in which a colon or a quotation mark must be quoted.
    let known = user.path("objects")?;
    let known = format!("\"{}\"", known.display().to_string().replace('\\', "\\\\").replace('"', "\\\""));
    Ok(user
        .clone()
        .with_path("GIT_OBJECT_DIRECTORY", objects)
        .with_text("GIT_ALTERNATE_OBJECT_DIRECTORIES", &known))
}

fn find_commit(user: &Git, root: &Path, revision: &str) -> Result<String> {
    let name = format!("{revision}^{{commit}}");
    let commit = user.run(&["rev-parse", "--verify", "--quiet", "--end-of-options", &name]);
    // Git says nothing more about it.
    commit.map_err(|_| no_commit(revision, root))
}

/// The error of a revision that names no commit.
fn no_commit(revision: &str, root: &Path) -> anyhow::Error {
    let message = match revision {
        "HEAD" => "the repository has no commit yet; commit something, or use --dirty".to_owned(),
        _ => format!(
            "{} has no commit, branch or tag {revision:?}; fetch it, or name another one with --base",
            root.display()
        ),
    };
    coded("commit_missing", message)
}

struct Commit {
    id: String,
    /// As in [`StartCommit`].
    made: Option<Option<String>>,
    left: WorkTree,
}

/// Commits everything in the work tree that is not ignored, on top of the checked-out commit, as the user's own git would.
fn commit_all(user: &Git, git: &Git, temporary: &Path) -> Result<Commit> {
    let index = temporary.join("index");
    // The user's index knows which files have not changed since they were hashed.
    copy_if_there(&user.path("index")?, &index)?;
    let tree = git.clone().with_path("GIT_INDEX_FILE", index);
    let found = status::read(user)?;
    let mut paths = b".\0".to_vec();
    for nested in &found.nested {
        // A link to its commit would lead nowhere.
        write!(paths, ":(exclude,literal){}\0", nested.display()).context("list the paths")?;
    }
    tree.run_with(&["add", "--all", "--pathspec-from-file=-", "--pathspec-file-nul"], &paths)?;
    let left = WorkTree { changed: 0, ..found };
    let tree_id = tree.run(&["write-tree"])?;
    let parent = user.run(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]).ok();
    if let Some(parent) = &parent
        && user.run(&["rev-parse", &format!("{parent}^{{tree}}")])? == tree_id
    {
        return Ok(Commit { id: parent.clone(), made: None, left });
    }
    // Use the parent's time, so that the same files produce the same commit.
    let date = parent
        .as_ref()
        .map(|parent| user.run(&["show", "--no-patch", "--format=%cI", parent]))
        .transpose()?;
    let date = date.unwrap_or_else(|| "2000-01-01T00:00:00Z".to_owned());
    let author = git
        .clone()
        .with_text("GIT_AUTHOR_NAME", "flotilla")
        .with_text("GIT_AUTHOR_EMAIL", "flotilla@localhost")
        .with_text("GIT_COMMITTER_NAME", "flotilla")
        .with_text("GIT_COMMITTER_EMAIL", "flotilla@localhost")
        .with_text("GIT_AUTHOR_DATE", &date)
        .with_text("GIT_COMMITTER_DATE", &date);
    let mut words = vec!["-c", "commit.gpgSign=false", "commit-tree", &tree_id, "-m", "Uncommitted changes"];
    if let Some(parent) = &parent {
        words.extend(["-p", parent]);
    }
    Ok(Commit { id: author.run(&words)?, made: Some(parent), left })
}

fn copy_if_there(from: &Path, to: &PathBuf) -> Result<()> {
    match fs::copy(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("copy {}", from.display()))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}
