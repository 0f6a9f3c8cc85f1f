//! A broker that pushes, a server with a repository, and commits of a session.

use crate::harness::Broker;
use futures::{Stream, StreamExt as _, stream};
use rpc::v1::{self, push_request::Part};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;
use testkit::{
    git::{Repository, repository},
    git_server::{GitServer, rules::GitFault},
};
use tokio::sync::oneshot;
use tonic::Status;

pub const HOST: &str = "git.example.com";
pub const SESSION: &str = "ses_a";
pub const TOKEN: &str = "token-4711-of-pushes";

pub struct Testbed {
    pub server: GitServer,
    pub broker: Broker,
    /// What the server has, and in which the session's commits are made.
    pub app: Repository,
    /// The commit on which the session began.
    pub base: String,
    directory: TempDir,
}

/// A push: its header, the newest commit, and the bundle.
pub struct Attempt {
    pub header: v1::PushHeader,
    pub commit: String,
    pub bundle: Vec<u8>,
}

impl Attempt {
    pub fn to(mut self, branch: &str) -> Self {
        branch.clone_into(&mut self.header.branch);
        self
    }
}

pub fn code(status: &Status) -> String {
    rpc::status::code_of(status).unwrap_or_else(|| format!("{status:?}"))
}

impl Testbed {
    pub async fn start() -> Self {
        let server = GitServer::start(&[HOST]).await;
        let fixed = format!("{HOST}={}", server.address);
        Self::on(server, &["--hosts", &fixed]).await
    }

    /// With a broker that reaches the server by these arguments.
    pub async fn on(server: GitServer, arguments: &[&str]) -> Self {
        let app = repository(&[
            ("file", "private\n"),
            ("src/lib.rs", "lib\n"),
            (".github/workflows/ci.yml", "on: push\n"),
        ]);
        for path in ["acme/app.git", "acme/other.git", "foreign/app.git"] {
            server.push(path, &app);
        }
        server.require(&format!("x-access-token:{TOKEN}"));
        let directory = tempfile::tempdir().unwrap();
        let certificate = directory.path().join("ca.pem");
        fs::write(&certificate, &server.certificate).unwrap();
        let (place, certificate) = (directory.path().join("push"), certificate.to_str().unwrap());
        let common = ["--git-ca", certificate, "--push", place.to_str().unwrap()];
        let broker = Broker::start(&[&common[..], arguments].concat()).await;
        broker.put_secret(None, "TOKEN", TOKEN).await;
        let base = app.commit.clone();
        Self { server, broker, app, base, directory }
    }

    /// Commits these files on top of a commit, as the sandbox exports them for the session. Without content a file is removed.
    pub fn commit(&self, parent: &str, files: &[(&str, &str)]) -> String {
        self.commit_at(parent, files, "Changes")
    }

    pub fn commit_at(&self, parent: &str, files: &[(&str, &str)], title: &str) -> String {
        self.app.git(&["read-tree", "--reset", parent]);
        for (path, content) in files {
            if content.is_empty() {
                self.app.git(&["update-index", "--force-remove", path]);
            } else {
                let object = self.object(content.as_bytes());
                self.app.git(&["update-index", "--add", "--cacheinfo", &format!("100644,{object},{path}")]);
            }
        }
        let tree = self.app.git(&["write-tree"]);
        self.commit_tree(&tree, &[parent], title)
    }

    pub fn commit_tree(&self, tree: &str, parents: &[&str], title: &str) -> String {
        let message = format!("{title}\n\nFlotilla-Session: {SESSION}");
        let parents = parents.iter().flat_map(|parent| ["-p", parent]);
        let arguments: Vec<&str> = ["commit-tree", tree, "-m", &message].into_iter().chain(parents).collect();
        self.run(&self.app.path(), &arguments, b"")
    }

    pub fn merge(&self, first: &str, second: &str) -> String {
        let tree = self.app.git(&["merge-tree", "--write-tree", first, second]);
        self.commit_tree(&tree, &[first, second], "Merge")
    }

    /// The file with this content, as an object.
    pub fn object(&self, content: &[u8]) -> String {
        self.run(&self.app.path(), &["hash-object", "-w", "--stdin"], content)
    }

    /// A commit of a tree with this entry and those of the base: `100644 blob ID` and a name, as they are.
    pub fn commit_entry(&self, entry: &str, name: &str) -> String {
        let base = self.app.git(&["ls-tree", "-z", &self.base]);
        let list = format!("{}\0{entry}\t{name}\0", base.trim_end_matches('\0'));
        let tree = self.run(&self.app.path(), &["mktree", "-z", "--missing"], list.as_bytes());
        self.commit_tree(&tree, &[&self.base], "Changes")
    }

    /// Runs git as the sandbox does.
    pub fn run(&self, directory: &Path, arguments: &[&str], input: &[u8]) -> String {
        String::from_utf8(self.bytes(directory, arguments, input)).unwrap().trim_end_matches('\n').to_owned()
    }

