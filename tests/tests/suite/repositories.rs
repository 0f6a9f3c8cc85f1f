//! Private repositories: cloned, and read by the agent, with a credential that no sandbox has.

mod failures;
mod lfs;
mod mirrors;
mod progress;
mod proxies;
mod pushes;
mod readings;
mod warm_ups;

use e2e::{
    Options, Stack,
    api::{Api, assert_refused},
    settings::Outside,
    turn::output,
};
use rpc::v1;
use serde_json::{Value, json};
use testkit::{
    git::{Repository, repository},
    git_server::GitServer,
};

use tonic::Code;

/// A server of git that the broker finds on this machine.
const HOST: &str = "git.example.com";
const URL: &str = "https://git.example.com/acme/app.git";
const TOKEN: &str = "token-4711-value";

/// A stack, a server with a private repository, and the repository.
struct Testbed {
    stack: Stack,
    server: GitServer,
    app: Repository,
}

impl Testbed {
    async fn start() -> Self {
        Self::with(Options::default()).await
    }

    /// The same with further options of the stack.
    async fn with(options: Options) -> Self {
        let server = GitServer::start(&[HOST]).await;
        let hosts = vec![format!("{HOST}={}", server.address)];
        let outside = Outside { hosts, ..options.outside };
        Self::on(server, Options { outside, ..options }).await
    }

    /// The same on a server that the stack may reach in another way.
    async fn on(server: GitServer, options: Options) -> Self {
        let app = repository(&[("file", "private\n")]);
        server.push("acme/app.git", &app);
        server.require(&format!("x-access-token:{TOKEN}"));
        let outside = Outside { git_certificate: Some(server.certificate.clone()), ..options.outside };
        let stack = Stack::with(Options { broker: true, outside, ..options }).await;
        store(&stack.api, &json!({format!("https://{HOST}/acme/"): "TOKEN"})).await;
        stack.api.set_secret("TOKEN", TOKEN).await;
        Self { stack, server, app }
    }

    /// A session on the private repository.
    async fn session(&self) -> String {
        session(&self.stack.api, URL).await
    }
}

/// Stores the credentials of git for the tenant.
async fn store(api: &Api, credentials: &Value) {
    api.set_environment("", &json!({"git": {"credentials": credentials}})).await;
}

async fn session(api: &Api, url: &str) -> String {
    let from = Some(v1::source::From::GitUrl(url.to_owned()));
    api.session(Some(v1::Source { from, revision: String::new() })).await
}

/// Stages a commit of another repository as a submodule.
fn link_submodule(repository: &Repository, url: &str, path: &str, commit: &str) {
    repository.git(&["config", "--file", ".gitmodules", &format!("submodule.{path}.path"), path]);
    repository.git(&["config", "--file", ".gitmodules", &format!("submodule.{path}.url"), url]);
    repository.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{commit},{path}")]);
    repository.git(&["add", ".gitmodules"]);
}

#[tokio::test]
async fn a_private_repository_is_cloned_and_fetched_without_its_token_in_the_sandbox() {
    let testbed = Testbed::start().await;
    let (api, session) = (&testbed.stack.api, testbed.session().await);
    // A terminal before the first prompt would need the files, and only a turn opens the door for their clone.
    let terminal = v1::CreatePtyRequest { session_id: session.clone(), ..Default::default() };
    assert_refused(api.ptys().create_pty(terminal).await, Code::FailedPrecondition, "workspace_missing");
    assert_eq!(testbed.server.requests(), []);
    let look = "cat file; git config remote.origin.url; git status --porcelain; git branch --show-current";
    assert_eq!(output(api, &session, look).await.unwrap(), format!("private\n{URL}\nmain\n"));

    // The repository gets a commit, and the agent fetches it.
    std::fs::write(testbed.app.path().join("file"), "newer\n").unwrap();
    testbed.app.git(&["commit", "--quiet", "--all", "--message=second"]);
    testbed.server.push("acme/app.git", &testbed.app);
    let fetch = "git fetch --quiet && git show origin/main:file && git ls-remote -q git@git.example.com:acme/app.git main | wc -l";
    assert_eq!(output(api, &session, fetch).await.unwrap(), "newer\n1\n");

    let search = format!(
        "git config --list --show-origin; env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; \
         grep -ra -e {0} -e {1} /workspace /run /tmp /home/agent; echo searched",
        // In two halves, so that the command does not find itself.
        "4711-val''ue",
        "ZW4tNDcxMS12''YWx1Z"
    );
    let shown = output(api, &session, &search).await.unwrap();
    assert!(shown.contains("searched") && shown.contains("include.path"), "{shown}");
    assert!(!shown.contains("4711-value") && !shown.contains("ZW4tNDcxMS12YWx1Z"), "{shown}");
    let log = v1::ListEgressRequest { session_id: session.clone(), page: None };
    let listed = async || {
        let accesses = api.sessions().list_egress(log.clone()).await.unwrap().into_inner().accesses;
        accesses.iter().any(|access| access.host == HOST && access.code.is_empty() && access.bytes > 0)
    };
    testkit::eventually("the clone is in the log of the session", listed).await;
    // The server got it, so the search was for the right text.
    assert!(testbed.server.requests().iter().all(|request| request.authorization.is_some()));
}

