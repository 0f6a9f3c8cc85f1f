//! A git bundle of the user's repository. It is created in a temporary repository that borrows the user's objects, so
//! the user's objects, index, refs and files are only read.

use crate::{exit::coded, repository::git::Git};
use anyhow::{Context as _, Result, bail};
use domain::{limits, text};
use sha2::{Digest as _, Sha256};
use std::{
    env, fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

/// The content of the bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Start {
    /// This commit, branch or tag.
    Revision(String),
    /// The checked-out commit, and on top of it one commit with all changes and new files that are not ignored.
    Dirty,
}

/// A bundle in a temporary directory, which is deleted with this value.
#[derive(Debug)]
pub(crate) struct Bundle {
    pub file: PathBuf,
    pub size_bytes: u64,
    /// Lower-case hexadecimal.
    pub sha256: String,
    /// The commit that sessions start from.
    pub commit: String,
    _dir: tempfile::TempDir,
}

/// Creates the bundle of the repository that contains `dir`.
///
/// # Errors
/// An error text for people: no repository, no commit, a shallow repository, too large, or git's own message. Blocks.
pub(crate) fn make(dir: &Path, start: &Start) -> Result<Bundle> {
    let root = Git::at(dir).root()?;
    let user = Git::at(&root);
    if user.run(&["rev-parse", "--is-shallow-repository"])? == "true" {
        bail!(
            "the repository is shallow, so its history cannot be sent; `git fetch --unshallow` completes it"
        );
    }
    let temporary = tempfile::tempdir().context("make a temporary directory")?;
    let borrowing = borrow_objects(&user, &root, temporary.path())?;
    let branch =
        user.run(&["symbolic-ref", "--quiet", "--short", "HEAD"]).unwrap_or_else(|_| "main".to_owned());
    let Commit { id: commit, made } = match start {
        Start::Revision(revision) => {
            let commit = user.run(&[
                "rev-parse",
                "--verify",
                "--quiet",
                "--end-of-options",
                &format!("{revision}^{{commit}}"),
            ]);
            // Git says nothing more about it.
            let commit = commit.map_err(|_| no_commit(revision, &root))?;
            Commit { id: commit, made: None }
        }
        Start::Dirty => commit_all(&user, &borrowing, &root, temporary.path())?,
    };
    let reference = format!("refs/heads/{branch}");
    borrowing.run(&["update-ref", &reference, &commit])?;
    borrowing.run(&["symbolic-ref", "HEAD", &reference])?;
    let file = temporary.path().join("source.bundle");
    // One thread: the same content always produces the same bytes, by which the server recognizes the bundle.
    let words = ["-c", "pack.threads=1", "bundle", "create", "--quiet"];
    let pack = |file: &Path, refs: &[&str]| {
        let words =
            words.iter().map(AsRef::as_ref).chain([file.as_os_str()]).chain(refs.iter().map(AsRef::as_ref));
        borrowing.run(&words.collect::<Vec<&std::ffi::OsStr>>())
    };
    pack(&file, &["HEAD", &reference])?;
    if let Some(parent) = made {
        let dirty_bundle = dirty_file(&commit)?;
        fs::create_dir_all(dirty_bundle.parent().unwrap_or(Path::new("/")))
            .context("make the cache directory")?;
        let without = parent.map(|parent| format!("^{parent}"));
        pack(&dirty_bundle, &["HEAD"].into_iter().chain(without.as_deref()).collect::<Vec<_>>())?;
    }
    let (size_bytes, sha256) = digest(&file).context("read the bundle")?;
    if size_bytes > limits::BUNDLE_BYTES_MAX {
        bail!(
            "the repository's history is {} MiB packed, the limit is {} MiB; give its URL with --repo instead",
            size_bytes >> 20,
            limits::BUNDLE_BYTES_MAX >> 20
        );
    }
    Ok(Bundle { file, size_bytes, sha256, commit, _dir: temporary })
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

/// Returns the file that keeps a temporary commit of uncommitted changes: `flotilla checkout` needs the commit as a
/// base.
pub(crate) fn dirty_file(commit: &str) -> Result<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let cache = cache.or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    let cache = cache.context("neither XDG_CACHE_HOME nor HOME is set")?;
    Ok(cache.join("flotilla/bases").join(format!("{commit}.bundle")))
}

