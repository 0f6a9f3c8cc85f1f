//! Git LFS: the files of a private repository have their contents, git takes them for unchanged, and no sandbox has what opens them.

use super::{HOST, Testbed, URL, link_submodule, session, store};
use e2e::{
    Options,
    api::Api,
    settings::Outside,
    turn::{bash, output, run, task_for},
};
use rpc::v1;
use serde_json::json;
use testkit::{
    git::repository,
    git_server::rules::{GitFault, LfsStore},
};

const AT: &str = "acme/app.git";
/// The path of a batch.
const BATCH: &str = "app.git/info/lfs/objects/batch";
/// A content that is no text, and larger than a pointer.
const CONTENT: &[u8] = b"\0\x01\x02 the content of a picture \xff\xfe, which is longer than a pointer of Git LFS is, because a pointer has at most \
                        145 bytes, and this text has some more of them.\n";

impl Testbed {
    /// Commits these files, `*.bin` among them as files of Git LFS, and serves them.
    pub(super) fn commit_lfs(&self, files: &[(&str, &str)]) {
        let attributes = (".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n");
        for (path, content) in [attributes].iter().chain(files) {
            let file = self.app.path().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, content).unwrap();
        }
        self.app.git(&["add", "--all"]);
        self.app.git(&["commit", "--quiet", "--message=large"]);
        self.server.push(AT, &self.app);
    }

    /// The paths of the requests of Git LFS.
    pub(super) fn lfs_requests(&self) -> Vec<String> {
        let requests = self.server.requests().into_iter().map(|request| request.target);
        requests.filter(|target| target.contains("/info/lfs/") || target.starts_with("/store/")).collect()
    }

    /// What the model was told at its newest call.
    pub(super) fn told(&self) -> String {
        self.stack.model.journal.requests().last().unwrap().body.to_string()
    }
}

async fn diff(api: &Api, session: &str) -> v1::GetSessionDiffResponse {
    let request = v1::GetSessionDiffRequest { session_id: session.to_owned(), ..Default::default() };
    api.sessions().get_session_diff(request).await.unwrap().into_inner()
}

#[tokio::test]
async fn files_of_git_lfs_have_their_contents_and_git_takes_them_for_unchanged() {
    let testbed = Testbed::start().await;
    let (small, large) = (testbed.server.store_lfs(AT, b"text\n"), testbed.server.store_lfs(AT, CONTENT));
    testbed.commit_lfs(&[("small.bin", &small), ("art work/large one.bin", &large), ("again.bin", &large)]);
    let (api, session) = (&testbed.stack.api, testbed.session().await);
    let look = "cat small.bin; sha256sum <'art work/large one.bin'; cmp again.bin 'art work/large one.bin' && echo same; \
                git status --porcelain; git diff --stat; git ls-files --modified";
    let sum = large.split("sha256:").nth(1).unwrap().split('\n').next().unwrap();
    assert_eq!(output(api, &session, look).await.unwrap(), format!("text\n{sum}  -\nsame\n"));
    assert_eq!(testbed.lfs_requests().len(), 1 + 2 * 2, "a batch, and for each object another one");
    assert!(!testbed.told().contains("Git LFS"), "nothing is missing");
    assert_eq!(diff(api, &session).await.files, []);

    // A change shows alone, with its steps, and a copy of an object is as small as a pointer.
    output(api, &session, "echo changed > small.bin; cp again.bin copy.bin; echo more >> file")
        .await
        .unwrap();
    let changed = diff(api, &session).await;
    let paths: Vec<&str> = changed.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["copy.bin", "file", "small.bin"]);
    assert!(changed.patch.contains("+changed") && changed.patch.contains(&format!("+oid sha256:{sum}")));
    output(api, &session, "rm copy.bin; git checkout -q file; printf 'text\\n' > small.bin").await.unwrap();
    assert_eq!(diff(api, &session).await.files, [], "it is the content that came with the pointer");

    let search = format!(
        "grep -ra -e {0} -e {1} /workspace /run /tmp /home/agent; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; echo searched",
        "4711-val''ue", "ZW4tNDcxMS12''YWx1Z"
    );
    let shown = output(api, &session, &search).await.unwrap();
    assert!(shown.contains("searched") && !shown.contains("4711-value"), "{shown}");
    assert!(!shown.contains("ZW4tNDcxMS12YWx1Z"), "{shown}");
}

