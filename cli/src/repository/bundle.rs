//! A git bundle of the commit that a session starts from: its refs, and a pack of its history or of the newest part of it.

use super::{git::Git, start::StartCommit};
use anyhow::{Context as _, Result, bail};
use domain::{limits, text};
use sha2::{Digest as _, Sha256};
use std::{
    collections::BTreeSet,
    env, fs,
    io::{self, Read as _, Write as _},
    num::NonZeroU32,
    path::{Path, PathBuf},
};

/// The prefix of refs that name the commits whose parents a bundle lacks. The sandbox knows them by it.
const SHALLOW: &str = "refs/flotilla/shallow/";

/// How much of the history is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct History {
    /// The commits that have no parents in it.
    ends: BTreeSet<String>,
    /// Whether the repository has only some of its objects, and the others at a server.
    pub(crate) is_partial: bool,
}

/// A bundle in a temporary directory, which is deleted with this value.
#[derive(Debug)]
pub(crate) struct Bundle {
    pub file: PathBuf,
    pub size_bytes: u64,
    /// Lower-case hexadecimal.
    pub sha256: String,
    _dir: tempfile::TempDir,
}

impl History {
    /// Finds how much of the history of a commit there is to send: all that the repository has, or `depth` commits. A partial clone has the files of
    /// the checked-out commit only, so without a depth this is all of it that is sent. Blocks.
    ///
    /// # Errors
    /// Git's own message.
    pub(crate) fn find(start: &StartCommit, depth: Option<NonZeroU32>) -> Result<Self> {
        let git = &start.git;
        let is_partial = git
            .run(&["config", "--get-regexp", r"^(remote\..*\.promisor|extensions\.partialclone)$"])
            .is_ok();
        let file = git.path("shallow")?;
        let known = match fs::read_to_string(&file) {
            Ok(text) => text.lines().map(ToOwned::to_owned).collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeSet::new(),
            Err(error) => return Err(error).with_context(|| format!("read {}", file.display())),
        };
        let depth = depth.map(NonZeroU32::get).or(is_partial.then_some(1));
        let ends = match depth {
            Some(depth) => ends_at(git, &start.id, depth)?,
            None if known.is_empty() => BTreeSet::new(),
            None => {
                let roots = git.run(&["rev-list", "--max-parents=0", &start.id])?;
                roots.lines().filter(|root| known.contains(*root)).map(ToOwned::to_owned).collect()
            }
        };
        Ok(Self { ends, is_partial })
    }

    pub(crate) fn is_shallow(&self) -> bool {
        !self.ends.is_empty()
    }
}

/// The commits at the end of `depth` generations that have parents.
fn ends_at(git: &Git, commit: &str, depth: u32) -> Result<BTreeSet<String>> {
    let (mut seen, mut generation) = (BTreeSet::new(), vec![commit.to_owned()]);
    let mut ends = BTreeSet::new();
    for left in (0..depth).rev() {
        let input: String = generation.iter().flat_map(|commit| [commit, "\n"]).collect();
        let lines =
            git.run_with(&["rev-list", "--no-walk=unsorted", "--parents", "--stdin"], input.as_bytes())?;
        seen.extend(generation.drain(..));
        for line in String::from_utf8_lossy(&lines).lines() {
            let mut words = line.split(' ').map(ToOwned::to_owned);
            let (own, parents) = (words.next().unwrap_or_default(), words.collect::<Vec<_>>());
            if left == 0 && !parents.is_empty() {
                ends.insert(own);
            } else {
                generation.extend(parents);
            }
        }
        generation.sort_unstable();
        generation.dedup();
        generation.retain(|commit| !seen.contains(commit));
        if generation.is_empty() {
            break;
        }
    }
    Ok(ends)
}

