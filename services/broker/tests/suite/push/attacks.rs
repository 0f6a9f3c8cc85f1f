//! What a session must not bring to a repository, however its commits are made. For each attack, a push succeeds without it.

use super::testbed::{Attempt, HOST, Testbed, code};
use rpc::v1;

/// Pushes, and expects a refusal with this code whose text has this. Nothing reaches any branch, and nothing stays here.
async fn refuse(testbed: &Testbed, attempt: Attempt, want: &str, text: &str) {
    let (before, pushes) = (testbed.references(), testbed.pushes());
    let status = testbed.send(attempt).await.expect_err(want);
    assert_eq!(code(&status), want, "{}", status.message());
    assert!(status.message().contains(text), "{text}: {}", status.message());
    assert_eq!((testbed.references(), testbed.pushes()), (before, pushes), "{want}");
    assert_eq!(testbed.push_directories(), 0);
}

#[tokio::test]
async fn only_branches_of_the_session_below_the_prefix_are_reached() {
    let testbed = Testbed::start().await;
    let commit = testbed.commit(&testbed.base, &[("file", "changed\n")]);
    for (branch, text) in [
        ("main", "only branches below agent/"),
        ("refs/heads/main", "only branches below agent/"),
        ("refs/tags/agent/x", "only branches below agent/"),
        ("tags/v1", "only branches below agent/"),
        ("agents/x", "only branches below agent/"),
        ("agent/../main", "git takes no branch"),
        ("agent/x:refs/heads/main", "git takes no branch"),
        ("+agent/x", "only branches below agent/"),
        ("agent/x\n", "git takes no branch"),
        ("agent/*", "git takes no branch"),
        ("", "git takes no branch"),
        ("agent/ses_b", "belong to that session"),
        ("agent/ses_b/x", "belong to that session"),
        ("agent/ses_a/x", "belong to that session"),
    ] {
        refuse(&testbed, testbed.request(&commit).to(branch), "push_branch_invalid", text).await;
    }
    // Also one below the prefix, if it is the default branch of the repository.
    testbed.remote_git(&["symbolic-ref", "HEAD", "refs/heads/agent/trunk"]);
    testbed.remote_git(&["update-ref", "refs/heads/agent/trunk", &testbed.base]);
    refuse(
        &testbed,
        testbed.request(&commit).to("agent/trunk"),
        "push_branch_default",
        "open a pull request",
    )
    .await;
    assert!(testbed.send(testbed.request(&commit).to("agent/fix/it")).await.is_ok());
}

#[tokio::test]
async fn nothing_is_deleted_forced_or_taken_from_others() {
    let testbed = Testbed::start().await;
    let commit = testbed.commit(&testbed.base, &[("file", "changed\n")]);
    let mut deletion = testbed.request(&commit);
    deletion.commit = "0".repeat(40);
    refuse(&testbed, deletion, "push_content_invalid", "").await;
    // A branch of another session, which names itself in its commits.
    let moved = "which this session did not push";
    let theirs = testbed.app.git(&["cat-file", "commit", &commit]).replace("ses_a", "ses_b") + "\n";
    let theirs = testbed.run(
        &testbed.app.path(),
        &["hash-object", "-t", "commit", "-w", "--stdin"],
        theirs.as_bytes(),
    );
    testbed.app.git(&[
        "push",
        "-q",
        testbed.server.directory("acme/app.git").to_str().unwrap(),
        &format!("{theirs}:refs/heads/agent/shared"),
    ]);
    refuse(&testbed, testbed.request(&commit).to("agent/shared"), "push_branch_moved", moved).await;
    // The session's own branch, on which a person worked.
    testbed.push(&commit).await.unwrap();
    let person =
        testbed.app.git(&["commit-tree", "-m", "by a person", "-p", &commit, &format!("{commit}^{{tree}}")]);
    let server = testbed.server.directory("acme/app.git").to_str().unwrap().to_owned();
    testbed.app.git(&["push", "-q", &server, &format!("{person}:refs/heads/agent/ses_a")]);
    let next = testbed.commit(&testbed.base, &[("file", "changed again\n")]);
    refuse(&testbed, testbed.request(&next), "push_branch_moved", "--branch").await;
    // The same after the person amended the session's own commit, and after they rewrote the branch without its base.
    let amended = testbed
        .app
        .git(&["cat-file", "commit", &commit])
        .replace("committer Flotilla Agent <agent@flotilla.invalid>", "committer Ann <ann@acme.dev>")
        + "\n";
    let amended = testbed.run(
        &testbed.app.path(),
        &["hash-object", "-t", "commit", "-w", "--stdin"],
        amended.as_bytes(),
    );
    let orphan = testbed.commit_tree(&format!("{commit}^{{tree}}"), &[], "orphan");
    for other in [amended, orphan] {
        testbed.app.git(&["push", "-q", "--force", &server, &format!("{other}:refs/heads/agent/ses_a")]);
        refuse(&testbed, testbed.request(&next), "push_branch_moved", moved).await;
    }
    assert!(testbed.send(testbed.request(&next).to("agent/second")).await.is_ok());
}