#[tokio::test]
async fn a_restored_file_has_its_content_and_not_its_pointer() {
    let testbed = Testbed::start().await;
    let pointer = testbed.server.store_lfs(AT, CONTENT);
    testbed.commit_lfs(&[("large.bin", &pointer)]);
    let (api, session) = (&testbed.stack.api, testbed.session().await);
    output(api, &session, "true").await.unwrap();
    let (before, asked) =
        (output(api, &session, "sha256sum <large.bin").await.unwrap(), testbed.lfs_requests().len());
    output(api, &session, "echo mine > large.bin").await.unwrap();
    let talk = api.conversation(&session).await;
    let prompts: Vec<_> = talk.iter().filter(|(info, _)| info["role"] == "user").collect();
    let request = v1::RevertSessionRequest {
        session_id: session.clone(),
        message_id: prompts.last().unwrap().0["id"].as_str().unwrap().to_owned(),
        part_id: String::new(),
    };
    api.sessions().revert_session(request).await.unwrap();
    assert_eq!(diff(api, &session).await.files, []);
    assert_eq!(output(api, &session, "sha256sum <large.bin").await.unwrap(), before);
    assert_eq!(testbed.lfs_requests().len(), asked, "nothing is read twice");
}

#[tokio::test]
async fn objects_in_a_store_of_their_own_come_with_its_key() {
    let testbed = Testbed::start().await;
    let pointer = testbed.server.store_lfs(AT, CONTENT);
    testbed.commit_lfs(&[("large.bin", &pointer)]);
    testbed
        .server
        .lead_lfs_to(LfsStore { url: format!("https://{HOST}"), key: "key-0815-of-store".to_owned() });
    let (api, session) = (&testbed.stack.api, testbed.session().await);
    let look =
        "wc -c <large.bin; grep -ra key-0815''-of-store /workspace /run /tmp 2>/dev/null; echo searched";
    let size = CONTENT.len();
    assert_eq!(output(api, &session, look).await.unwrap(), format!("{size}\nsearched\n"));
    let requests = testbed.server.requests();
    let stored: Vec<_> = requests.iter().filter(|request| request.target.starts_with("/store/")).collect();
    assert!(stored.len() == 1 && stored[0].authorization.is_none(), "{stored:?}");
}

#[tokio::test]
async fn other_bytes_than_those_of_the_pointer_open_no_session() {
    let testbed = Testbed::start().await;
    let pointer = testbed.server.store_lfs(AT, CONTENT);
    testbed.commit_lfs(&[("large.bin", &pointer)]);
    let oid = pointer.split("sha256:").nth(1).unwrap().split('\n').next().unwrap();
    let other = [&b"x"[..], &CONTENT[1..]].concat();
    for wrong in [&other[..], &CONTENT[1..], &[CONTENT, b"x"].concat()] {
        testbed.server.store_lfs_as(AT, oid, wrong);
        let session = testbed.session().await;
        let error = output(&testbed.stack.api, &session, "true").await.unwrap_err();
        assert!(error.contains("lfs_object_invalid") && error.contains(HOST), "{error}");
        assert!(!testbed.stack.workspace(&session).join("tree").exists());
    }
    testbed.server.store_lfs_as(AT, oid, CONTENT);
    let session = testbed.session().await;
    let size = output(&testbed.stack.api, &session, "wc -c <large.bin").await.unwrap();
    assert_eq!(size, format!("{}\n", CONTENT.len()));
}

