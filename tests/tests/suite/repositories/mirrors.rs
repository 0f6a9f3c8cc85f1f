//! Mirrors: a later session of a project gets its repository from the disk of the sandbox machine, and only after the server has answered.

mod damage;
mod objects;

use super::{HOST, TOKEN, Testbed, URL, session, store};
use e2e::{Options, api::Api, turn::output};
use rpc::v1;
use serde_json::json;
use std::path::PathBuf;
use testkit::git_server::rules::GitFault;

/// Everything that git knows in a repository, and what its files share with others.
const LOOK: &str = "git for-each-ref --format='%(refname) %(objectname) %(symref)'; cat .git/HEAD .git/config .git/packed-refs; \
     git rev-parse HEAD; git status --porcelain --branch; cat file; \
     git cat-file --batch-all-objects --batch-check | sort; git fsck --strict --no-dangling 2>&1; \
     ls .git .git/info .git/objects/info .git/logs/refs/remotes/origin 2>&1; find . -type f -links +2; git reflog --format=%gs";

/// The path of the fetches of the repository.
const FETCH: &str = "/git.example.com/acme/app.git/git-upload-pack";

/// Names of one commit. A session that names it in another way does not wait for what the first one reads of the commit.
const NAMES_OF_MAIN: [&str; 3] = ["", "main", "refs/heads/main"];

impl Testbed {
    /// Counts the transfers of objects after the first `requests` requests. A client that asks what the server has sends two requests, a greeting and a
    /// question for the names. A client that transfers objects sends a third one.
    pub(super) fn transfers_since(&self, requests: usize) -> usize {
        let since = self.server.requests().split_off(requests);
        let greetings = since.iter().filter(|request| request.method == "GET").count();
        assert!(greetings > 0, "each session asks the server");
        since.len() - 2 * greetings
    }

    fn serve(&self, references: &[&str]) {
        let place = self.server.directory("acme/app.git");
        let push = ["push", "--quiet", "--force", place.to_str().unwrap()];
        self.app.git(&[&push[..], references].concat());
    }

    fn commit(&self, content: &str) -> String {
        std::fs::write(self.app.path().join("file"), content).unwrap();
        self.app.git(&["commit", "--quiet", "--all", "--message=change"]);
        self.app.git(&["rev-parse", "HEAD"])
    }

    /// The generations of the tenant's mirrors.
    fn generations(&self) -> Vec<PathBuf> {
        self.generations_of(&self.stack.api)
    }

    /// The generations of the mirrors of a tenant.
    pub(super) fn generations_of(&self, api: &Api) -> Vec<PathBuf> {
        let tenant = api.tenant_id.replace('-', "");
        let entries = std::fs::read_dir(self.stack.sandbox_data().join("mirrors").join(tenant));
        entries.map(|entries| entries.map(|entry| entry.unwrap().path()).collect()).unwrap_or_default()
    }

    /// What a new session sees, and how often it transferred objects.
    async fn look(&self, api: &Api) -> (String, usize) {
        let (session, requests) = (session(api, URL).await, self.server.requests().len());
        let seen = output(api, &session, LOOK).await.unwrap();
        (seen, self.transfers_since(requests))
    }
}

/// The same tenant in another project.
pub(super) async fn other_project(api: &Api, name: &str) -> Api {
    let request = v1::CreateProjectRequest { name: name.to_owned(), ..Default::default() };
    let project = api.projects().create_project(request).await.unwrap().into_inner().project.unwrap();
    let mut other = api.clone();
    other.project_id = project.id;
    other
}

pub(super) async fn session_at(api: &Api, revision: &str) -> String {
    let from = Some(v1::source::From::GitUrl(URL.to_owned()));
    api.session(Some(v1::Source { from, revision: revision.to_owned() })).await
}

