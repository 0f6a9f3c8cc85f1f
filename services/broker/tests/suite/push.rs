//! Pushes through the broker: with a real git behind its walls, a real vault, and a real server behind TLS and a login.

#[path = "push/attacks.rs"]
mod attacks;
#[path = "push/lfs.rs"]
mod lfs;
#[path = "push/outcomes.rs"]
mod outcomes;
#[path = "push/testbed.rs"]
pub mod testbed;

use crate::harness::Broker;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use rpc::v1;
use std::fs;
use testbed::{HOST, SESSION, TOKEN, Testbed, code};

#[tokio::test]
async fn a_push_creates_a_branch_and_the_next_one_goes_on_from_it() {
    let testbed = Testbed::start().await;
    let first = testbed.commit(&testbed.base, &[("file", "changed\n"), ("src/new.rs", "new\n")]);
    let told = testbed.push(&first).await.unwrap();
    assert_eq!(told.url, format!("https://{HOST}/acme/app.git"));
    assert_eq!((told.branch.as_str(), &told.commit), ("agent/ses_a", &first));
    assert_eq!((told.commits, told.files), (1, 2));
    assert_eq!(testbed.remote("agent/ses_a"), first);
    assert_eq!(testbed.remote("main"), testbed.base);

    // The same push again, and one with other times: what the branch has stays.
    let told = testbed.push(&first).await.unwrap();
    assert_eq!((&told.commit, told.commits, told.files), (&first, 0, 0));
    let same = testbed.commit_at(&testbed.base, &[("file", "changed\n"), ("src/new.rs", "new\n")], "later");
    assert_ne!(same, first);
    let told = testbed.push(&same).await.unwrap();
    assert_eq!((&told.commit, told.commits), (&first, 0));

    // A session exports all its changes as one commit on its base; the branch gets only the difference.
    let second = testbed.commit(&testbed.base, &[("file", "changed twice\n"), ("src/new.rs", "new\n")]);
    let told = testbed.push(&second).await.unwrap();
    assert_eq!((told.commits, told.files), (1, 1));
    let tip = testbed.remote("agent/ses_a");
    assert_eq!((&told.commit, testbed.remote("agent/ses_a^")), (&tip, first));
    assert_eq!(testbed.remote_text("agent/ses_a:file"), "changed twice\n");
    assert_eq!(
        testbed.remote("agent/ses_a^{tree}"),
        testbed.app.git(&["rev-parse", &format!("{second}^{{tree}}")])
    );
    let author = testbed.remote_git(&["log", "-1", "--format=%an <%ae> %cn <%ce>", "agent/ses_a"]);
    assert_eq!(author, "Flotilla Agent <agent@flotilla.invalid> Flotilla Agent <agent@flotilla.invalid>");
    // And on from there, back to the base's own files for one of them.
    let third = testbed.commit(&testbed.base, &[("src/new.rs", "newer\n")]);
    testbed.push(&third).await.unwrap();
    assert_eq!(testbed.remote_git(&["rev-list", "--count", "main..agent/ses_a"]), "3");
    assert_eq!(testbed.remote_text("agent/ses_a:file"), "private\n");
    testbed.remote_git(&["fsck", "--strict"]);
    assert_eq!(testbed.push_directories(), 0);
}

#[tokio::test]
async fn a_preview_lists_the_files_and_the_server_gets_nothing() {
    let testbed = Testbed::start().await;
    let preview = |commit: &str| {
        let mut attempt = testbed.request(commit);
        attempt.header.is_preview = true;
        attempt
    };
    let listed = |told: &v1::PushResponse| {
        let line = |file: &v1::PushedFile| {
            (file.path.clone(), file.additions, file.deletions, file.is_binary, file.is_new, file.size_bytes)
        };
        told.changes.iter().map(line).collect::<Vec<_>>()
    };
    let first = testbed.commit(&testbed.base, &[("file", "changed\ntwice\n"), ("a/b", "x\0y")]);
    let told = testbed.send(preview(&first)).await.unwrap();
    assert_eq!((&told.commit, told.commits, told.files), (&first, 1, 2));
    let want = [("a/b".to_owned(), 0, 0, true, true, 3), ("file".to_owned(), 2, 1, false, false, 14)];
    assert_eq!(listed(&told), want);
    assert_eq!(testbed.remote_git(&["for-each-ref", "--format=%(refname)"]), "refs/heads/main");
    assert_eq!(testbed.requests_to("app.git/git-receive-pack"), 0);
    assert_eq!(listed(&testbed.push(&first).await.unwrap()), [], "a push lists nothing");

    // On top of what was pushed only the difference, and nothing if there is none.
    assert_eq!(testbed.send(preview(&first)).await.unwrap().commits, 0);
    let second = testbed.commit(&testbed.base, &[("file", "changed\n"), ("a/b", "x\0y")]);
    let told = testbed.send(preview(&second)).await.unwrap();
    assert_eq!(listed(&told), [("file".to_owned(), 0, 1, false, false, 8)]);
    // It refuses what a push refuses.
    let refused = testbed.commit(&testbed.base, &[("deploy/key", "x\n")]);
    assert_eq!(code(&testbed.send(preview(&refused)).await.unwrap_err()), "push_path_refused");
    assert_eq!(testbed.push_directories(), 0);
}