#[tokio::test]
async fn each_commit_is_inspected_and_not_only_the_newest() {
    let testbed = Testbed::start().await;
    let base = &testbed.base;
    let workflow = [(".github/workflows/ci.yml", "on: pull_request_target\n")];
    let changed = testbed.commit(base, &workflow);
    refuse(&testbed, testbed.request(&changed), "push_path_refused", ".github/workflows/ci.yml").await;
    let removed = testbed.commit(base, &[(".github/workflows/ci.yml", "")]);
    refuse(&testbed, testbed.request(&removed), "push_path_refused", ".github/workflows/**").await;
    // Hidden in the middle of the history.
    let again =
        testbed.commit(&changed, &[(".github/workflows/ci.yml", "on: push\n"), ("file", "changed\n")]);
    assert_eq!(testbed.app.git(&["diff", "--name-only", base, &again]), "file");
    refuse(&testbed, testbed.request(&again), "push_path_refused", ".github/workflows/ci.yml").await;
    // Hidden behind a merge: in the commit that it merges, and in the merge itself.
    let plain = testbed.commit(base, &[("file", "changed\n")]);
    let merge = testbed.commit_tree(&format!("{plain}^{{tree}}"), &[&plain, &again], "Merge");
    refuse(&testbed, testbed.request(&merge), "push_path_refused", ".github/workflows/ci.yml").await;
    let side = testbed.commit(base, &[("other", "x\n")]);
    let with = testbed.commit(&plain, &[("other", "x\n"), ("deploy/key", "x\n")]);
    let merge = testbed.commit_tree(&format!("{with}^{{tree}}"), &[&plain, &side], "Merge");
    refuse(&testbed, testbed.request(&merge), "push_path_refused", "deploy/key").await;
    for path in [".gitlab-ci.yml", ".gitmodules", ".GITMODULES", ".GitHub/workflows/x.yml", "deploy/x/y"] {
        let commit = testbed.commit(base, &[(path, "x\n")]);
        refuse(&testbed, testbed.request(&commit), "push_path_refused", "remove this change").await;
    }
    let merge = testbed.merge(&plain, &side);
    assert!(testbed.push(&merge).await.is_ok());
}

