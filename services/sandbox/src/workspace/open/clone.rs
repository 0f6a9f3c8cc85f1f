//! Fills new files from a repository. A helper clones it, and reads the objects that the mirror of the project has from this disk. If the mirror is
//! damaged, another helper clones without it. A further helper fills the files of Git LFS in the same way.

use super::{lfs::LfsContents, server_door::ServerDoor, submodules};
use crate::{
    error::Error,
    helper::{Output, Queue, Task, refused},
    isolation::{
        launch::{Mount, give_to},
        policy::Network,
    },
    layout::remove_directory,
    mirror::{
        content::{MIRROR_PACKS_MAX, MIRROR_REPORT_BYTES_MAX, MIRROR_TIPS_MAX, MirrorContent},
        generation::Generation,
        key::MirrorKey,
        store::MirrorUse,
    },
    session::{opening::OpeningStep, state::Session},
    tree::source::{LfsOrigins, Route, Source},
    workspace::{configuration, door},
};
use domain::{egress::git::GIT_DOOR, ids::ProjectId, text::is_object_id};
use rpc::v1::{self, ErrorCode};
use std::{path::Path, time::Duration};
use tokio_util::sync::CancellationToken;

/// Longest clone or unbundling; milliseconds.
const WORKSPACE_OPEN_MS: u64 = 600_000;
const SCRIPT: &str = concat!(
    include_str!("../../helper/git.sh"),
    include_str!("../../helper/bound.sh"),
    include_str!("../door.sh"),
    include_str!("../reach.sh"),
    include_str!("../../helper/commit.sh"),
    include_str!("../mirror.sh"),
    include_str!("../configuration-places.sh"),
    include_str!("../open.sh")
);
const TIP_SCRIPT: &str = concat!(
    include_str!("../../helper/git.sh"),
    include_str!("../door.sh"),
    include_str!("../reach.sh"),
    include_str!("../tip.sh")
);
/// Longest question for the commit of a revision; milliseconds. Beyond it: the repository is cloned, which tells what is wrong with the server.
const TIP_MS: u64 = 20_000;
/// Bytes of the script's answer. The script is killed when it prints more.
const ANSWER_BYTES_MAX: usize = 1024;
const BUNDLE_INSIDE: &str = "/run/sbx/source.bundle";
const DIRECTORY_INSIDE: &str = "/run/sbx/source";
/// Where the helper finds the certificates of CAs, if the operator names some.
const CA_INSIDE: &str = "/run/sbx/git-ca.pem";
/// Where the helper finds the door to the server of a public repository, as a proxy.
const DOOR: &str = "http://127.0.0.1:3129";
/// The exit codes of open.sh that say something about the repository, the bundle or the door, and nothing about the mirror.
const ENDS: [i32; 9] = [0, 10, 11, 12, 13, 15, 17, 18, 22];

/// The clone of a repository.
#[derive(Debug)]
pub(super) struct GitClone<'a> {
    pub(super) session: &'a Session,
    pub(super) source: &'a Source,
    /// Where the objects of Git LFS come from.
    pub(super) lfs: &'a LfsOrigins,
    /// Branch, tag or commit; empty: the default one.
    pub(super) revision: &'a str,
    /// The branch on which the files begin; empty: that of the revision.
    pub(super) branch: &'a str,
    /// Whether the last commit holds uncommitted changes.
    pub(super) uncommitted: bool,
    /// Whether submodules can be cloned.
    pub(super) has_door: bool,
    /// The project whose mirror it may use.
    pub(super) project: Option<&'a ProjectId>,
    /// The directory that becomes /workspace. It exists and is empty.
    pub(super) build: &'a Path,
    pub(super) uid: u32,
}

/// How a helper reaches the source of a clone.
struct SourceAccess {
    /// Its kind, for the script.
    from: &'static str,
    /// Where git finds it.
    url: String,
    /// The way to its server, for the script.
    way: String,
    mounts: Vec<Mount>,
    network: Network,
}

/// The files of a repository.
#[derive(Debug)]
pub(super) struct ClonedFiles {
    pub(super) base_commit: String,
    pub(super) base_is_ours: bool,
    pub(super) origin: String,
    /// Whether the base commit may have files of configuration.
    has_configuration: bool,
    /// Whether there are files of Git LFS.
    pub(super) has_lfs: bool,
}

