//! Where the files of a session come from: a directory of the user, which travels as a bundle, or a URL that the server clones.

use super::{
    bundle::{self, Bundle, History},
    git::Git,
    start::{Start, StartCommit},
};
use crate::{
    client::{Client, call},
    terminal::{
        output::Output,
        progress::{Amount, ProgressLine},
    },
};
use anyhow::{Context as _, Result, bail};
use domain::{limits, session::repository_name};
use futures::{StreamExt as _, stream};
use rpc::v1::{
    BundleHeader, FindBundleRequest, Place, Source, UploadBundleRequest, source, upload_bundle_request,
};
use std::{
    num::NonZeroU32,
    path::{Path, PathBuf},
};
use tokio::io::AsyncReadExt as _;

/// The repository of a command.
#[derive(Debug, clap::Args)]
pub(crate) struct RepositoryArgs {
    /// The repository: a local directory, or a URL that the server clones; default: the current directory.
    #[arg(long, value_name = "PATH|URL")]
    repo: Option<String>,
    /// Branch, tag or commit to start from; default: the checked-out commit, or the URL's default branch.
    #[arg(long, value_name = "REVISION", conflicts_with = "dirty")]
    base: Option<String>,
    /// Start from the local files as they are, with uncommitted changes. The local repository is only read.
    #[arg(long)]
    dirty: bool,
    /// Send only so many commits of the history. A shallow clone sends those that it has, a partial clone one.
    #[arg(long, value_name = "COMMITS")]
    depth: Option<NonZeroU32>,
}

/// A repository that the server can open.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RepositorySource {
    /// The last component of the directory or URL.
    pub(crate) name: String,
    pub(crate) source: Source,
    /// Where a local repository is.
    pub(crate) place: Place,
}

impl RepositoryArgs {
    /// Whether the command line names a repository.
    pub(crate) fn is_named(&self) -> bool {
        self.repo.is_some()
    }

    /// Whether sessions start from the commit that is checked out.
    pub(crate) fn is_checked_out(&self) -> bool {
        self.base.is_none() && !self.dirty
    }

    /// The last component of the repository's path or URL.
    ///
    /// # Errors
    /// A sentence for people: there is no such directory.
    pub(crate) fn name(&self) -> Result<String> {
        let (Location::Url { name, .. } | Location::Directory { name, .. }) = self.location()?;
        Ok(name)
    }

