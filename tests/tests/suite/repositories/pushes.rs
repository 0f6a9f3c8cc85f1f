//! `flotilla push` end to end: a session works on a private clone, and a person pushes its result.

use super::{HOST, Testbed, URL};
use e2e::api::Api;
use e2e::turn::{Watch, bash, output, run, task_for};
use rpc::v1;
use serde_json::json;
use std::process::Command;
use tonic::Status;

const PUSH_TOKEN: &str = "token-0815-for-pushes";

/// Stores settings with which sessions read, and people push.
async fn allow(api: &Api, rule: &serde_json::Value) {
    let prefix = format!("https://{HOST}/acme/");
    let git = json!({"credentials": {&prefix: "TOKEN"}, "push": {&prefix: rule}});
    api.set_environment("", &json!({"git": git})).await;
}

async fn push(api: &Api, session: &str, branch: &str) -> Result<v1::PushSessionResponse, Status> {
    let request = v1::PushSessionRequest {
        session_id: session.to_owned(),
        branch: branch.to_owned(),
        ..Default::default()
    };
    api.sessions().push_session(request).await.map(tonic::Response::into_inner)
}

async fn refusal(api: &Api, session: &str, branch: &str) -> (String, String) {
    let status = push(api, session, branch).await.unwrap_err();
    (rpc::status::code_of(&status).unwrap_or_default(), status.message().to_owned())
}

/// Waits for the next push in the log of a session, and gives the name of the key and what was pushed.
async fn next_push(log: &mut Watch) -> (String, serde_json::Value) {
    let properties = log.until(|event| event.kind == "flotilla.session.pushed").await.properties;
    (properties["by"].as_str().unwrap().to_owned(), properties["push"].clone())
}