impl ClonedFiles {
    /// Whether the files in `build` have contents that come from elsewhere.
    pub(super) fn has_linked_content(&self, build: &Path) -> bool {
        self.has_lfs || build.join(".gitmodules").symlink_metadata().is_ok()
    }

    /// Reads what the repository configures in the base commit. The user `uid` has the files, which are in `build`.
    ///
    /// # Errors
    /// Those of the helper.
    pub(super) async fn configuration(
        &self,
        session: &Session,
        build: &Path,
        uid: u32,
    ) -> Result<v1::ConfigurationFiles, Error> {
        if self.base_is_ours || !self.has_configuration {
            return Ok(v1::ConfigurationFiles::default());
        }
        configuration::read_from_commit(session, build, uid, &self.base_commit).await
    }
}

impl GitClone<'_> {
    /// Fills the files from the repository, with the contents of Git LFS and their submodules.
    pub(super) async fn run(&self, left: &CancellationToken) -> Result<ClonedFiles, Error> {
        let Self { session, build, uid, .. } = *self;
        let cloning = session.progress.enter(OpeningStep::Clone(build.to_owned()));
        // Once the clone has ended, the opening goes on without its caller.
        let (answer, mirror) = self.clone_with_mirror(left).await?;
        drop(cloning);
        if answer.has_lfs {
            LfsContents { session, build, uid, origins: self.lfs }.bring(mirror, left).await?;
        } else {
            // Other clones may wait for this one.
            drop(mirror);
        }
        if self.has_door {
            submodules::bring(session, uid, build, left).await?;
        }
        Ok(answer)
    }

    /// Clones, and keeps what came from the server for later sessions of the project. Returns the mirror too, which may have objects of Git LFS.
    async fn clone_with_mirror(
        &self,
        left: &CancellationToken,
    ) -> Result<(ClonedFiles, Option<MirrorUse>), Error> {
        let mirrors = &self.session.shared.mirrors;
        let key = self.project.and_then(|it| MirrorKey::of(self.session.key.tenant, it, self.source));
        let mut mirror = match key {
            Some(key) => mirrors.take(key, left).await?,
            None => None,
        };
        let mut output = self.help(mirror.as_ref(), left).await?;
        if let Some(mirror) = mirror.as_mut().filter(|it| it.generation().is_some())
            && !ENDS.contains(&output.code)
        {
            mirror.discard();
            self.empty().map_err(Error::io("empty the workspace"))?;
            output = self.help(Some(mirror), left).await?;
        }
        if output.code != 0 {
            return Err(self.explain(&output));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let (report, answer) = text.trim_end().rsplit_once('\n').unwrap_or(("", text.trim_end()));
        let words: Vec<&str> = answer.split(' ').collect();
        let [ours, lfs, configuration, base_commit] = words[..] else {
            return Err(refused(ErrorCode::Internal, "git printed no commit", &output.stderr));
        };
        if !is_object_id(base_commit) {
            return Err(refused(ErrorCode::Internal, "git printed no commit", &output.stderr));
        }
        // Before the first program of the tenant runs.
        let mirror = match (mirror, MirrorContent::parse(report)) {
            (Some(mirror), Some(content)) => mirror.keep(content, self.build.to_owned()).await,
            (mirror, _) => mirror,
        };
        let files = ClonedFiles {
            base_commit: base_commit.to_owned(),
            base_is_ours: ours == "yes",
            origin: self.origin(),
            has_configuration: configuration != "no",
            has_lfs: lfs == "yes",
        };
        Ok((files, mirror))
    }

    /// Asks the server which commit the revision names now. `None`: only a clone can tell.
    pub(super) async fn find_tip(&self, left: &CancellationToken) -> Result<Option<String>, Error> {
        if matches!(self.source, Source::Bundle(_)) {
            return Ok(None);
        }
        let server_door = self.server_door()?;
        let SourceAccess { from, url, way, mounts, network } = self.access(server_door.as_ref())?;
        let arguments = vec![from.to_owned(), url, self.revision.to_owned(), way, self.branch.to_owned()];
        let blank = Task::new(self.session.key.tenant, self.uid, Duration::from_millis(TIP_MS));
        let task = Task { script: TIP_SCRIPT, arguments, mounts, network, queue: Queue::Question, ..blank };
        let output = match self.session.shared.helpers.run_until(task, ANSWER_BYTES_MAX, left).await {
            Ok(output) => output,
            Err(error) if error.code() == ErrorCode::CallerLeft => return Err(error),
            // The server is slow, or others ask much. A clone asks again, and has more time.
            Err(error) => {
                tracing::debug!("a server did not tell a commit: {error}");
                return Ok(None);
            }
        };
        let tip = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
        Ok(Some(tip).filter(|tip| output.code == 0 && is_object_id(tip)))
    }

    /// The door to the server, if git reaches it with TLS.
    fn server_door(&self) -> Result<Option<ServerDoor>, Error> {
        match self.source {
            Source::Remote { route: Route::Tls(tunnel), .. } => {
                ServerDoor::open(self.session, self.uid, tunnel.clone()).map(Some)
            }
            Source::Remote { route: Route::Ssh(_), .. }
            | Source::Bundle(_)
            | Source::Directory(_)
            | Source::Door { .. } => Ok(None),
        }
    }

    async fn help(&self, mirror: Option<&MirrorUse>, left: &CancellationToken) -> Result<Output, Error> {
        let answer_bytes_max = if mirror.is_some() { MIRROR_REPORT_BYTES_MAX } else { ANSWER_BYTES_MAX };
        let door = self.server_door()?;
        let task = self.task(mirror, door.as_ref())?;
        let mut output = self.session.shared.helpers.run_until(task, answer_bytes_max, left).await?;
        if let Some(failure) = door.and_then(|door| door.failure()) {
            // Git only says that it got no tunnel.
            output.stderr.push_str(&format!("\n{failure}"));
        }
        Ok(output)
    }

    /// Removes what a helper has left.
    fn empty(&self) -> std::io::Result<()> {
        remove_directory(self.build)?;
        std::fs::create_dir(self.build)?;
        give_to(self.session.shared.launcher.facts(), self.uid, self.build)
    }

    /// The origin that the repository remembers.
    fn origin(&self) -> String {
        match self.source {
            Source::Bundle(_) => "bundle".to_owned(),
            Source::Directory(path) => format!("file://{}", path.display()),
            Source::Door { url, .. } | Source::Remote { url, .. } => url.clone(),
        }
    }

    /// How a helper reaches the source. `door` leads to the server, if git reaches it with TLS.
    fn access(&self, door: Option<&ServerDoor>) -> Result<SourceAccess, Error> {
        let Self { session, build, .. } = *self;
        let mut mounts = vec![Mount::write(build, "/workspace")];
        let mut network = Network::None;
        let (from, url, way) = match self.source {
            Source::Bundle(file) => {
                mounts.push(Mount::read(file.path(), BUNDLE_INSIDE));
                ("bundle", BUNDLE_INSIDE.to_owned(), String::new())
            }
            Source::Directory(path) => {
                mounts.push(Mount::read(path, DIRECTORY_INSIDE));
                ("directory", format!("file://{DIRECTORY_INSIDE}"), String::new())
            }
            Source::Door { address, .. } => {
                mounts.extend(door::mounts(session)?);
                ("door", format!("{GIT_DOOR}{}{}", address.authority(), address.path()), String::new())
            }
            Source::Remote { url, route: Route::Tls(_) } => {
                mounts.extend(session.shared.config.git_ca.iter().map(|ca| Mount::read(ca, CA_INSIDE)));
                mounts.extend(door.map(ServerDoor::mount));
                mounts.push(door::init(session));
                ("https", url.clone(), DOOR.to_owned())
            }
            Source::Remote { url, route: Route::Ssh(options) } => {
                network = Network::Host;
                ("ssh", url.clone(), options.clone())
            }
        };
        Ok(SourceAccess { from, url, way, mounts, network })
    }

    /// The task of the helper that clones. `door` is as in [`GitClone::access`].
    fn task(&self, mirror: Option<&MirrorUse>, door: Option<&ServerDoor>) -> Result<Task, Error> {
        let Self { session, uid, .. } = *self;
        let SourceAccess { from, url, way, mut mounts, network } = self.access(door)?;
        mounts.extend(mirror.and_then(MirrorUse::generation).map(Generation::mount));
        let limit_kib = session.shared.config.disk_bytes >> 10;
        let uncommitted = if self.uncommitted { "yes" } else { "no" };
        let mut arguments = vec![from.to_owned(), url, self.revision.to_owned(), self.origin()];
        arguments.extend([limit_kib.to_string(), way, uncommitted.to_owned(), self.branch.to_owned()]);
        if mirror.is_some() {
            arguments.extend([MIRROR_TIPS_MAX, MIRROR_PACKS_MAX].map(|bound| bound.to_string()));
        }
        let blank = Task::new(session.key.tenant, uid, Duration::from_millis(WORKSPACE_OPEN_MS));
        Ok(Task { script: SCRIPT, arguments, mounts, network, ..blank })
    }

    /// The error of the helper, by the exit code of open.sh.
    fn explain(&self, Output { code, stderr, .. }: &Output) -> Error {
        match (*code, self.source.proxy()) {
            // Git says what failed: the proxy, or the server behind it.
            (15, Some(proxy)) => {
                let text = format!(
                    "cannot clone the repository through the proxy {proxy} of FLOTILLA_SANDBOX_GIT_PROXY"
                );
                refused(ErrorCode::RepositoryUnreachable, &text, stderr)
            }
            (code, _) => explain(code, self.revision, stderr),
        }
    }
}