    /// The files at `paths` that a local repository has in the commit that a session starts from, each with its text. None of a URL.
    ///
    /// # Errors
    /// A sentence for people: there is no such directory.
    pub(crate) fn read(&self, paths: &[&'static str]) -> Result<Vec<(&'static str, String)>> {
        let Location::Directory { dir, .. } = self.location()? else { return Ok(vec![]) };
        let (git, base) = (Git::at(&dir), self.base.as_deref().unwrap_or("HEAD"));
        let read = |path: &'static str| Some((path, git.run(&["show", &format!("{base}:{path}")]).ok()?));
        Ok(paths.iter().filter_map(|path| read(path)).collect())
    }

    /// Those of `paths` that the work tree of a local repository has otherwise than its checked-out commit. None if the command names a commit.
    ///
    /// # Errors
    /// A sentence for people: there is no such directory.
    pub(crate) fn list_uncommitted(&self, paths: &[&'static str]) -> Result<Vec<&'static str>> {
        let Location::Directory { dir, .. } = self.location()? else { return Ok(vec![]) };
        if self.base.is_some() {
            return Ok(vec![]);
        }
        let git = Git::at(&dir);
        let is_changed = |path: &&&'static str| {
            let place = format!(":(top,literal){path}");
            let status = git.run(&["status", "--porcelain", "--untracked-files=all", "--", &place]);
            status.is_ok_and(|changes| !changes.is_empty())
        };
        Ok(paths.iter().filter(is_changed).copied().collect())
    }

    fn location(&self) -> Result<Location> {
        location(self.repo.as_deref().unwrap_or("."))
    }

    /// Sends a local repository to the server; a URL needs nothing.
    ///
    /// # Errors
    /// Those of [`StartCommit::find`], [`bundle::make`] and of the upload, in a sentence for people.
    pub(crate) async fn send(&self, client: &Client, output: &Output) -> Result<RepositorySource> {
        match self.location()? {
            Location::Url { .. } if self.dirty => bail!("--dirty needs a local directory, not a URL"),
            Location::Url { .. } if self.depth.is_some() => {
                bail!("--depth needs a local directory, not a URL")
            }
            Location::Url { name, url } => {
                let revision = self.base.clone().unwrap_or_default();
                Ok(RepositorySource {
                    name,
                    source: Source { from: Some(source::From::GitUrl(url)), revision },
                    place: Place::default(),
                })
            }
            Location::Directory { name, dir } => {
                let start = match (self.dirty, self.base.clone()) {
                    (true, _) => Start::Dirty,
                    (false, None) => Start::Head,
                    (false, Some(base)) => Start::Revision(base),
                };
                let place = place(&dir);
                let local = LocalSource { name, start, dir, depth: self.depth };
                let bundle_id = local.send(client, output).await?;
                let from = Some(source::From::BundleId(bundle_id));
                let source = Source { from, revision: String::new() };
                Ok(RepositorySource { name: local.name, source, place })
            }
        }
    }
}

/// A repository of this machine, as it is to be sent.
struct LocalSource {
    name: String,
    start: Start,
    dir: PathBuf,
    depth: Option<NonZeroU32>,
}

impl LocalSource {
    /// Returns the bundle with the commit: one that the server has, or a new one. Says what stays behind.
    async fn send(&self, client: &Client, output: &Output) -> Result<String> {
        let Self { name, start, dir, depth } = self;
        let packing = output.progress(&format!("packing {name}"), Amount::Unknown);
        let (dir, start, depth) = (dir.clone(), start.clone(), *depth);
        let (commit, history) = blocking("find the commit", move || {
            let commit = StartCommit::find(&dir, &start)?;
            let history = History::find(&commit, depth)?;
            Ok((commit, history))
        })
        .await?;
        for note in commit.left.notes() {
            output.note(&note);
        }
        let short: String = commit.id().chars().take(10).collect();
        if let Some(known) = find(client, &commit, &history).await? {
            drop(packing);
            output.note(&format!("{name} at {short} is already there"));
            return Ok(known);
        }
        let partial =
            if history.is_partial && depth.is_none() { ", the newest commit of a partial clone" } else { "" };
        let bundle = blocking("make the bundle", move || bundle::make(&commit, &history)).await?;
        drop(packing);
        output.note(&format!("sending {name} at {short} ({}){partial}", size(bundle.size_bytes)));
        let sending = || output.progress(&format!("sending {name}"), Amount::BytesOf(bundle.size_bytes));
        upload(client, &bundle, sending).await
    }
}

async fn blocking<T: Send + 'static>(
    doing: &'static str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.context(doing)?
}

/// A number of bytes for people.
fn size(bytes: u64) -> String {
    if bytes < 1 << 20 {
        format!("{} KiB", bytes.div_ceil(1 << 10))
    } else {
        format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
    }
}

/// Finds a bundle with the commit and its history on the server.
async fn find(client: &Client, commit: &StartCommit, history: &History) -> Result<Option<String>> {
    let request = FindBundleRequest {
        commit: commit.id().to_owned(),
        branch: commit.branch().to_owned(),
        may_be_shallow: history.is_shallow(),
    };
    let find = async || client.projects().find_bundle(request.clone()).await;
    let answer = call("find the repository", find).await?;
    Ok((!answer.bundle_id.is_empty()).then_some(answer.bundle_id))
}

/// The place of a local repository. A longer path cannot be the directory of a client.
fn place(dir: &Path) -> Place {
    let directory = dir.to_str().filter(|dir| dir.len() <= limits::NAME_BYTES_MAX).unwrap_or_default();
    let git = Git::at(dir);
    let remote = git.run(&["remote", "get-url", "origin"]).unwrap_or_default();
    // The history of a repository with a remote may be long, and its beginning says no more. A remote may also be a directory of this machine.
    let is_known = repository_name(&remote).is_some();
    let root_commit = if is_known { String::new() } else { root_commit(&git).unwrap_or_default() };
    Place { directory: directory.to_owned(), remote, root_commit }
}

/// The first commit of the history of HEAD; `None`: there is no commit, or not the whole history.
fn root_commit(git: &Git) -> Option<String> {
    if git.run(&["rev-parse", "--is-shallow-repository"]).ok()? != "false" {
        return None;
    }
    // Histories that were joined have several. The same one must be chosen in each clone.
    let roots = git.run(&["rev-list", "--max-parents=0", "HEAD"]).ok()?;
    roots.lines().min().map(str::to_owned)
}

/// What `--repo` names.
#[derive(Debug, PartialEq, Eq)]
enum Location {
    Url { name: String, url: String },
    Directory { name: String, dir: PathBuf },
}

fn location(repo: &str) -> Result<Location> {
    let scp = repo.split_once(':').filter(|(host, _)| host.contains('@') && !host.contains('/'));
    let url = match scp {
        _ if repo.contains("://") => Some(repo.to_owned()),
        // git@host:path is ssh in git's short form.
        Some((host, path)) => Some(format!("ssh://{host}/{}", path.trim_start_matches('/'))),
        None => None,
    };
    if let Some(url) = url {
        let name = url
            .trim_end_matches('/')
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .trim_end_matches(".git")
            .to_owned();
        return Ok(Location::Url { name, url });
    }
    let dir = Path::new(repo).canonicalize().with_context(|| format!("open the directory {repo}"))?;
    let name = dir.file_name().map_or_else(|| "root".to_owned(), |name| name.to_string_lossy().into_owned());
    Ok(Location::Directory { name, dir })
}

/// Sends a bundle and returns its id. The upload is skipped if the server already has the bundle. `sending` shows the bytes of one attempt.
async fn upload(client: &Client, bundle: &Bundle, sending: impl Fn() -> ProgressLine) -> Result<String> {
    let (file, header) =
        (&bundle.file, BundleHeader { size_bytes: bundle.size_bytes, sha256: bundle.sha256.clone() });
    let answer = call("send the repository", || async {
        let opened = tokio::fs::File::open(file).await?;
        let data = stream::unfold((opened, sending()), |(mut file, progress)| async move {
            let mut bytes = Vec::with_capacity(rpc::CHUNK_BYTES);
            // An unreadable file ends the stream early. The server then refuses the bundle by size and hash.
            let length = (&mut file).take(rpc::CHUNK_BYTES as u64).read_to_end(&mut bytes).await.ok()?;
            progress.add(length as u64);
            (length > 0).then_some((upload_bundle_request::Part::Data(bytes), (file, progress)))
        });
        let parts = stream::iter([upload_bundle_request::Part::Header(header.clone())]).chain(data);
        client.projects().upload_bundle(parts.map(|part| UploadBundleRequest { part: Some(part) })).await
    });
    Ok(answer.await?.bundle_id)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_repository_is_a_directory_or_a_url() {
        let url = |name: &str, url: &str| Location::Url { name: name.to_owned(), url: url.to_owned() };
        for (repo, expected) in [
            ("https://example.com/a/b.git", url("b", "https://example.com/a/b.git")),
            ("git@example.com:a/b.git", url("b", "ssh://git@example.com/a/b.git")),
            ("file:///srv/c/", url("c", "file:///srv/c/")),
            ("/usr", Location::Directory { name: "usr".to_owned(), dir: PathBuf::from("/usr") }),
        ] {
            assert_eq!(location(repo).unwrap(), expected);
        }
        assert!(location("no/such/dir").is_err());
    }
}