#[tokio::test]
async fn a_session_pushes_nothing_and_reads_nothing_else() {
    let testbed = Testbed::start().await;
    testbed.server.push("other/app.git", &testbed.app);
    let (api, session) = (&testbed.stack.api, testbed.session().await);
    let before = testbed.app.git(&["rev-parse", "HEAD"]);
    let push = "git commit -q --allow-empty -m x; git push origin main 2>&1; git push git@git.example.com:acme/app.git main 2>&1";
    let told = output(api, &session, push).await.unwrap();
    assert_eq!(told.matches("remote: sessions cannot push by themselves").count(), 2, "{told}");
    let main =
        std::fs::read_to_string(testbed.server.directory("acme/app.git").join("refs/heads/main")).unwrap();
    assert_eq!(main.trim(), before);
    let elsewhere = "git ls-remote http://127.0.0.1:3129/git.example.com/other/app.git 2>&1; \
                     git ls-remote https://git.example.com/other/app.git 2>&1; \
                     git ls-remote http://127.0.0.1:3129/git.example.com/acme/../other/app.git 2>&1";
    let told = output(api, &session, elsewhere).await.unwrap();
    assert!(
        told.contains("is below no URL of environment.git.credentials")
            && told.contains("(git_prefix_missing)"),
        "{told}"
    );
    assert!(!testbed.server.requests().iter().any(|request| request.target.contains("other")), "{told}");
    // Its own repository is still there.
    assert_eq!(output(api, &session, "git ls-remote -q origin main | wc -l").await.unwrap(), "1\n");

    // Without the setting there is no way, from the next turn on.
    store(api, &json!({})).await;
    let asked = testbed.server.requests().len();
    let told = output(
        api,
        &session,
        "git ls-remote origin 2>&1; git ls-remote http://127.0.0.1:3129/git.example.com/acme/app.git 2>&1",
    )
    .await;
    assert!(told.unwrap().contains("(git_prefix_missing)"));
    assert_eq!(testbed.server.requests().len(), asked);
}

#[tokio::test]
async fn a_url_for_ssh_means_the_same_repository() {
    let testbed = Testbed::start().await;
    let url = "ssh://git@git.example.com/acme/app.git";
    let api = &testbed.stack.api;
    let session = session(api, url).await;
    let look = "cat file; git config remote.origin.url; git fetch -q && echo fetched";
    assert_eq!(output(api, &session, look).await.unwrap(), format!("private\n{url}\nfetched\n"));
}

#[tokio::test]
async fn submodules_below_a_prefix_are_cloned_and_others_stay_empty() {
    let testbed = Testbed::start().await;
    let (server, app) = (&testbed.server, &testbed.app);
    let leaf = repository(&[("leaf", "leaf\n")]);
    server.push("acme/leaf.git", &leaf);
    server.push("other/public.git", &leaf);
    let middle = repository(&[("middle", "middle\n")]);
    link_submodule(&middle, "../leaf.git", "below", &leaf.commit);
    middle.git(&["commit", "--quiet", "--message=linked"]);
    server.push("acme/middle.git", &middle);
    let commit = middle.git(&["rev-parse", "HEAD"]);
    link_submodule(app, "../middle.git", "relative", &commit);
    link_submodule(app, "https://git.example.com/acme/leaf.git", "absolute", &leaf.commit);
    link_submodule(app, "git@git.example.com:acme/leaf.git", "ssh", &leaf.commit);
    link_submodule(app, "https://git.example.com/other/public.git", "outside", &leaf.commit);
    link_submodule(app, "/etc", "path", &leaf.commit);
    // A server of the machine's own network.
    let inside = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    inside.set_nonblocking(true).unwrap();
    let url = format!("http://{}/leaf.git", inside.local_addr().unwrap());
    link_submodule(app, &url, "inside", &leaf.commit);
    link_submodule(app, "https://git.example.com/acme/leaf.git", "lost", &"1".repeat(40));
    app.git(&["commit", "--quiet", "--message=submodules"]);
    server.push("acme/app.git", app);
    let (api, session) = (&testbed.stack.api, testbed.session().await);
    let look = "cat relative/middle relative/below/leaf absolute/leaf ssh/leaf; ls -A outside path inside lost | wc -w; git status --porcelain; \
                git -C relative/below config remote.origin.url; grep -r 3129 .git/config .git/modules/*/config; git -C absolute fetch -q && echo fetched";
    assert_eq!(
        output(api, &session, look).await.unwrap(),
        "middle\nleaf\nleaf\nleaf\n4\nhttps://git.example.com/acme/leaf.git\nfetched\n"
    );
    assert!(inside.accept().is_err(), "the helper has no network");
    let asked = testbed.stack.model.journal.requests();
    let body = asked.last().unwrap().body.to_string();
    assert!(
        body.contains("The directories of these submodules are empty here") && body.contains("outside"),
        "{body}"
    );
}

#[tokio::test]
async fn files_that_start_again_come_through_the_door_too() {
    let mut testbed = Testbed::start().await;
    let session = testbed.session().await;
    assert_eq!(output(&testbed.stack.api, &session, "cat file; echo old > work").await.unwrap(), "private\n");
    testbed.stack.stop_sandbox().await;
    let data = testbed.stack.sandbox_data().to_owned();
    std::fs::rename(&data, data.with_extension("backup")).unwrap();
    testbed.stack.start_sandbox().await;
    let request = v1::RestartWorkspaceRequest { session_id: session.clone() };
    testbed.stack.api.sessions().restart_workspace(request).await.unwrap();
    // The old files appear again. They are removed, and the door that was opened for the clone stays.
    testbed.stack.stop_sandbox().await;
    testbed.stack.lose_sandbox_files();
    std::fs::rename(data.with_extension("backup"), &data).unwrap();
    testbed.stack.start_sandbox().await;
    let look = "cat file; ls; git fetch -q && echo fetched";
    assert_eq!(output(&testbed.stack.api, &session, look).await.unwrap(), "private\nfile\nfetched\n");
}