/// The exit codes of open.sh.
fn explain(code: i32, revision: &str, stderr: &str) -> Error {
    match code {
        10 => refused(ErrorCode::RepositoryNotFound, "repository not found", stderr),
        11 => {
            let text = "the repository does not exist or needs a credential; name a secret for its URL in environment.git.credentials of the \
                        settings, and set it with `flotilla secret set`";
            refused(ErrorCode::RepositoryNeedsCredentials, text, stderr)
        }
        12 => {
            let text = format!("the repository has no branch, tag or commit {revision:?}");
            Error::refused(ErrorCode::RevisionNotFound, text)
        }
        13 => refused(ErrorCode::BundleInvalid, "the upload is not a self-contained git bundle", stderr),
        15 => refused(ErrorCode::RepositoryUnreachable, "cannot clone the repository", stderr),
        17 => door::find_refusal(stderr).unwrap_or_else(|| {
            refused(ErrorCode::RepositoryUnreachable, "cannot clone the repository", stderr)
        }),
        18 => Error::refused(
            ErrorCode::GitUnavailable,
            "the helper of the clone cannot carry the connections of git to its door",
        ),
        22 => {
            let text = "git cannot make the branch of the worktree, because the repository has a branch whose name is the beginning of its path";
            refused(ErrorCode::RevisionNotFound, text, stderr)
        }
        137 => Error::refused(
            ErrorCode::DiskFull,
            "the repository exceeds the disk or memory limit of a workspace",
        ),
        _ => refused(ErrorCode::Internal, "cannot make the workspace", stderr),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_that_needs_a_credential_is_told_with_the_setting_and_the_command() {
        let stderr = "fatal: could not read Username for 'https://h.org': terminal prompts disabled\n";
        let error = explain(11, "", stderr);
        assert_eq!(error.code(), ErrorCode::RepositoryNeedsCredentials);
        let text = error.to_string();
        for part in ["environment.git.credentials", "`flotilla secret set`", "terminal prompts disabled"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(explain(18, "", "").code(), ErrorCode::GitUnavailable);
        assert_eq!(explain(22, "", "").code(), ErrorCode::RevisionNotFound);
        let refused = explain(17, "", "remote: no such secret (git_secret_missing)\n");
        assert_eq!(
            (refused.code(), refused.to_string()),
            (ErrorCode::SecretNotFound, "no such secret".to_owned())
        );
        assert_eq!(explain(17, "", "fatal: early EOF\n").code(), ErrorCode::RepositoryUnreachable);
    }
}