#[tokio::test]
async fn a_later_session_gets_what_a_clone_would_and_nothing_that_the_server_took_back() {
    let testbed = Testbed::start().await;
    let api = &testbed.stack.api;
    testbed.app.git(&["tag", "--annotate", "--message=one", "v1"]);
    testbed.app.git(&["branch", "side"]);
    testbed.app.git(&["branch", "with/slash"]);
    testbed.serve(&["--all"]);
    testbed.serve(&["--tags"]);
    let hidden = testbed.commit("hidden\n");
    testbed.serve(&["HEAD:refs/pull/1/head"]);
    testbed.app.git(&["reset", "--quiet", "--hard", "HEAD^"]);

    // The first session transfers everything, the second one nothing.
    let (first, transfers) = testbed.look(api).await;
    assert_eq!(transfers, 1);
    let (second, transfers) = testbed.look(api).await;
    assert_eq!((second.as_str(), transfers), (first.as_str(), 0));
    assert!(first.contains("v1") && !first.contains(&hidden) && !first.contains("alternates"), "{first}");

    // A commit outside of all branches is that of its session alone.
    let fetched = session_at(api, &hidden).await;
    assert_eq!(output(api, &fetched, "cat file").await.unwrap(), "hidden\n");
    let (third, transfers) = testbed.look(api).await;
    assert_eq!((third.as_str(), transfers), (first.as_str(), 0));

    // Branches come, move, and go.
    testbed.commit("second\n");
    testbed.app.git(&["branch", "later"]);
    testbed.app.git(&["tag", "v2"]);
    testbed.serve(&["--all"]);
    testbed.serve(&["--tags"]);
    let fresh = testbed.look(&other_project(api, "fresh").await).await;
    assert_eq!(testbed.look(api).await, fresh);
    assert_eq!(testbed.look(api).await, (fresh.0.clone(), 0));
    let lost = testbed.app.git(&["rev-parse", "HEAD"]);
    testbed.app.git(&["reset", "--quiet", "--hard", "HEAD^"]);
    testbed.commit("other\n");
    testbed.serve(&["--all", "--prune"]);
    testbed.serve(&[":later", ":with/slash", ":v2"]);
    let fresh = testbed.look(&other_project(api, "fresher").await).await;
    assert_eq!(testbed.look(api).await, fresh);
    assert!(!fresh.0.contains(&lost), "{}", fresh.0);
    assert_eq!(testbed.look(api).await, (fresh.0, 0));
    assert_eq!(testbed.generations().len(), 3, "one for each project");
}

#[tokio::test]
async fn every_session_proves_its_access() {
    let testbed = Testbed::start().await;
    let api = &testbed.stack.api;
    testbed.look(api).await;
    let kept = testbed.generations();
    for (secret, fault, code) in [
        ("revoked", None, "repository_unauthorized"),
        (TOKEN, Some(GitFault::Status(404)), "repository_not_found"),
        (TOKEN, Some(GitFault::Status(500)), "repository_unreachable"),
        (TOKEN, Some(GitFault::Page), "repository_unreachable"),
    ] {
        api.set_secret("TOKEN", secret).await;
        if let Some(fault) = fault {
            testbed.server.fail("app.git/info/refs", fault);
        }
        let refused = testbed.session().await;
        let error = output(api, &refused, "cat file").await.unwrap_err();
        assert!(error.contains(code), "{code}: {error}");
        let files = testbed.stack.workspace(&refused);
        assert!(!files.join("tree").exists(), "{code}");
        testbed.server.heal("app.git/info/refs");
    }
    assert_eq!(testbed.generations(), kept, "a refusal says nothing about the mirror");
    assert_eq!(testbed.look(api).await.1, 0);

    // Another tenant knows the URL. Without a token it gets nothing, and with one it transfers everything itself.
    let other = testbed.stack.other_tenant().await;
    store(&other, &json!({format!("https://{HOST}/acme/"): "TOKEN"})).await;
    other.set_secret("TOKEN", "wrong").await;
    let refused = session(&other, URL).await;
    assert!(output(&other, &refused, "true").await.unwrap_err().contains("repository_unauthorized"));
    other.set_secret("TOKEN", TOKEN).await;
    assert_eq!(testbed.look(&other).await.1, 1);
}