#[tokio::test]
async fn what_the_server_does_not_have_stays_a_pointer_and_is_told() {
    let testbed = Testbed::start().await;
    let api = &testbed.stack.api;
    let (there, gone) = (testbed.server.store_lfs(AT, CONTENT), testbed.server.store_lfs(AT, b"gone\n"));
    let oid = gone.split("sha256:").nth(1).unwrap().split('\n').next().unwrap();
    testbed.server.forget_lfs(AT, oid);
    testbed.commit_lfs(&[("there.bin", &there), ("gone.bin", &gone)]);
    let session_of_both = testbed.session().await;
    let look = "wc -c <there.bin; cat gone.bin; git status --porcelain";
    let size = CONTENT.len();
    assert_eq!(output(api, &session_of_both, look).await.unwrap(), format!("{size}\n{gone}"));
    let told = testbed.told();
    assert!(told.contains("because the server does not have their contents: gone.bin."), "{told}");

    // Another server for the contents is not asked.
    testbed.commit_lfs(&[(".lfsconfig", "[lfs]\n\turl = https://lfs.example.com/acme/app\n")]);
    let asked = testbed.lfs_requests().len();
    let elsewhere = testbed.session().await;
    assert_eq!(output(api, &elsewhere, "cat there.bin").await.unwrap(), there);
    assert!(
        testbed.told().contains(".lfsconfig names another server for their contents"),
        "{}",
        testbed.told()
    );
    assert_eq!(testbed.lfs_requests().len(), asked);

    // A repository whose server has no Git LFS.
    testbed.app.git(&["rm", "--quiet", ".lfsconfig"]);
    testbed.app.git(&["commit", "--quiet", "--message=own"]);
    testbed.server.push("acme/plain.git", &testbed.app);
    let plain = session(api, "https://git.example.com/acme/plain.git").await;
    assert_eq!(output(api, &plain, "cat there.bin").await.unwrap(), there);
    assert!(testbed.told().contains("the server of the repository has no Git LFS"), "{}", testbed.told());
}

#[tokio::test]
async fn a_server_that_refuses_is_told_as_in_a_clone() {
    let testbed = Testbed::start().await;
    let pointer = testbed.server.store_lfs(AT, CONTENT);
    testbed.commit_lfs(&[("large.bin", &pointer)]);
    for (fault, code, text) in [
        (GitFault::Status(401), "repository_unauthorized", "refuses the secret TOKEN"),
        (GitFault::Status(429), "repository_unreachable", "too many requests"),
        (GitFault::Status(500), "repository_unreachable", "answered 500"),
        (GitFault::Page, "repository_unreachable", "does not answer as a server of Git LFS"),
    ] {
        testbed.server.fail(BATCH, fault.clone());
        let session = testbed.session().await;
        let error = output(&testbed.stack.api, &session, "true").await.unwrap_err();
        assert!(error.contains(code) && error.contains(text), "{fault:?}: {error}");
    }
    testbed.server.heal(BATCH);

    // Another tenant knows the URL, and gets nothing without a token of its own.
    let other = testbed.stack.other_tenant().await;
    store(&other, &json!({format!("https://{HOST}/acme/"): "TOKEN"})).await;
    other.set_secret("TOKEN", "wrong").await;
    let refused = session(&other, URL).await;
    assert!(output(&other, &refused, "true").await.unwrap_err().contains("repository_unauthorized"));
    assert!(testbed.lfs_requests().iter().all(|target| target.ends_with("/batch")), "nothing was read");
}