#[tokio::test]
async fn a_refusal_lists_every_problem_with_its_commit_and_path() {
    let testbed = Testbed::start().await;
    let base = &testbed.base;
    let attributes = (".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n");
    let unknown = format!("version https://git-lfs.github.com/spec/v1\noid sha256:{:064x}\nsize 6\n", 7);
    let first =
        testbed.commit(base, &[(".github/workflows/ci.yml", "on: pull_request_target\n"), attributes]);
    let files =
        [("deploy/key", "x\n"), ("a.bin", "the content\n"), ("b.bin", unknown.as_str()), ("fine", "x\n")];
    let second = testbed.commit(&first, &files);
    let status = testbed.push(&second).await.unwrap_err();
    assert_eq!(code(&status), "push_path_refused", "{status:?}");
    let (first, second) = (&first[..10], &second[..10]);
    let lines: Vec<&str> = status.message().lines().collect();
    assert_eq!(
        lines,
        [
            "the push has 4 problems:".to_owned(),
            format!("- the commit {second} touches deploy/key: pushes must not touch what the pattern deploy/** covers"),
            format!(
                "- the commit {first} touches .github/workflows/ci.yml: pushes must not touch what the pattern .github/workflows/** covers"
            ),
            format!(
                "- the commit {second} changes the content of a.bin, which is a file of Git LFS, and a push of several commits brings no objects of Git LFS"
            ),
            format!("- the commit {second} has a pointer of Git LFS at b.bin, and {HOST} does not have its object"),
            "remove these changes from the session, or bring them into the repository yourself with `flotilla checkout`"
                .to_owned(),
        ]
    );
    assert_eq!((testbed.pushes(), testbed.push_directories()), (0, 0));

    let many: Vec<String> = (0..30).map(|number| format!("deploy/{number}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|path| (path.as_str(), "x\n")).collect();
    let status = testbed.push(&testbed.commit(base, &many)).await.unwrap_err();
    assert!(status.message().starts_with("the push has 30 problems:\n- "), "{status:?}");
    assert!(status.message().contains(" more\n"), "{status:?}");
    // What a merge has from its parents is one problem for each commit.
    let plain = testbed.commit(base, &[("file", "changed\n")]);
    let merge = testbed.commit(&plain, &[("deploy/key", "x\n")]);
    let merge = testbed.commit_tree(&format!("{merge}^{{tree}}"), &[base, &plain], "Merge");
    let status = testbed.push(&merge).await.unwrap_err();
    assert!(
        status.message().starts_with("the commit ") && status.message().contains("deploy/key"),
        "{status:?}"
    );
}

#[tokio::test]
async fn names_and_links_that_lead_elsewhere_are_refused() {
    let testbed = Testbed::start().await;
    let (file, base) = (testbed.object(b"x\n"), testbed.base.clone());
    let inner =
        testbed.run(&testbed.app.path(), &["mktree"], format!("100644 blob {file}\tconfig\n").as_bytes());
    for name in
        [".git", ".GIT", ".Git ", ".git.", "git~1", ".g\u{200c}it", ".git::$INDEX_ALLOCATION", "a\\.git"]
    {
        for entry in [format!("040000 tree {inner}"), format!("100644 blob {file}")] {
            let commit = testbed.commit_entry(&entry, name);
            refuse(&testbed, testbed.request(&commit), "push_path_refused", "git's own files").await;
        }
    }
    for name in [".", ".."] {
        let commit = testbed.commit_entry(&format!("040000 tree {inner}"), name);
        refuse(&testbed, testbed.request(&commit), "push_content_invalid", "contains").await;
    }
    for target in ["/etc/passwd", "..", "../outside", "src/../../x", "src/../file", "C:\\x"] {
        let commit =
            testbed.commit_entry(&format!("120000 blob {}", testbed.object(target.as_bytes())), "link");
        refuse(&testbed, testbed.request(&commit), "push_path_refused", "leads out of the repository").await;
    }
    let long = testbed.object(&[b'x'; 5_000]);
    let commit = testbed.commit_entry(&format!("120000 blob {long}"), "link");
    refuse(&testbed, testbed.request(&commit), "push_path_refused", "too long").await;
    let commit = testbed.commit_entry(&format!("160000 commit {base}"), "module");
    refuse(&testbed, testbed.request(&commit), "push_path_refused", "submodule").await;
    // A link inside, and a name that only looks like git's.
    let commit = testbed.commit_entry(&format!("120000 blob {}", testbed.object(b"src/lib.rs")), "link");
    assert!(testbed.push(&commit).await.is_ok());
    let commit = testbed.commit_entry(&format!("100644 blob {file}"), ".gitkeep");
    assert!(testbed.send(testbed.request(&commit).to("agent/keep")).await.is_ok());
}

#[tokio::test]
async fn what_is_large_or_broken_is_refused() {
    let testbed = Testbed::start().await;
    let base = &testbed.base;
    let large = testbed.object(&vec![0; 100 * 1024 * 1024 + 1]);
    let commit = testbed.commit_entry(&format!("100644 blob {large}"), "large");
    refuse(&testbed, testbed.request(&commit), "push_file_too_large", "the limit is 104857600 bytes").await;
    let fits = testbed.object(&vec![0; 100 * 1024 * 1024]);
    let commit = testbed.commit_entry(&format!("100644 blob {fits}"), "large");
    assert!(testbed.send(testbed.request(&commit).to("agent/large")).await.is_ok());

    let many = (0..101).fold(base.clone(), |parent, number| {
        testbed.commit_tree(&format!("{base}^{{tree}}"), &[&parent], &number.to_string())
    });
    refuse(&testbed, testbed.request(&many), "push_too_large", "more than 100 commits").await;
    let fewer = testbed.app.git(&["rev-parse", &format!("{many}^")]);
    assert!(testbed.send(testbed.request(&fewer).to("agent/many")).await.is_ok());

    let commit = testbed.commit(base, &[("file", "changed\n")]);
    let with = |change: fn(&mut Vec<u8>)| {
        let mut attempt = testbed.request(&commit);
        change(&mut attempt.bundle);
        attempt
    };
    refuse(&testbed, with(Vec::clear), "push_content_invalid", "no bundle of git").await;
    refuse(&testbed, with(|bundle| bundle.truncate(20)), "push_content_invalid", "no bundle of git").await;
    refuse(&testbed, with(|bundle| *bundle = b"PACK".to_vec()), "push_content_invalid", "no bundle of git")
        .await;
    refuse(&testbed, with(|bundle| bundle.truncate(bundle.len() - 30)), "push_content_invalid", "").await;
    let flip = |bundle: &mut Vec<u8>| {
        let at = bundle.len() - 40;
        bundle[at] ^= 1;
    };
    refuse(&testbed, with(flip), "push_content_invalid", "").await;
    // A commit that the bundle does not have, and one whose file is missing.
    let mut other = testbed.request(&commit);
    other.commit = "1".repeat(40);
    refuse(&testbed, other, "push_content_invalid", "").await;
    let missing = testbed.commit_entry(&format!("100644 blob {}", "1".repeat(40)), "missing");
    let tree = testbed.app.git(&["rev-parse", &format!("{missing}^{{tree}}")]);
    let pack = testbed.pack(&[&missing, &tree]);
    let mut attempt = testbed.request(&commit);
    attempt.commit = missing;
    attempt.bundle = [&b"# v2 git bundle\n\n"[..], &pack].concat();
    refuse(&testbed, attempt, "push_content_invalid", "").await;
    // A history of its own.
    let orphan = testbed.commit_tree(&format!("{commit}^{{tree}}"), &[], "orphan");
    refuse(&testbed, testbed.request(&orphan), "push_content_invalid", "do not descend from").await;
    let joined = testbed.commit_tree(&format!("{commit}^{{tree}}"), &[base, &orphan], "joined");
    refuse(&testbed, testbed.request(&joined), "push_content_invalid", "do not descend from").await;
    assert!(testbed.push(&commit).await.is_ok());
}

#[tokio::test]
async fn the_credential_reaches_no_other_place() {
    let testbed = Testbed::start().await;
    let commit = testbed.commit(&testbed.base, &[("file", "changed\n")]);
    let with = |change: &dyn Fn(&mut v1::PushHeader)| {
        let mut attempt = testbed.request(&commit);
        change(&mut attempt.header);
        attempt
    };
    for url in [
        "https://git.example.com/foreign/app.git",
        "https://git.example.com/acme/../foreign/app.git",
        "https://git.example.com/acme/%2e%2e/foreign/app.git",
        "https://evil.example.com/acme/app.git",
        "http://git.example.com/acme/app.git",
        "https://git.example.com:8443/acme/app.git",
        "https://ann@git.example.com/acme/app.git",
        "file:///acme/app.git",
    ] {
        let attempt = with(&|header| url.clone_into(&mut header.url));
        refuse(&testbed, attempt, "argument_invalid", "the rule does not cover the URL").await;
    }
    assert_eq!(testbed.server.requests(), [], "no request was sent");
    // Another tenant has no such secret.
    let other = testbed.broker.tenants[1].to_string();
    let attempt = with(&|header| {
        other.clone_into(&mut header.tenant_id);
        header.project_id.clear();
    });
    refuse(&testbed, attempt, "push_secret_missing", "flotilla secret set TOKEN").await;
    assert_eq!(testbed.server.requests(), []);
    // The sibling is below the prefix, and is another push.
    let attempt = with(&|header| header.url = format!("https://{HOST}/acme/other.git"));
    assert!(testbed.send(attempt).await.is_ok());
}

#[tokio::test]
async fn files_of_git_lfs_are_pushed_as_pointers_that_the_server_knows_or_not_at_all() {
    let testbed = Testbed::start().await;
    let attributes = (".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n");
    let known = testbed.server.store_lfs("acme/app.git", b"known\n");
    let unknown = format!("version https://git-lfs.github.com/spec/v1\noid sha256:{:064x}\nsize 6\n", 7);
    let commit = testbed.commit(&testbed.base, &[attributes, ("art/large.bin", &unknown)]);
    let status = testbed.push(&commit).await.unwrap_err();
    assert_eq!(code(&status), "push_lfs_object_missing", "{status:?}");
    assert!(
        status.message().contains("art/large.bin") && status.message().contains("flotilla checkout"),
        "{status:?}"
    );
    // A later commit takes it back, and it would still be in the history.
    let first = testbed.commit(&testbed.base, &[attributes, ("art/large.bin", &unknown)]);
    let second = testbed.commit(&first, &[("art/large.bin", "")]);
    assert_eq!(code(&testbed.push(&second).await.unwrap_err()), "push_lfs_object_missing");
    assert_eq!(testbed.pushes(), 0);
    let commit = testbed.commit(&testbed.base, &[attributes, ("art/large.bin", &known), ("text", &unknown)]);
    assert_eq!(testbed.push(&commit).await.unwrap().commits, 1);
}