#[tokio::test]
async fn sessions_that_open_at_once_transfer_a_repository_once_and_wait_for_no_other_tenant() {
    let testbed = Testbed::start().await;
    let api = &testbed.stack.api;
    testbed.server.push("acme/other.git", &testbed.app);
    let other = testbed.stack.other_tenant().await;
    store(&other, &json!({format!("https://{HOST}/acme/"): "TOKEN"})).await;
    other.set_secret("TOKEN", TOKEN).await;
    testbed.server.fail("app.git/git-upload-pack", GitFault::Hold(40));
    let mut sessions = vec![];
    for revision in NAMES_OF_MAIN {
        sessions.push(session_at(api, revision).await);
    }
    let open = |session: String| {
        let api = api.clone();
        tokio::spawn(async move { output(&api, &session, "cat file").await })
    };
    let mut opened = vec![open(sessions[0].clone())];
    testbed.server.wait_for_request("app.git/git-upload-pack").await;
    for session in &sessions[1..] {
        opened.push(open(session.clone()));
        let place = testbed.stack.workspace(session);
        testkit::eventually("the session waits", async || place.join("build").exists()).await;
    }
    let elsewhere = session(&other, "https://git.example.com/acme/other.git").await;
    assert_eq!(output(&other, &elsewhere, "cat file").await.unwrap(), "private\n");
    testbed.server.heal("app.git/git-upload-pack");
    testbed.server.release();
    for opened in opened {
        assert_eq!(opened.await.unwrap().unwrap(), "private\n");
    }
    let fetches = testbed.server.requests();
    let fetches = fetches.iter().filter(|request| FETCH.ends_with(&request.target)).count();
    assert_eq!(fetches, 2 + 1 + 1, "the first transfers, and the others only ask");
}

#[tokio::test]
async fn a_repository_without_a_commit_has_no_mirror() {
    let testbed = Testbed::start().await;
    let api = &testbed.stack.api;
    let empty = testkit::git::repository(&[]);
    testbed.server.push("acme/empty.git", &empty);
    std::fs::remove_file(testbed.server.directory("acme/empty.git").join("refs/heads/main")).unwrap();
    for _ in 0..2 {
        let session = session(api, "https://git.example.com/acme/empty.git").await;
        let look = "git log --format=%s; git branch --show-current; ls -A";
        assert_eq!(output(api, &session, look).await.unwrap(), "Empty workspace\nmain\n.git\n");
    }
    assert_eq!(testbed.generations(), Vec::<PathBuf>::new());
}

/// Mirrors have many updates. Their packs stay few.
#[tokio::test]
async fn many_updates_leave_few_packs() {
    let testbed = Testbed::start().await;
    let api = &testbed.stack.api;
    for round in 0..14 {
        testbed.commit(&format!("{round}\n"));
        testbed.serve(&["--all"]);
        let session = testbed.session().await;
        let seen = output(api, &session, "cat file; git rev-list --count HEAD").await.unwrap();
        assert_eq!(seen, format!("{round}\n{}\n", round + 2));
    }
    let session = testbed.session().await;
    assert_eq!(output(api, &session, "git fsck 2>&1; cat file").await.unwrap(), "13\n");
    let packs = std::fs::read_dir(testbed.generations()[0].join("objects/pack")).unwrap();
    let packs =
        packs.filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|it| it == "pack"));
    assert!(packs.count() <= 12);
}

#[tokio::test]
async fn a_tenant_that_is_deleted_leaves_no_mirror() {
    let testbed = Testbed::start().await;
    let api = &testbed.stack.api;
    testbed.look(api).await;
    let place = testbed.generations()[0].parent().unwrap().to_owned();
    let request = v1::DeleteTenantRequest { tenant_id: api.tenant_id.clone(), name: "acme".to_owned() };
    testbed.stack.operator().tenants().delete_tenant(request).await.unwrap();
    testkit::eventually("the mirror is removed", async || !place.exists()).await;
}

#[tokio::test]
async fn mirrors_go_with_their_project() {
    let testbed = Testbed::with(Options { worker: &["--reconcile-ms", "2000"], ..Options::default() }).await;
    let other = other_project(&testbed.stack.api, "other").await;
    testbed.look(&testbed.stack.api).await;
    let kept = testbed.generations();
    let session = session(&other, URL).await;
    assert_eq!(output(&other, &session, "cat file").await.unwrap(), "private\n");
    assert_eq!(testbed.generations().len(), 2);
    other.sessions().delete_session(v1::DeleteSessionRequest { session_id: session }).await.unwrap();
    let delete = async || {
        let request = v1::DeleteProjectRequest { project_id: other.project_id.clone() };
        other.projects().delete_project(request).await.is_ok()
    };
    testkit::eventually("the project has no sessions", delete).await;
    testkit::eventually("its mirror is removed", async || testbed.generations() == kept).await;
}