#[tokio::test]
async fn several_commits_reach_the_branch_as_they_are() {
    let testbed = Testbed::start().await;
    let first = testbed.commit(&testbed.base, &[("a", "a\n")]);
    let second = testbed.commit(&first, &[("b", "b\n")]);
    let side = testbed.commit(&first, &[("c", "c\n")]);
    let merge = testbed.merge(&second, &side);
    testbed.push(&first).await.unwrap();
    let told = testbed.push(&merge).await.unwrap();
    assert_eq!(told.commit, merge);
    assert_eq!(testbed.remote("agent/ses_a"), merge);
    assert_eq!(testbed.remote_git(&["rev-list", "--count", "main..agent/ses_a"]), "4");
    // A branch that a person made at the base.
    testbed.remote_git(&["update-ref", "refs/heads/agent/prepared", &testbed.base]);
    let request = testbed.request(&first).to("agent/prepared");
    testbed.send(request).await.unwrap();
    assert_eq!(testbed.remote("agent/prepared"), first);
}

#[tokio::test]
async fn the_token_is_nowhere_but_in_the_requests_to_its_server() {
    let testbed = Testbed::start().await;
    let encoded = STANDARD.encode(format!("x-access-token:{TOKEN}"));
    let commit = testbed.commit(&testbed.base, &[("file", "changed\n")]);
    // The answer to the push itself is held, so that everything of the push is there to be searched.
    testbed.hold_push();
    let pushed = testbed.push(&commit);
    let search = async {
        testbed.server.wait_for_request("acme/app.git/git-receive-pack").await;
        let mut searched = 0;
        for file in testbed.push_files() {
            let content = fs::read(&file).unwrap();
            let text = String::from_utf8_lossy(&content);
            assert!(!text.contains(TOKEN) && !text.contains(&encoded), "{}", file.display());
            searched += 1;
        }
        for process in fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
            for name in ["environ", "cmdline"] {
                let content = fs::read(process.path().join(name)).unwrap_or_default();
                let text = String::from_utf8_lossy(&content);
                assert!(
                    !text.contains(TOKEN) && !text.contains(&encoded),
                    "{} {name}",
                    process.path().display()
                );
            }
        }
        testbed.server.release();
        searched
    };
    let (told, searched) = tokio::join!(pushed, search);
    assert!(searched > 5, "{searched}");
    let told = format!("{:?}", told.unwrap());
    let log = testbed.broker.log();
    for shown in [&told, &log] {
        assert!(!shown.contains(TOKEN) && !shown.contains(&encoded));
    }
    let requests = testbed.server.requests();
    assert!(requests.iter().all(|request| request.authorization == Some(format!("Basic {encoded}"))));

    let lines = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let lines: Vec<_> =
        lines.filter(|line| line["target"] == "audit").map(|line| line["fields"].clone()).collect();
    let used: Vec<_> = lines.iter().filter(|line| line["message"] == "a secret was used").collect();
    assert_eq!((used.len(), used[0]["purpose"].as_str()), (1, Some("environment.git.push")));
    let pushed: Vec<_> = lines.iter().filter(|line| line["message"] == "a session was pushed").collect();
    let word = |name: &str| pushed[0][name].as_str().unwrap_or_default();
    assert_eq!(pushed.len(), 1);
    assert_eq!((word("session.id"), word("git.branch"), word("outcome")), (SESSION, "agent/ses_a", "ok"));
    assert_eq!((word("git.commit"), word("secret.name")), (commit.as_str(), "TOKEN"));
    assert_eq!(word("git.url"), format!("https://{HOST}/acme/app.git"));
}

#[tokio::test]
async fn the_repositories_of_ssh_urls_are_pushed_to_over_https() {
    let testbed = Testbed::start().await;
    let commit = testbed.commit(&testbed.base, &[("file", "changed\n")]);
    let mut request = testbed.request(&commit);
    request.header.url = format!("ssh://git@{HOST}/acme/app.git");
    assert_eq!(testbed.send(request).await.unwrap().url, format!("https://{HOST}/acme/app.git"));
}

#[tokio::test]
async fn a_broker_that_cannot_push_does_not_start_unless_that_is_accepted() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("precious"), "").unwrap();
    let place = directory.path().to_str().unwrap();
    let error = Broker::start_error(&["--push", place]).await;
    assert!(error.contains("FLOTILLA_BROKER_PUSH") && error.contains("not the broker's"), "{error}");
    let broker = Broker::start(&["--push", place, "--push-optional"]).await;
    let header = v1::push_request::Part::Header(v1::PushHeader::default());
    let message = v1::PushRequest { part: Some(header) };
    let status = broker.client.clone().push(futures::stream::iter([message])).await.unwrap_err();
    assert!(
        code(&status) == "push_unavailable" && status.message().contains("not the broker's"),
        "{status:?}"
    );
    assert!(directory.path().join("precious").exists());
}

#[tokio::test]
async fn a_second_broker_on_one_directory_of_pushes_does_not_start() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("push");
    let place = place.to_str().unwrap();
    let _broker = Broker::start(&["--push", place]).await;
    let error = Broker::start_error(&["--push", place]).await;
    assert!(error.contains("FLOTILLA_BROKER_PUSH") && error.contains("another broker uses"), "{error}");
}

#[tokio::test]
async fn a_broker_without_a_directory_of_pushes_says_so() {
    let mut testbed = Testbed::start().await;
    testbed.broker.restart(&[]).await;
    let commit = testbed.commit(&testbed.base, &[("file", "changed\n")]);
    let status = testbed.push(&commit).await.unwrap_err();
    assert!(
        code(&status) == "push_unavailable" && status.message().contains("FLOTILLA_BROKER_PUSH"),
        "{status:?}"
    );
    assert_eq!(testbed.server.requests(), []);
}