#[tokio::test]
async fn forks_and_copies_for_subtasks_have_the_contents_of_their_origin() {
    let testbed = Testbed::start().await;
    let pointer = testbed.server.store_lfs(AT, CONTENT);
    testbed.commit_lfs(&[("large.bin", &pointer)]);
    let (api, session) = (&testbed.stack.api, testbed.session().await);
    let (project_id, agent) = (api.project_id.clone(), json!({"mode": "subagent", "files": "fork"}));
    let document = json!({"agent": {"loner": agent}}).to_string();
    api.settings().set_settings(v1::SetSettingsRequest { project_id, document }).await.unwrap();
    let look = "sha256sum *.bin; git status --porcelain";
    let seen = output(api, &session, &format!("cp large.bin copy.bin; {look}")).await.unwrap();
    let oid = pointer.split("sha256:").nth(1).unwrap().split('\n').next().unwrap();
    assert_eq!(seen, format!("{oid}  copy.bin\n{oid}  large.bin\n?? copy.bin\n"));
    let asked = testbed.lfs_requests().len();

    let work = format!("{}\n@text {{{{last_tool_result}}}}", bash(look));
    let prompt = format!("{}\n@text over", task_for("loner", &work));
    assert_eq!(run(api, &session, &prompt).await.0, "done");
    let told = api.tool_calls(&session).await.pop().unwrap().result;
    for name in ["copy.bin", "large.bin"] {
        assert!(told.contains(&format!("{oid}  {name}")), "{told}");
    }
    let fork = async || {
        let request = v1::ForkSessionRequest { session_id: session.clone(), ..Default::default() };
        api.sessions().fork_session(request).await.unwrap().into_inner().session.unwrap().id
    };
    let first = fork().await;
    assert_eq!(output(api, &first, look).await.unwrap(), seen);
    assert_eq!(testbed.lfs_requests().len(), asked, "they are on the machine");

    // What the machine no longer has comes from the server, with the secret of the repository.
    let second = fork().await;
    std::fs::remove_file(testbed.stack.workspace(&session).join("snapshots/lfs").join(oid)).unwrap();
    assert_eq!(output(api, &second, look).await.unwrap(), seen);
    assert_eq!(testbed.lfs_requests().len(), asked + 3, "a batch, and for the object another one");
    // A fork of the fork knows the repository too.
    let request = v1::ForkSessionRequest { session_id: second.clone(), ..Default::default() };
    let third = api.sessions().fork_session(request).await.unwrap().into_inner().session.unwrap().id;
    std::fs::remove_file(testbed.stack.workspace(&second).join("snapshots/lfs").join(oid)).unwrap();
    assert_eq!(output(api, &third, look).await.unwrap(), seen);
    assert_eq!(testbed.lfs_requests().len(), asked + 6);
}

#[tokio::test]
async fn a_clone_of_a_public_repository_has_the_contents_of_its_files() {
    let outside = Outside { has_public_git: true, ..Outside::default() };
    let testbed = Testbed::with(Options { outside, ..Options::default() }).await;
    let (api, server) = (&testbed.stack.api, &testbed.server);
    store(api, &json!({})).await;
    server.require_nothing();
    let pointer = server.store_lfs(AT, CONTENT);
    testbed.commit_lfs(&[("large.bin", &pointer)]);
    let url = format!("https://{HOST}:{}/{AT}", server.address.port());
    let session = session(api, &url).await;
    let oid = pointer.split("sha256:").nth(1).unwrap().split('\n').next().unwrap();
    let look = "sha256sum large.bin; cat file; git status --porcelain; git config remote.origin.url";
    assert_eq!(output(api, &session, look).await.unwrap(), format!("{oid}  large.bin\nprivate\n{url}\n"));
    assert!(!testbed.told().contains("Git LFS"), "nothing is missing");
    let requests = server.requests();
    for end in ["/git-upload-pack", "/info/lfs/objects/batch", oid] {
        assert!(requests.iter().any(|request| request.target.ends_with(end)), "{end}: {requests:?}");
    }
    assert!(requests.iter().all(|request| request.authorization.is_none()), "{requests:?}");
}