fn borrow_objects(user: &Git, root: &Path, temporary: &Path) -> Result<Git> {
    let repository = temporary.join("repository.git");
    let format = user.run(&["rev-parse", "--show-object-format"])?;
    Git::at(temporary).run(&[
        "init",
        "--quiet",
        "--bare",
        &format!("--object-format={format}"),
        "repository.git",
    ])?;
    let objects = root.join(user.run(&["rev-parse", "--git-path", "objects"])?);
    let alternates = repository.join("objects/info/alternates");
    fs::write(&alternates, format!("{}\n", objects.display())).context("borrow the repository's objects")?;
    let exclude = root.join(user.run(&["rev-parse", "--git-path", "info/exclude"])?);
    copy_if_there(&exclude, &repository.join("info/exclude"))?;
    Ok(Git::at(&repository).with_path("GIT_DIR", repository.clone()))
}

/// The starting point of sessions.
struct Commit {
    id: String,
    /// Set if the commit was created here and the user's repository has no such object: its parent, if it has one.
    made: Option<Option<String>>,
}

/// Commits everything in the work tree that is not ignored, on top of the checked-out commit.
fn commit_all(user: &Git, borrowing: &Git, root: &Path, temporary: &Path) -> Result<Commit> {
    let index = temporary.join("index");
    // The user's index knows which files have not changed since they were hashed.
    copy_if_there(&root.join(user.run(&["rev-parse", "--git-path", "index"])?), &index)?;
    let tree =
        borrowing.clone().with_path("GIT_INDEX_FILE", index).with_path("GIT_WORK_TREE", root.to_owned());
    tree.run(&["add", "--all", "--", "."])?;
    let tree_id = tree.run(&["write-tree"])?;
    let parent = user.run(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]).ok();
    if let Some(parent) = &parent
        && user.run(&["rev-parse", &format!("{parent}^{{tree}}")])? == tree_id
    {
        return Ok(Commit { id: parent.clone(), made: None });
    }
    // Use the parent's time, so that the same files produce the same commit.
    let date = parent
        .as_ref()
        .map(|parent| user.run(&["show", "--no-patch", "--format=%cI", parent]))
        .transpose()?;
    let date = date.unwrap_or_else(|| "2000-01-01T00:00:00Z".to_owned());
    let author = borrowing
        .clone()
        .with_text("GIT_AUTHOR_NAME", "flotilla")
        .with_text("GIT_AUTHOR_EMAIL", "flotilla@localhost")
        .with_text("GIT_COMMITTER_NAME", "flotilla")
        .with_text("GIT_COMMITTER_EMAIL", "flotilla@localhost")
        .with_text("GIT_AUTHOR_DATE", &date)
        .with_text("GIT_COMMITTER_DATE", &date);
    let mut words = vec!["commit-tree", &tree_id, "-m", "Uncommitted changes"];
    if let Some(parent) = &parent {
        words.extend(["-p", parent]);
    }
    Ok(Commit { id: author.run(&words)?, made: Some(parent) })
}

fn copy_if_there(from: &Path, to: &Path) -> Result<()> {
    match fs::copy(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("copy {}", from.display()))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

fn digest(file: &Path) -> io::Result<(u64, String)> {
    let mut reader = fs::File::open(file)?;
    let (mut hasher, mut size_bytes, mut buffer) = (Sha256::new(), 0, vec![0; rpc::CHUNK_BYTES]);
    loop {
        let length = reader.read(&mut buffer)?;
        if length == 0 {
            break;
        }
        hasher.update(&buffer[..length]);
        size_bytes += length as u64;
    }
    Ok((size_bytes, text::hex(&hasher.finalize())))
}

#[cfg(test)]
mod tests;
