//! What servers answer, and pushes that end early.

use super::testbed::{HOST, Testbed, code};
use std::{fs, os::unix::fs::PermissionsExt as _};
use testkit::git_server::rules::GitFault;
use tokio::sync::oneshot;

async fn refusal(testbed: &Testbed, commit: &str) -> (String, String) {
    let status = testbed.push(commit).await.unwrap_err();
    (code(&status), status.message().to_owned())
}

#[tokio::test]
async fn every_failure_of_a_server_has_a_code_and_says_what_helps() {
    let testbed = Testbed::start().await;
    let commit = testbed.commit(&testbed.base, &[("file", "changed\n")]);
    let elsewhere = "https://evil.example.com/acme/app.git/info/refs".to_owned();
    for (at, fault, want, text) in [
        ("app.git/info/refs", GitFault::Status(401), "push_unauthorized", "flotilla secret set TOKEN"),
        ("app.git/info/refs", GitFault::Status(404), "push_repository_unknown", "may not write to it"),
        ("app.git/info/refs", GitFault::Status(503), "push_unreachable", "answered 503"),
        ("app.git/info/refs", GitFault::Status(429), "push_unreachable", "too many requests"),
        (
            "app.git/info/refs",
            GitFault::Redirect(elsewhere),
            "push_unreachable",
            "redirects to https://evil.example.com/acme/app.git;",
        ),
        ("app.git/info/refs", GitFault::Page, "push_unreachable", "does not answer as a server of git"),
        ("app.git/git-upload-pack", GitFault::Truncate(30), "push_unreachable", "breaks off"),
        ("app.git/git-receive-pack", GitFault::Status(403), "push_unauthorized", "lack the right to write"),
        ("app.git/git-receive-pack", GitFault::Status(500), "push_unreachable", "answered 500"),
    ] {
        testbed.server.fail(at, fault.clone());
        let (code, message) = refusal(&testbed, &commit).await;
        assert_eq!(code, want, "{fault:?}: {message}");
        assert!(message.contains(text), "{fault:?}: {message}");
        testbed.server.heal(at);
    }
    for (value, want) in [("revoked", "push_unauthorized"), ("two words", "push_secret_invalid")] {
        testbed.broker.put_secret(None, "TOKEN", value).await;
        let (code, message) = refusal(&testbed, &commit).await;
        assert!(code == want && !message.contains(value), "{code}: {message}");
    }
    testbed.broker.put_secret_for(None, "TOKEN", super::TOKEN, &["https://github.com/acme/"]).await;
    let (code, message) = refusal(&testbed, &commit).await;
    assert!(
        code == "push_secret_invalid" && message.contains("only for https://github.com/acme/"),
        "{message}"
    );
    testbed.broker.put_secret(Some(&testbed.broker.project), "TOKEN", super::TOKEN).await;
    assert_eq!(testbed.push(&commit).await.unwrap().commits, 1, "the secret of the project comes first");
    assert_eq!(testbed.push_directories(), 0);
}