#[tokio::test]
async fn objects_of_a_public_repository_come_without_a_credential() {
    let testbed = Testbed::start().await;
    let pointer = testbed.server.store_lfs(AT, CONTENT);
    testbed.commit_lfs(&[("large.bin", &pointer)]);
    let (api, session) = (&testbed.stack.api, testbed.session().await);
    let look = "sha256sum large.bin; git status --porcelain";
    let seen = output(api, &session, look).await.unwrap();
    // The files come as those of a fork, and only the objects from the server.
    store(api, &json!({})).await;
    let fork = async || {
        let request = v1::ForkSessionRequest { session_id: session.clone(), ..Default::default() };
        api.sessions().fork_session(request).await.unwrap().into_inner().session.unwrap().id
    };
    let (refused, public) = (fork().await, fork().await);
    let oid = pointer.split("sha256:").nth(1).unwrap().split('\n').next().unwrap();
    std::fs::remove_file(testbed.stack.workspace(&session).join("snapshots/lfs").join(oid)).unwrap();

    let before = testbed.server.requests().len();
    assert_eq!(output(api, &refused, "cat large.bin").await.unwrap(), pointer, "the server wants a login");
    assert!(testbed.told().contains("gives the contents only with a credential"), "{}", testbed.told());
    testbed.server.require_nothing();
    assert_eq!(output(api, &public, look).await.unwrap(), seen);
    let requests = testbed.server.requests().split_off(before);
    assert!(requests.iter().any(|request| request.target.ends_with(oid)), "{requests:?}");
    for request in requests {
        assert!(request.target.contains("/info/lfs/objects/"), "{request:?}");
        assert_eq!(request.authorization, None, "{request:?}");
    }
}

#[tokio::test]
async fn files_of_git_lfs_in_submodules_have_their_contents_and_what_is_missing_is_told() {
    const LEAF: &str = "acme/leaf.git";
    let testbed = Testbed::start().await;
    let (server, app, api) = (&testbed.server, &testbed.app, &testbed.stack.api);
    let (there, gone) = (server.store_lfs(LEAF, CONTENT), server.store_lfs(LEAF, b"gone\n"));
    let oid = |pointer: &str| pointer.split("sha256:").nth(1).unwrap().split('\n').next().unwrap().to_owned();
    server.forget_lfs(LEAF, &oid(&gone));
    let attributes = (".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n");
    let leaf = repository(&[attributes, ("large one.bin", &there), ("gone.bin", &gone)]);
    server.push(LEAF, &leaf);
    link_submodule(app, "../leaf.git", "vendor/leaf", &leaf.commit);
    app.git(&["commit", "--quiet", "--message=submodule"]);
    server.push(AT, app);
    let look = "sha256sum <'vendor/leaf/large one.bin' | cut -c -64; cat vendor/leaf/gone.bin; git -C vendor/leaf status --porcelain; \
                git status --porcelain; find .git -name 'flotilla-lfs.part'";
    let session = testbed.session().await;
    assert_eq!(output(api, &session, look).await.unwrap(), format!("{}\n{gone}", oid(&there)));
    let told = testbed.told();
    assert!(told.contains("the server does not have their contents: vendor/leaf/gone.bin."), "{told}");

    // The repository has files of Git LFS as well, and the server refuses those of the submodule.
    let own = server.store_lfs(AT, b"own\n");
    // Git takes the link for removed if there is no directory.
    std::fs::create_dir_all(app.path().join("vendor/leaf")).unwrap();
    testbed.commit_lfs(&[("own.bin", &own)]);
    server.fail("leaf.git/info/lfs/objects/batch", GitFault::Status(500));
    let second = testbed.session().await;
    let look = "cat own.bin 'vendor/leaf/large one.bin'; git -C vendor/leaf status --porcelain; git status --porcelain";
    assert_eq!(output(api, &second, look).await.unwrap(), format!("own\n{there}"));
    let told = testbed.told();
    assert!(
        told.contains("refuses to send their contents: ") && told.contains("vendor/leaf/large one.bin"),
        "{told}"
    );
}