    fn bytes(&self, directory: &Path, arguments: &[&str], input: &[u8]) -> Vec<u8> {
        use std::io::Write as _;
        let (name, email) = ("Flotilla Agent", "agent@flotilla.invalid");
        let mut git = Command::new("git");
        git.arg("-C").arg(directory).args(arguments).envs([
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_AUTHOR_NAME", name),
            ("GIT_AUTHOR_EMAIL", email),
            ("GIT_COMMITTER_NAME", name),
            ("GIT_COMMITTER_EMAIL", email),
            ("GIT_AUTHOR_DATE", "2026-01-02T00:00:00Z"),
            ("GIT_COMMITTER_DATE", "2026-01-02T00:00:00Z"),
        ]);
        git.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        git.stderr(std::process::Stdio::piped());
        let mut child = git.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    /// A pack of exactly these objects.
    pub fn pack(&self, objects: &[&str]) -> Vec<u8> {
        let list: String = objects.iter().map(|object| format!("{object}\n")).collect();
        self.bytes(&self.app.path(), &["pack-objects", "--stdout", "--quiet"], list.as_bytes())
    }

    /// A push of a commit to the branch of the session.
    pub fn request(&self, commit: &str) -> Attempt {
        let name = "refs/heads/flotilla";
        self.app.git(&["update-ref", name, commit]);
        let without = format!("^{}", self.base);
        let bundle = self.bytes(&self.app.path(), &["bundle", "create", "--quiet", "-", name, &without], b"");
        let rule = v1::PushRule {
            url_prefix: format!("https://{HOST}/acme/"),
            secret: "TOKEN".to_owned(),
            branch_prefix: "agent/".to_owned(),
            denied_paths: vec!["deploy/**".to_owned()],
        };
        let header = v1::PushHeader {
            tenant_id: self.broker.tenants[0].to_string(),
            project_id: self.broker.project.to_string(),
            session_id: SESSION.to_owned(),
            url: format!("https://{HOST}/acme/app.git"),
            rule: Some(rule),
            branch: "agent/ses_a".to_owned(),
            base_commit: self.base.clone(),
            is_preview: false,
        };
        Attempt { header, commit: commit.to_owned(), bundle }
    }

    pub async fn push(&self, commit: &str) -> Result<v1::PushResponse, Status> {
        self.send(self.request(commit)).await
    }

    pub async fn send(&self, attempt: Attempt) -> Result<v1::PushResponse, Status> {
        let Attempt { header, commit, bundle } = attempt;
        let pieces: Vec<Vec<u8>> = bundle.chunks(rpc::CHUNK_BYTES).map(<[u8]>::to_vec).collect();
        let parts = [Part::Header(header), Part::Commit(commit)].into_iter();
        self.stream(stream::iter(parts.chain(pieces.into_iter().map(Part::Data)))).await
    }

    /// Sends the second half of the bundle after `rest`.
    pub async fn send_slowly(
        &self,
        attempt: Attempt,
        rest: oneshot::Receiver<()>,
    ) -> Result<v1::PushResponse, Status> {
        let Attempt { header, commit, bundle } = attempt;
        let (first, second) = bundle.split_at(bundle.len() / 2);
        let begun = [Part::Header(header), Part::Commit(commit), Part::Data(first.to_vec())];
        self.stream_in_two(begun.into(), rest, vec![Part::Data(second.to_vec())]).await
    }

    /// Sends the newest commit and the bundle after `named`.
    pub async fn send_early(
        &self,
        attempt: Attempt,
        named: oneshot::Receiver<()>,
    ) -> Result<v1::PushResponse, Status> {
        let Attempt { header, commit, bundle } = attempt;
        let rest = vec![Part::Commit(commit), Part::Data(bundle)];
        self.stream_in_two(vec![Part::Header(header)], named, rest).await
    }

    /// Sends `rest` after `go`.
    async fn stream_in_two(
        &self,
        begun: Vec<Part>,
        go: oneshot::Receiver<()>,
        rest: Vec<Part>,
    ) -> Result<v1::PushResponse, Status> {
        let rest = stream::once(async move {
            go.await.unwrap();
            stream::iter(rest)
        });
        self.stream(stream::iter(begun).chain(rest.flatten())).await
    }

    async fn stream(
        &self,
        parts: impl Stream<Item = Part> + Send + 'static,
    ) -> Result<v1::PushResponse, Status> {
        let messages = parts.map(|part| v1::PushRequest { part: Some(part) });
        self.broker.client.clone().push(messages).await.map(tonic::Response::into_inner)
    }

    /// Runs git in the repository of the server.
    pub fn remote_git(&self, arguments: &[&str]) -> String {
        self.run(&self.server.directory("acme/app.git"), arguments, b"")
    }

    /// What a name means at the server.
    pub fn remote(&self, name: &str) -> String {
        self.remote_git(&["rev-parse", "--verify", name])
    }

    /// The content of a file at the server.
    pub fn remote_text(&self, name: &str) -> String {
        let bytes = self.bytes(&self.server.directory("acme/app.git"), &["cat-file", "blob", name], b"");
        String::from_utf8(bytes).unwrap()
    }

    /// All references of all repositories of the server.
    pub fn references(&self) -> Vec<String> {
        let list = |path| self.run(&self.server.directory(path), &["for-each-ref"], b"");
        ["acme/app.git", "acme/other.git", "foreign/app.git"].into_iter().map(list).collect()
    }

    /// Holds the answer to a push, which the server has done by then.
    pub fn hold_push(&self) {
        self.server.fail("app.git/git-receive-pack", GitFault::Hold(0));
    }

    /// The number of requests that moved a branch.
    pub fn pushes(&self) -> usize {
        self.requests_to("/git-receive-pack")
    }

    /// The number of requests whose target ends with this.
    pub fn requests_to(&self, target: &str) -> usize {
        self.server.requests().iter().filter(|request| request.target.ends_with(target)).count()
    }

    pub fn push_files(&self) -> Vec<PathBuf> {
        let (mut files, mut directories) = (vec![], vec![self.directory.path().join("push")]);
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { directories.push(path) } else { files.push(path) }
            }
        }
        files
    }

    pub fn push_directories(&self) -> usize {
        let entries = fs::read_dir(self.directory.path().join("push")).unwrap();
        entries.filter(|entry| entry.as_ref().unwrap().path().is_dir()).count()
    }
}