/// Runs git in the repository of the server.
fn remote(testbed: &Testbed, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .arg("-C")
        .arg(testbed.server.directory("acme/app.git"))
        .args(arguments)
        .envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")])
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

#[tokio::test]
async fn a_session_is_pushed_again_and_again_until_a_person_moves_its_branch() {
    let testbed = Testbed::start().await;
    let (api, session) = (&testbed.stack.api, testbed.session().await);
    let edit = "echo changed > file; mkdir src; echo new > src/new; git commit -qam own; git push origin HEAD:refs/heads/agent/own 2>&1";
    let told = output(api, &session, edit).await.unwrap();
    assert!(told.contains("remote: sessions cannot push by themselves"), "{told}");

    // The token with which sessions read does not push without a word.
    let (code, message) = refusal(api, &session, "").await;
    assert!(code == "push_not_configured" && message.contains("environment.git.push"), "{code}: {message}");
    allow(api, &json!({"credential": "PUSH_TOKEN"})).await;
    let (code, message) = refusal(api, &session, "").await;
    assert!(code == "push_secret_missing" && message.contains("flotilla secret set PUSH_TOKEN"), "{message}");
    api.set_secret("PUSH_TOKEN", &format!("ann:{PUSH_TOKEN}")).await;
    assert_eq!(refusal(api, &session, "").await.0, "push_unauthorized");
    testbed.server.require(&format!("ann:{PUSH_TOKEN}"));

    let pushed = push(api, &session, "").await.unwrap();
    let branch = format!("agent/{session}");
    // The commit of the agent, and one with what it has not committed.
    assert_eq!((pushed.url.as_str(), &pushed.branch, pushed.commits, pushed.files), (URL, &branch, 2, 2));
    assert_eq!(remote(&testbed, &["rev-parse", &branch]), pushed.commit);
    assert_eq!(remote(&testbed, &["show", &format!("{branch}:src/new")]), "new");
    let own = remote(&testbed, &["log", "-1", "--format=%s %P", &format!("{branch}^")]);
    assert_eq!(own, format!("own {}", testbed.app.commit));
    assert_eq!(
        remote(&testbed, &["log", "-1", "--format=%ae %ce", &branch]),
        "agent@flotilla.invalid agent@flotilla.invalid"
    );
    let text = remote(&testbed, &["log", "-1", "--format=%B", &branch]);
    assert!(text.ends_with(&format!("\n\nFlotilla-Session: {session}")), "{text}");
    let again = push(api, &session, "").await.unwrap();
    assert_eq!((again.commit, again.commits), (pushed.commit.clone(), 0));
    // The first one is in the log, without the token, and people read it in the conversation.
    let mut log = Watch::start(api, &session).await;
    let (by, first) = next_push(&mut log).await;
    let want = json!({"url": URL, "branch": branch, "commit": pushed.commit, "commits": 2, "files": 2});
    assert_eq!((by.as_str(), first), ("test", want));
    let talk = api.conversation(&session).await;
    let texts = talk.iter().filter_map(|(_, parts)| parts.first()?["text"].as_str());
    let notes: Vec<&str> = texts.filter(|text| text.starts_with("flotilla push by")).collect();
    let sentence = format!("pushed 2 commits with 2 files to {branch} of {URL}: {}", pushed.commit);
    assert_eq!(notes, [format!("flotilla push by test: {sentence}")]);

    output(api, &session, "echo more >> file").await.unwrap();
    let asked = testbed.stack.model.journal.requests().last().unwrap().body.to_string();
    assert!(!asked.contains("flotilla push by"), "the model does not read the notes: {asked}");
    let more = push(api, &session, "").await.unwrap();
    assert_eq!((more.commits, more.files), (1, 1));
    assert_eq!(next_push(&mut log).await.1["commit"], more.commit, "the log has no push in between");
    log.transcript.assert_gap_free();
    assert_eq!(remote(&testbed, &["rev-parse", &format!("{branch}^")]), pushed.commit);
    assert_eq!(remote(&testbed, &["show", &format!("{branch}:file")]), "changed\nmore");

    // A person moves the branch. Nothing is overwritten, and another branch is free.
    remote(&testbed, &["update-ref", &format!("refs/heads/{branch}"), &testbed.app.commit]);
    push(api, &session, "").await.unwrap();
    let person = remote(
        &testbed,
        &[
            "-c",
            "user.name=Ann",
            "-c",
            "user.email=ann@acme.dev",
            "commit-tree",
            "-m",
            "by Ann",
            "-p",
            &branch,
            &format!("{branch}^{{tree}}"),
        ],
    );
    remote(&testbed, &["update-ref", &format!("refs/heads/{branch}"), &person]);
    output(api, &session, "echo third >> file").await.unwrap();
    let (code, message) = refusal(api, &session, "").await;
    assert!(code == "push_branch_moved" && message.contains("--branch"), "{code}: {message}");
    assert_eq!(remote(&testbed, &["rev-parse", &branch]), person);
    assert_eq!(push(api, &session, "agent/second").await.unwrap().commits, 2, "the branch has none of them");
    assert_eq!(remote(&testbed, &["for-each-ref", "--format=%(refname)"]).lines().count(), 3);
}

#[tokio::test]
async fn a_session_of_an_upload_and_its_fork_are_pushed_to_the_remote_that_its_clone_has() {
    let testbed = Testbed::start().await;
    let api = &testbed.stack.api;
    allow(api, &json!({"credential": "TOKEN"})).await;
    let bundle_id = api.upload(&testbed.app.bundle()).await;
    let source = v1::Source { from: Some(v1::source::From::BundleId(bundle_id)), revision: String::new() };
    let begin = async |remote: &str| {
        let request = v1::CreateSessionRequest {
            project_id: api.project_id.clone(),
            source: Some(source.clone()),
            remote: remote.to_owned(),
            ..Default::default()
        };
        api.sessions().create_session(request).await.unwrap().into_inner().session.unwrap().id
    };
    // As `git remote get-url origin` prints it. What stands in front of the host goes nowhere.
    let session = begin("https://ann:hunter2@git.example.com/acme/app.git").await;
    output(api, &session, "echo changed > file; printf 'a\\0b' > data").await.unwrap();
    let request = v1::PushSessionRequest { session_id: session.clone(), dry_run: true, ..Default::default() };
    let seen = api.sessions().push_session(request).await.unwrap().into_inner();
    let branch = format!("agent/{session}");
    assert_eq!((seen.url.as_str(), &seen.branch, seen.commits, seen.files), (URL, &branch, 1, 2));
    let changes: Vec<_> = seen.changes.iter().map(|it| (it.path.as_str(), it.is_binary, it.is_new)).collect();
    assert_eq!(changes, [("data", true, true), ("file", false, false)]);
    assert_eq!(
        remote(&testbed, &["for-each-ref", "--format=%(refname)"]),
        "refs/heads/main",
        "nothing went out"
    );
    let pushed = push(api, &session, "").await.unwrap();
    assert_eq!((pushed.url.as_str(), pushed.commits, pushed.files), (URL, 1, 2));
    assert_eq!(remote(&testbed, &["rev-parse", &format!("{branch}^")]), testbed.app.commit);
    let (_, logged) = next_push(&mut Watch::start(api, &session).await).await;
    assert_eq!(logged["commit"], pushed.commit, "the dry run is in no log");

    let fork = v1::ForkSessionRequest { session_id: session, ..Default::default() };
    let fork = api.sessions().fork_session(fork).await.unwrap().into_inner().session.unwrap().id;
    output(api, &fork, "echo forked > forked").await.unwrap();
    let pushed = push(api, &fork, "").await.unwrap();
    assert_eq!((pushed.branch.as_str(), pushed.files), (format!("agent/{fork}").as_str(), 3));
    assert_eq!(remote(&testbed, &["rev-parse", &format!("{}^", pushed.commit)]), testbed.app.commit);

    // The settings decide, whatever a client says.
    for (url, want) in [
        ("https://git.example.com/other/app.git", "push_not_configured"),
        ("https://evil.example.com/acme/app.git", "push_not_configured"),
        ("file:///srv/app.git", "push_source_missing"),
        ("", "push_source_missing"),
    ] {
        let session = begin(url).await;
        output(api, &session, "echo changed > file").await.unwrap();
        let (code, message) = refusal(api, &session, "").await;
        assert!(code == want && !message.contains("hunter2"), "{url}: {code}: {message}");
    }
    // A commit that the server does not have, as in a clone that is ahead.
    testbed.app.git(&["commit", "--quiet", "--allow-empty", "--message=ahead"]);
    let bundle_id = api.upload(&testbed.app.bundle()).await;
    let request = v1::CreateSessionRequest {
        project_id: api.project_id.clone(),
        source: Some(v1::Source {
            from: Some(v1::source::From::BundleId(bundle_id)),
            revision: String::new(),
        }),
        remote: URL.to_owned(),
        ..Default::default()
    };
    let ahead = api.sessions().create_session(request).await.unwrap().into_inner().session.unwrap().id;
    output(api, &ahead, "echo changed > file").await.unwrap();
    let (code, message) = refusal(api, &ahead, "").await;
    assert!(code == "push_base_missing" && message.contains("never pushed"), "{code}: {message}");
}

#[tokio::test]
async fn the_copy_of_a_subtask_is_pushed_to_the_repository_of_its_root() {
    let testbed = Testbed::start().await;
    let (api, session) = (&testbed.stack.api, testbed.session().await);
    allow(api, &json!({"credential": "TOKEN"})).await;
    let (project_id, agent) = (api.project_id.clone(), json!({"mode": "subagent", "files": "fork"}));
    let document = json!({"agent": {"loner": agent}}).to_string();
    api.settings().set_settings(v1::SetSettingsRequest { project_id, document }).await.unwrap();
    output(api, &session, "echo above > above").await.unwrap();
    let work = bash(&format!("echo copy > copy; git fetch -q {URL} && echo fetched"));
    let prompt =
        format!("{}\n@text over", task_for("loner", &format!("{work}\n@text {{{{last_tool_result}}}}")));
    assert_eq!(run(api, &session, &prompt).await.0, "done");
    let told = api.tool_calls(&session).await.pop().unwrap().result;
    assert!(told.contains("fetched"), "the copy has the same door: {told}");
    let child = api.children(&session).await.remove(0).id;
    let log = async |session_id: &str| {
        let request = v1::ListEgressRequest { session_id: session_id.to_owned(), page: None };
        api.sessions().list_egress(request).await.unwrap().into_inner().accesses
    };
    let is_logged = async || log(&child).await.iter().any(|access| access.host.contains(HOST));
    testkit::eventually("the fetch is in the log of the copy", is_logged).await;
    assert_ne!(log(&child).await, log(&session).await, "each has its own");
    let pushed = push(api, &child, "").await.unwrap();
    assert_eq!(pushed.branch, format!("agent/{child}"));
    let (_, logged) = next_push(&mut Watch::start(api, &child).await).await;
    assert_eq!(logged["commit"], pushed.commit, "it stands in the log of the copy");
    assert_eq!(remote(&testbed, &["show", &format!("{}:copy", pushed.commit)]), "copy");
    assert_eq!(remote(&testbed, &["show", &format!("{}:above", pushed.commit)]), "above");
    assert_eq!(remote(&testbed, &["rev-parse", &format!("{}^", pushed.commit)]), testbed.app.commit);
    let of_root = push(api, &session, "").await.unwrap();
    // Its own file, and that of the subtask, which was merged.
    assert_eq!((of_root.branch, of_root.files), (format!("agent/{session}"), 2));
}

#[tokio::test]
async fn what_settings_and_servers_refuse_is_told() {
    let testbed = Testbed::start().await;
    let (api, session) = (&testbed.stack.api, testbed.session().await);
    allow(api, &json!({"credential": "TOKEN", "branches": "bots/", "deny": ["deploy/**"]})).await;
    assert_eq!(refusal(api, &session, "").await.0, "workspace_missing");
    output(api, &session, "true").await.unwrap();
    assert_eq!(refusal(api, &session, "").await.0, "push_nothing");
    output(api, &session, "mkdir -p deploy .github/workflows; echo x > deploy/key").await.unwrap();
    for branch in ["main", "agent/x", "bots/ses_other"] {
        assert_eq!(refusal(api, &session, branch).await.0, "push_branch_invalid", "{branch}");
    }
    let (code, message) = refusal(api, &session, "").await;
    assert!(code == "push_path_refused" && message.contains("deploy/key"), "{code}: {message}");
    output(api, &session, "rm -r deploy; echo x > .github/workflows/ci.yml").await.unwrap();
    let (code, message) = refusal(api, &session, "").await;
    assert!(code == "push_path_refused" && message.contains(".github/workflows/ci.yml"), "{code}: {message}");
    output(api, &session, "rm -r .github; echo x > fine").await.unwrap();
    assert_eq!(push(api, &session, "bots/fix").await.unwrap().branch, "bots/fix");
    assert_eq!(push(api, &session, "").await.unwrap().branch, format!("bots/{session}"));

    // The base is gone from the server.
    let fresh = testbed.app.git(&["commit-tree", "-m", "new history", "HEAD^{tree}"]);
    let server = testbed.server.directory("acme/app.git");
    testbed.app.git(&[
        "push",
        "-q",
        "--force",
        server.to_str().unwrap(),
        &format!("{fresh}:refs/heads/main"),
    ]);
    for branch in ["bots/fix", &format!("bots/{session}")] {
        remote(&testbed, &["update-ref", "-d", &format!("refs/heads/{branch}")]);
    }
    // It may still be there, and then the branch brings its old history along.
    assert_eq!(push(api, &session, "bots/old").await.unwrap().commits, 1);
    remote(&testbed, &["update-ref", "-d", "refs/heads/bots/old"]);
    remote(&testbed, &["reflog", "expire", "--expire=now", "--all"]);
    remote(&testbed, &["gc", "-q", "--prune=now"]);
    let (code, message) = refusal(api, &session, "").await;
    assert!(code == "push_base_missing" && message.contains("flotilla checkout"), "{code}: {message}");

    // Files that came from no URL.
    let empty = api.session(None).await;
    assert_eq!(refusal(api, &empty, "").await.0, "push_source_missing");
    // Another tenant finds no session.
    let other = testbed.stack.other_tenant().await;
    assert_eq!(refusal(&other, &session, "").await.0, "session_not_found");
}

#[tokio::test]
async fn a_broker_that_dies_in_the_middle_of_a_push_leaves_nothing_half() {
    let mut testbed = Testbed::start().await;
    let (api, session) = (testbed.stack.api.clone(), testbed.session().await);
    allow(&api, &json!({"credential": "TOKEN"})).await;
    output(&api, &session, "echo changed > file").await.unwrap();
    let at = "app.git/git-receive-pack";
    testbed.server.fail(at, testkit::git_server::rules::GitFault::Hold(0));
    let (own, id) = (api.clone(), session.clone());
    let pushing = tokio::spawn(async move { refusal(&own, &id, "").await });
    testbed.server.wait_for_request(at).await;
    let push_directories = || {
        let entries = std::fs::read_dir(&testbed.stack.broker_settings().push).unwrap();
        entries.filter(|entry| entry.as_ref().unwrap().path().is_dir()).count()
    };
    assert_eq!(push_directories(), 1);
    testbed.stack.crash_broker();
    assert_eq!(pushing.await.unwrap().0, "broker_unavailable");
    testbed.server.release();
    testbed.server.heal(at);
    testbed.stack.start_broker().await;
    let left = std::fs::read_dir(&testbed.stack.broker_settings().push).unwrap();
    assert_eq!(left.filter(|entry| entry.as_ref().unwrap().path().is_dir()).count(), 0);
    // The server had moved the branch, unless the broker died before it had sent everything. The same push finds it so.
    let pushed = push(&api, &session, "").await.unwrap();
    assert_eq!(remote(&testbed, &["rev-parse", &format!("agent/{session}")]), pushed.commit);
    assert_eq!(remote(&testbed, &["rev-list", "--count", &format!("main..agent/{session}")]), "1");
    // So does the log, which nobody wrote when the broker died.
    let (_, logged) = next_push(&mut Watch::start(&api, &session).await).await;
    assert_eq!((&logged["commit"], &logged["commits"]), (&json!(pushed.commit), &json!(pushed.commits)));
}

#[tokio::test]
async fn a_push_whose_client_leaves_goes_on_and_is_in_the_log() {
    let testbed = Testbed::start().await;
    let (api, session) = (&testbed.stack.api, testbed.session().await);
    allow(api, &json!({"credential": "TOKEN"})).await;
    output(api, &session, "echo changed > file").await.unwrap();
    let at = "app.git/git-receive-pack";
    testbed.server.fail(at, testkit::git_server::rules::GitFault::Hold(0));
    let (own, id) = (api.clone(), session.clone());
    let pushing = tokio::spawn(async move { push(&own, &id, "").await });
    testbed.server.wait_for_request(at).await;
    pushing.abort();
    assert!(pushing.await.unwrap_err().is_cancelled());
    // A call on the same connection: its answer shows that the gateway knows that the client has left.
    api.get(&session).await;
    testbed.server.release();
    let (by, logged) = next_push(&mut Watch::start(api, &session).await).await;
    assert_eq!((by.as_str(), &logged["commits"]), ("test", &json!(1)));
    assert_eq!(remote(&testbed, &["rev-parse", &format!("agent/{session}")]), logged["commit"]);
}

#[tokio::test]
async fn changed_files_of_git_lfs_are_pushed_as_pointers_and_their_contents_as_objects() {
    const AT: &str = "acme/app.git";
    let testbed = Testbed::start().await;
    let old = testbed.server.store_lfs(AT, b"the old content\n");
    testbed.commit_lfs(&[("large.bin", &old), ("same.bin", &old)]);
    let (api, session) = (&testbed.stack.api, testbed.session().await);
    allow(api, &json!({"credential": "TOKEN"})).await;
    output(api, &session, "echo changed > large.bin; cp large.bin again.bin; touch same.bin").await.unwrap();
    let pushed = push(api, &session, "").await.unwrap();
    assert_eq!((pushed.commits, pushed.files), (1, 2));
    let branch = format!("agent/{session}");
    assert_eq!(remote(&testbed, &["rev-parse", &branch]), pushed.commit);
    // The server of this path gives the same pointer.
    let pointer = testbed.server.store_lfs("acme/unused.git", b"changed\n");
    for path in ["large.bin", "again.bin"] {
        assert_eq!(remote(&testbed, &["show", &format!("{branch}:{path}")]), pointer.trim_end(), "{path}");
    }
    let changed = remote(&testbed, &["diff", "--name-only", "main", &branch]);
    assert_eq!(changed, "again.bin\nlarge.bin");
    let oid = pointer.split("sha256:").nth(1).unwrap().split('\n').next().unwrap();
    assert_eq!(testbed.server.find_lfs(AT, oid).as_deref(), Some(&b"changed\n"[..]));

    // What an agent commits without git-lfs has the content, and changes nothing of a push.
    output(api, &session, "git add --all && git commit -qm own").await.unwrap();
    assert_eq!(push(api, &session, "").await.unwrap().commits, 0);
}

#[tokio::test]
async fn contents_that_a_git_lfs_of_the_session_keeps_are_pushed_with_their_pointers() {
    const AT: &str = "acme/app.git";
    let testbed = Testbed::start().await;
    let old = testbed.server.store_lfs(AT, b"the old content\n");
    testbed.commit_lfs(&[("large.bin", &old)]);
    let (api, session) = (&testbed.stack.api, testbed.session().await);
    allow(api, &json!({"credential": "TOKEN"})).await;
    // The server of this path gives the same pointer.
    let pointer = testbed.server.store_lfs("acme/unused.git", b"kept");
    let oid = pointer.split("sha256:").nth(1).unwrap().split('\n').next().unwrap();
    let objects = format!(".git/lfs/objects/{}/{}", &oid[..2], &oid[2..4]);
    let text = pointer.replace('\n', "\\n");
    let work = format!("printf '{text}' >new.bin; git add new.bin; git commit -qm own");
    output(api, &session, &work).await.unwrap();
    let (code, message) = refusal(api, &session, "").await;
    assert!(code == "push_lfs_object_missing" && message.contains("new.bin"), "{code}: {message}");

    output(api, &session, &format!("mkdir -p {objects} && printf kept >{objects}/{oid}")).await.unwrap();
    let pushed = push(api, &session, "").await.unwrap();
    assert_eq!((pushed.commits, pushed.files), (1, 1));
    assert_eq!(remote(&testbed, &["show", &format!("agent/{session}:new.bin")]), pointer.trim_end());
    assert_eq!(testbed.server.find_lfs(AT, oid).as_deref(), Some(&b"kept"[..]));
}