#[tokio::test]
async fn the_reason_of_a_server_reaches_the_person_without_what_changes_a_terminal() {
    let testbed = Testbed::start().await;
    let commit = testbed.commit(&testbed.base, &[("file", "changed\n")]);
    let hook = testbed.server.directory("acme/app.git").join("hooks/pre-receive");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    let write = |script: &str| {
        fs::write(&hook, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    };
    write(
        "printf 'GH006: \\033[31mprotected branch\\007\\nask Ann\\n' >&2; head -c 100000 /dev/zero | tr '\\0' x >&2; exit 1",
    );
    let (code, message) = refusal(&testbed, &commit).await;
    assert_eq!(code, "push_refused");
    assert!(message.starts_with(&format!("{HOST} refused the push: pre-receive hook declined\nremote: GH006: [31mprotected branch\nremote: ask Ann\n")), "{message}");
    assert!(message.len() < 10_000, "{}", message.len());
    write("echo 'open a pull request: https://git.example.com/acme/app/pull/new' >&2");
    let told = testbed.push(&commit).await.unwrap();
    assert_eq!(told.remote_message, "open a pull request: https://git.example.com/acme/app/pull/new");
}

#[tokio::test]
async fn a_push_whose_answer_is_lost_is_found_done() {
    let testbed = Testbed::start().await;
    let commit = testbed.commit(&testbed.base, &[("file", "changed\n")]);
    testbed.server.fail("app.git/git-receive-pack", GitFault::Truncate(10));
    let told = testbed.push(&commit).await.unwrap();
    assert_eq!((&told.commit, told.commits), (&commit, 1));
    assert_eq!(testbed.remote("agent/ses_a"), commit);
    // Nothing was taken, and nothing is claimed.
    testbed.server.fail("app.git/git-receive-pack", GitFault::Status(500));
    let next = testbed.commit(&testbed.base, &[("file", "changed again\n")]);
    assert_eq!(refusal(&testbed, &next).await.0, "push_unreachable");
    assert_eq!(testbed.remote("agent/ses_a"), commit);
}

#[tokio::test]
async fn a_push_that_loses_a_race_moves_nothing() {
    let testbed = Testbed::start().await;
    let commit = testbed.commit(&testbed.base, &[("file", "changed\n")]);
    // Another push arrives while this one is on its way: the hook plays it.
    let hook = testbed.server.directory("acme/app.git").join("hooks/pre-receive");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    let script = format!(
        "#!/bin/sh\nunset GIT_QUARANTINE_PATH\ngit update-ref refs/heads/agent/ses_a {}\n",
        testbed.base
    );
    fs::write(&hook, script).unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(refusal(&testbed, &commit).await.0, "push_branch_moved");
    assert_eq!(testbed.remote("agent/ses_a"), testbed.base);
}

#[tokio::test]
async fn a_base_that_the_repository_lost_is_told() {
    let testbed = Testbed::start().await;
    let other = testbed.commit_tree(&format!("{}^{{tree}}", testbed.base), &[], "another history");
    let commit = testbed.commit(&testbed.base, &[("file", "changed\n")]);
    let server = testbed.server.directory("acme/app.git").to_str().unwrap().to_owned();
    testbed.app.git(&["push", "-q", "--force", &server, &format!("{other}:refs/heads/main")]);
    // The server still has the old commits. The branch gets them as its history.
    testbed.push(&commit).await.unwrap();
    assert_eq!(testbed.remote("agent/ses_a^"), testbed.base);
    // Now it has removed them.
    testbed.remote_git(&["update-ref", "-d", "refs/heads/agent/ses_a"]);
    testbed.remote_git(&["reflog", "expire", "--expire=now", "--all"]);
    testbed.remote_git(&["gc", "-q", "--prune=now"]);
    let (code, message) = refusal(&testbed, &commit).await;
    assert!(code == "push_base_missing" && message.contains("flotilla checkout"), "{code}: {message}");
}

#[tokio::test]
async fn the_server_is_asked_while_the_bundle_arrives() {
    let testbed = Testbed::start().await;
    let commit = testbed.commit(&testbed.base, &[("file", "changed\n")]);
    let (send_rest, rest) = oneshot::channel();
    let push = testbed.send_slowly(testbed.request(&commit), rest);
    let look = async {
        // For the references, and for the files of the base commit.
        let is_asked = async || testbed.requests_to("app.git/git-upload-pack") == 2;
        testkit::eventually("the server is asked", is_asked).await;
        send_rest.send(()).unwrap();
    };
    let (told, ()) = tokio::join!(push, look);
    assert_eq!(told.unwrap().commits, 1);
    assert_eq!(testbed.remote("agent/ses_a"), commit);

    let next = testbed.commit(&testbed.base, &[("file", "changed again\n")]);
    let (send_rest, rest) = oneshot::channel();
    let push = testbed.send_slowly(testbed.request(&next), rest);
    let look = async {
        // And for the commit that the branch has.
        let is_asked = async || testbed.requests_to("app.git/git-upload-pack") == 2 + 3;
        testkit::eventually("the server is asked again", is_asked).await;
        send_rest.send(()).unwrap();
    };
    let (told, ()) = tokio::join!(push, look);
    assert_eq!(told.unwrap().commits, 1);
    assert_eq!(testbed.remote("agent/ses_a^"), commit);
}

#[tokio::test]
async fn the_server_is_asked_before_the_session_names_its_commit() {
    let testbed = Testbed::start().await;
    let commit = testbed.commit(&testbed.base, &[("file", "changed\n")]);
    let (name, named) = oneshot::channel();
    let push = testbed.send_early(testbed.request(&commit), named);
    let look = async {
        let is_asked = async || testbed.requests_to("app.git/git-upload-pack") == 2;
        testkit::eventually("the server is asked", is_asked).await;
        name.send(()).unwrap();
    };
    let (told, ()) = tokio::join!(push, look);
    assert_eq!(told.unwrap().commit, commit);
}

#[tokio::test]
async fn a_refusal_of_the_server_waits_for_the_name_of_the_commit() {
    let testbed = Testbed::start().await;
    let commit = testbed.commit(&testbed.base, &[("file", "changed\n")]);
    testbed.broker.put_secret(None, "TOKEN", "revoked").await;
    let (name, named) = oneshot::channel();
    let push = testbed.send_early(testbed.request(&commit), named);
    let look = async {
        testbed.server.wait_for_request("app.git/git-upload-pack").await;
        // The server also refuses a push that begins later. When that has ended, it has refused the first one, too.
        assert_eq!(code(&testbed.push(&commit).await.unwrap_err()), "push_unauthorized");
        name.send(()).unwrap();
    };
    let (told, ()) = tokio::join!(push, look);
    assert_eq!(code(&told.unwrap_err()), "push_unauthorized");
}

#[tokio::test]
async fn a_commit_that_is_none_wins_over_every_other_error() {
    let testbed = Testbed::start().await;
    let commit = testbed.commit(&testbed.base, &[("file", "changed\n")]);
    let named = |name: &str| {
        let mut attempt = testbed.request(&commit);
        name.clone_into(&mut attempt.commit);
        attempt
    };
    let long = "1".repeat(64);
    // The server refuses the first value, and the other one is no credential.
    for value in ["revoked", "two words"] {
        testbed.broker.put_secret(None, "TOKEN", value).await;
        for (name, want) in [
            (testbed.base.as_str(), "push_nothing"),
            ("main", "push_content_invalid"),
            (long.as_str(), "push_content_invalid"),
        ] {
            assert_eq!(code(&testbed.send(named(name)).await.unwrap_err()), want, "{value}: {name}");
        }
    }
    assert_eq!((testbed.pushes(), testbed.push_directories()), (0, 0));
}

#[tokio::test]
async fn a_caller_that_leaves_before_it_names_its_commit_ends_the_push() {
    let testbed = Testbed::start().await;
    let commit = testbed.commit(&testbed.base, &[("file", "changed\n")]);
    let (_name, never) = oneshot::channel();
    let push = testbed.send_early(testbed.request(&commit), never);
    let look = testbed.server.wait_for_request("app.git/git-upload-pack");
    tokio::select! {
        told = push => panic!("{told:?}"),
        () = look => {}
    }
    testkit::eventually("the push ends", async || testbed.broker.log().contains("caller_left")).await;
    testkit::eventually("the directory of the push is gone", async || testbed.push_directories() == 0).await;
    assert_eq!(testbed.pushes(), 0);
}

#[tokio::test]
async fn a_server_without_the_second_version_of_the_protocol_is_told() {
    let testbed = Testbed::start().await;
    let commit = testbed.commit(&testbed.base, &[("file", "changed\n")]);
    // It answers the other questions, which come at the same time, with errors of its own.
    for at in ["app.git/info/refs", "app.git/git-upload-pack"] {
        testbed.server.fail(at, GitFault::FirstVersion);
    }
    let want = format!("{HOST} does not speak version 2 of git's protocol, which pushes need");
    assert_eq!(refusal(&testbed, &commit).await, ("push_unreachable".to_owned(), want));
    assert_eq!((testbed.pushes(), testbed.push_directories()), (0, 0));
}

#[tokio::test]
async fn the_error_of_an_earlier_part_wins_whichever_comes_first() {
    let testbed = Testbed::start().await;
    let commit = testbed.commit(&testbed.base, &[("file", "changed\n")]);
    testbed.remote_git(&["update-ref", "refs/heads/agent/trunk", &testbed.base]);
    testbed.remote_git(&["symbolic-ref", "HEAD", "refs/heads/agent/trunk"]);
    // The branch is the default one, the bundle is none, and the server lacks the base commit.
    let attempt = |branch: &str| {
        let mut attempt = testbed.request(&commit).to(branch);
        attempt.header.base_commit = "1".repeat(40);
        attempt
    };
    let mut broken = attempt("agent/trunk");
    broken.bundle = b"no bundle".to_vec();
    assert_eq!(code(&testbed.send(broken).await.unwrap_err()), "push_branch_default");
    let mut broken = attempt("agent/fix");
    broken.bundle = b"no bundle".to_vec();
    assert_eq!(code(&testbed.send(broken).await.unwrap_err()), "push_content_invalid");
    assert_eq!(code(&testbed.send(attempt("agent/fix")).await.unwrap_err()), "push_base_missing");
    // It ends the parts after it, too: the rest of this bundle never comes.
    let (_send_rest, rest) = oneshot::channel();
    let status = testbed.send_slowly(testbed.request(&commit).to("agent/trunk"), rest).await.unwrap_err();
    assert_eq!(code(&status), "push_branch_default");
    assert_eq!((testbed.pushes(), testbed.push_directories()), (0, 0));
}

#[tokio::test]
async fn a_refused_credential_fails_few_requests() {
    let testbed = Testbed::start().await;
    let commit = testbed.commit(&testbed.base, &[("file", "changed\n")]);
    testbed.broker.put_secret(None, "TOKEN", "revoked").await;
    assert_eq!(refusal(&testbed, &commit).await.0, "push_unauthorized");
    let requests = testbed.server.requests();
    assert!(requests.len() <= 3, "{requests:?}");
}

#[tokio::test]
async fn problems_of_the_commits_win_over_commits_of_others() {
    let testbed = Testbed::start().await;
    let person = testbed.app.git(&["commit-tree", "-m", "by a person", "-p", &testbed.base, "HEAD^{tree}"]);
    let server = testbed.server.directory("acme/app.git").to_str().unwrap().to_owned();
    testbed.app.git(&["push", "-q", &server, &format!("{person}:refs/heads/agent/ses_a")]);
    let denied = testbed.commit(&testbed.base, &[("deploy/key", "x\n")]);
    assert_eq!(refusal(&testbed, &denied).await.0, "push_path_refused");
    // A commit that only the branch has is none of the bundle, although the server sends it.
    let mut theirs = testbed.request(&denied);
    person.clone_into(&mut theirs.commit);
    assert_eq!(code(&testbed.send(theirs).await.unwrap_err()), "push_content_invalid");
    assert_eq!((testbed.pushes(), testbed.push_directories()), (0, 0));
}

#[tokio::test]
async fn a_caller_that_leaves_ends_the_push_and_nothing_stays() {
    let testbed = Testbed::start().await;
    let commit = testbed.commit(&testbed.base, &[("file", "changed\n")]);
    testbed.server.fail("app.git/git-upload-pack", GitFault::Hold(4));
    let push = testbed.push(&commit);
    let leave = testbed.server.wait_for_request("app.git/git-upload-pack");
    tokio::select! {
        told = push => panic!("{told:?}"),
        () = leave => {}
    }
    testkit::eventually("the push ends", async || testbed.broker.log().contains("caller_left")).await;
    testkit::eventually("the directory of the push is gone", async || testbed.push_directories() == 0).await;
    assert_eq!(testbed.pushes(), 0);
    testbed.server.release();
    testbed.push(&commit).await.unwrap();
}

#[tokio::test]
async fn a_tenant_has_few_pushes_at_a_time_and_others_have_theirs() {
    let testbed = Testbed::start().await;
    let commit = testbed.commit(&testbed.base, &[("file", "changed\n")]);
    testbed.server.fail("app.git/info/refs", GitFault::Hold(0));
    let first = testbed.send(testbed.request(&commit).to("agent/one"));
    let second = testbed.send(testbed.request(&commit).to("agent/two"));
    let third = testbed.send(testbed.request(&commit).to("agent/three"));
    let look = async {
        let begun = || testbed.requests_to("app.git/info/refs?service=git-upload-pack");
        testkit::eventually("two pushes have begun", async || begun() == 2).await;
        let mut other = testbed.request(&commit);
        other.header.tenant_id = testbed.broker.tenants[1].to_string();
        other.header.project_id.clear();
        // It gets its turn at once, and has no secret.
        assert_eq!(code(&testbed.send(other).await.unwrap_err()), "push_secret_missing");
        assert_eq!(begun(), 2);
        testbed.server.release();
    };
    let (first, second, third, ()) = tokio::join!(first, second, third, look);
    assert!(first.is_ok() && second.is_ok() && third.is_ok());
}