/// Packs the commit with its history. Blocks.
///
/// # Errors
/// A text for people: too large, or git's own message.
pub(crate) fn make(start: &StartCommit, history: &History) -> Result<Bundle> {
    let temporary = tempfile::tempdir().context("make a temporary directory")?;
    let file = temporary.path().join("source.bundle");
    let ends: String = history.ends.iter().flat_map(|end| [end, "\n"]).collect();
    let shallow = temporary.path().join("shallow");
    fs::write(&shallow, ends).context("write a temporary file")?;
    // A complete history is read without such a file.
    let shallow = history.is_shallow().then(|| shallow.to_string_lossy().into_owned());
    write(start, &file, Part { shallow: shallow.as_deref(), ends: Some(history), without: None })
        .map_err(|error| if history.is_partial { partial(&error) } else { error })?;
    if let Some(parent) = &start.made {
        let dirty_bundle = dirty_file(&start.id)?;
        fs::create_dir_all(dirty_bundle.parent().unwrap_or(Path::new("/")))
            .context("make the cache directory")?;
        write(start, &dirty_bundle, Part { shallow: None, ends: None, without: parent.as_deref() })?;
    }
    let (size_bytes, sha256) = digest(&file).context("read the bundle")?;
    if size_bytes > limits::BUNDLE_BYTES_MAX {
        bail!(
            "the repository's history is {} MiB packed, the limit is {} MiB; --depth 1 sends only the newest commit; or give its URL with --repo",
            size_bytes >> 20,
            limits::BUNDLE_BYTES_MAX >> 20
        );
    }
    Ok(Bundle { file, size_bytes, sha256, _dir: temporary })
}

/// What a bundle has of a commit.
#[derive(Clone, Copy)]
struct Part<'a> {
    /// A file with the commits at which a shorter history ends.
    shallow: Option<&'a str>,
    /// The history whose ends the refs name, for a bundle that a session starts from.
    ends: Option<&'a History>,
    /// A commit that its readers have.
    without: Option<&'a str>,
}

/// Writes a bundle, as `git bundle create` does for refs of the repository: here the commit may have none.
fn write(start: &StartCommit, path: &Path, part: Part<'_>) -> Result<()> {
    let StartCommit { id, branch, git, .. } = start;
    let mut head = match id.len() {
        40 => "# v2 git bundle\n".to_owned(),
        _ => "# v3 git bundle\n@object-format=sha256\n".to_owned(),
    };
    let (mut wanted, mut words) = (format!("{id}\n"), vec![]);
    words.extend(part.shallow.into_iter().flat_map(|file| ["--shallow-file", file]));
    words.extend(["pack-objects", "--revs", "--stdout", "--quiet", "--delta-base-offset"]);
    if let Some(without) = part.without {
        head.push_str(&format!("-{without}\n"));
        wanted.push_str(&format!("^{without}\n"));
        words.push("--thin");
    }
    head.push_str(&format!("{id} HEAD\n"));
    if let Some(history) = part.ends {
        head.push_str(&format!("{id} refs/heads/{branch}\n"));
        for (number, end) in history.ends.iter().enumerate() {
            head.push_str(&format!("{end} {SHALLOW}{number}\n"));
        }
    }
    head.push('\n');
    let mut file = fs::File::create(path).context("make a temporary file")?;
    file.write_all(head.as_bytes()).context("write a temporary file")?;
    git.write_to(&words, wanted.as_bytes(), file)
}

/// The error of a clone whose missing objects git could not get.
fn partial(error: &anyhow::Error) -> anyhow::Error {
    let text = "this is a partial clone, and git could not get what it lacks; `git fetch --refetch --no-filter` completes it";
    anyhow::anyhow!("{text}: {error:#}")
}

/// Returns the file that keeps a temporary commit of uncommitted changes: `flotilla checkout` needs the commit as a
/// base.
pub(crate) fn dirty_file(commit: &str) -> Result<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let cache = cache.or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    let cache = cache.context("neither XDG_CACHE_HOME nor HOME is set")?;
    Ok(cache.join("flotilla/bases").join(format!("{commit}.bundle")))
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
