//! A hostile or unusual workspace cannot misuse its snapshots.

use crate::{
    harness::{Machine, Session, directory, fresh, git, repository},
    snapshots::STATE,
};
use rpc::v1::FileStatus;

/// Where a program leaves a mark when git was made to run it, on this machine or in a helper.
async fn trap(session: &Session, mark: &std::path::Path) {
    let program = format!(
        "#!/bin/sh\ntouch {}; touch /workspace/ran; touch /run/sbx/snapshots/ran; cat\n",
        mark.display()
    );
    session.write("evil.sh", program.as_bytes()).await.unwrap();
    session.sh("chmod +x evil.sh; \
        git init -q sub; echo x > sub/f; git -C sub add f; git -C sub -c user.name=a -c user.email=a@b commit -qm x; \
        for d in . sub; do git -C $d config core.fsmonitor /workspace/evil.sh; \
          git -C $d config filter.evil.clean /workspace/evil.sh; git -C $d config filter.evil.smudge /workspace/evil.sh; \
          git -C $d config filter.evil.process /workspace/evil.sh; git -C $d config filter.evil.required true; \
          git -C $d config diff.evil.textconv /workspace/evil.sh; git -C $d config diff.external /workspace/evil.sh; \
          git -C $d config core.hooksPath /workspace/hooks; git -C $d config core.sshCommand /workspace/evil.sh; \
          git -C $d config core.pager /workspace/evil.sh; git -C $d config core.attributesFile /workspace/.gitattributes; done; \
        mkdir hooks; for h in post-index-change reference-transaction post-checkout pre-auto-gc; do cp evil.sh hooks/$h; done; \
        printf '* filter=evil diff=evil text=auto ident working-tree-encoding=UTF-16\\n' > .gitattributes; \
        cp .gitattributes sub/; printf '$Id$ a\\r\\nb\\r\\n' > dos; rm -f ran").await;
}

#[tokio::test]
async fn configuration_hooks_filters_and_attributes_run_and_change_nothing() {
    let (directory, _machine, session) = fresh(&[]).await;
    let mark = directory.path().join("mark");
    trap(&session, &mark).await;
    let (first, state) = (session.snapshot().await, session.sh(STATE).await);
    session.sh("echo changed > sub/f; echo more > sub/g; printf 'x\\r\\n' >> dos; echo y > README.md").await;
    let changed = session.changed(&first).await;
    let names: Vec<&str> = changed.iter().map(|(path, ..)| path.as_str()).collect();
    assert_eq!(names, ["README.md", "dos", "sub/f", "sub/g"], "a repository inside is content");
    session.revert(&[(&first, &["dos"])]).await.unwrap();
    session.restore(&first).await.unwrap();
    assert_eq!(session.sh(STATE).await, state);
    assert_eq!(
        session.sh("ls ran 2>/dev/null || echo none; git -C sub rev-parse --verify -q HEAD | wc -l").await,
        "none\n1"
    );
    assert!(!mark.exists() && !session.place(&directory, "ws").join("snapshots/ran").exists());
}

#[tokio::test]
async fn snapshots_do_not_need_the_workspaces_git() {
    let directory = directory();
    let path = repository(directory.path());
    let (_machine, session) = Machine::with_open(directory.path(), &path).await;
    let (first, state) = (session.snapshot().await, session.sh(STATE).await);
    for git_away in [
        "rm -rf .git; ln -s / .git",
        "rm .git; ln -s /run/sbx/snapshots/git .git",
        "rm .git; mkfifo .git",
        "rm .git; echo 'gitdir: /run/sbx/snapshots/git' > .git",
    ] {
        session.sh(&format!("{git_away}; rm README.md; echo x > added")).await;
        let changed: Vec<_> =
            session.changed(&first).await.into_iter().map(|(path, status, ..)| (path, status)).collect();
        let want = [("README.md".to_owned(), FileStatus::Deleted), ("added".to_owned(), FileStatus::Added)];
        assert_eq!(changed, want, "{git_away}");
        session.restore(&first).await.unwrap();
        assert_eq!(session.sh(&format!("{STATE} | grep -v '^./.git '")).await, state, "{git_away}");
    }
}

#[tokio::test]
async fn links_lead_nowhere() {
    let (directory, _machine, session) = fresh(&[]).await;
    session.sh("mkdir -p dir other; echo a > dir/f; echo a > dir/g; ln -s /etc/passwd out; ln -s /run/sbx/snapshots/git shadow; \
                ln -s loop loop; ln -s .. up").await;
    let first = session.snapshot().await;
    let files = session.changed(&first).await;
    assert!(files.is_empty());
    // The directory is now a link to another one, which has files of the same names.
    session
        .sh("rm -r dir; ln -s other dir; echo mine > other/f; echo mine > other/h; rm out; echo x > out")
        .await;
    session.revert(&[(&first, &["dir/f", "dir/h", "out"])]).await.unwrap();
    assert_eq!(
        session.sh("cat other/f other/h dir/f; readlink out; ls dir").await,
        "mine\nmine\na\n/etc/passwd\nf"
    );
    session.sh("rm -rf dir; ln -s /run/sbx/snapshots/git dir").await;
    session.restore(&first).await.unwrap();
    assert_eq!(
        session.sh("cat dir/f dir/g; ls other 2>/dev/null; readlink shadow").await,
        "a\na\n/run/sbx/snapshots/git"
    );
    assert!(!session.place(&directory, "ws").join("snapshots/git/f").exists());
    assert_eq!(session.sh("ls /run/sbx").await, "out", "no command sees the snapshots");
}

#[tokio::test]
async fn files_with_any_name_are_kept_and_restored() {
    let (_directory, _machine, session) = fresh(&[]).await;
    session.sh("printf 1 > $'line\\nend'; printf 1 > $'in\\xff\\xfevalid'; mkdir $'d\\n\\xff'; printf 1 > $'d\\n\\xff/'$'\\t\"q\\\\\"'; \
                printf 1 > ' lead'; printf 1 > 'trail '; printf 1 > -n; printf 1 > ':(top)x'; printf 1 > '*'; printf 1 > '#a'; \
                printf 1 > '!b'; printf 1 > 'a\\'").await;
    let (first, state) = (session.snapshot().await, session.sh(STATE).await);
    session.sh("find . -name .git -prune -o -type f -exec sh -c 'printf 2 > \"$1\"' - {} \\;; printf 2 > $'n\\xffew'").await;
    let changed = session.changed(&first).await;
    assert_eq!(changed.len(), 12, "{changed:?}");
    assert!(changed.iter().any(|(path, ..)| path == "in\u{fffd}\u{fffd}valid"));
    session.revert(&[(&first, &["line\nend", "*", ":(top)x", "-n", " lead"])]).await.unwrap();
    let left = session.changed(&first).await;
    assert_eq!(left.len(), 7, "only those that were named: {left:?}");
    session.restore(&first).await.unwrap();
    assert_eq!(session.sh(STATE).await, state);
}

#[tokio::test]
async fn large_files_are_left_out_unless_they_were_tracked() {
    let directory = directory();
    let path = repository(directory.path());
    std::fs::write(path.join("large.bin"), vec![7; 3 << 20]).unwrap();
    git(&path, &["add", "."]);
    git(&path, &["commit", "-qm", "large"]);
    let (_machine, session) = Machine::with_open(directory.path(), &path).await;
    let first = session.track().await.unwrap();
    assert_eq!((first.left_out, &first.left_out_paths), (0, &vec![]));
    session.sh("printf x >> large.bin; head -c 2097152 /dev/zero > fits; head -c 2097153 /dev/zero > $'too\\nlarge [*]'; \
                printf '!*\\n' > .gitignore").await;
    let second = session.track().await.unwrap();
    assert_eq!((second.left_out, second.left_out_paths), (1, vec!["too\nlarge [*]".to_owned()]));
    let names: Vec<String> =
        session.changed(&first.snapshot).await.into_iter().map(|(path, ..)| path).collect();
    assert_eq!(names, [".gitignore", "fits", "large.bin"]);
    session.restore(&first.snapshot).await.unwrap();
    assert_eq!(
        session.sh("stat -c '%s %n' *").await,
        "8 README.md\n3145728 large.bin\n2097153 too\nlarge [*]"
    );
}

#[tokio::test]
async fn a_snapshot_keeps_the_files_of_a_submodule_and_not_its_commit() {
    let directory = directory();
    let path = repository(directory.path());
    let module = directory.path().join("module");
    std::fs::create_dir(&module).unwrap();
    git(&module, &["init", "-q"]);
    std::fs::write(module.join("m"), "m\n").unwrap();
    git(&module, &["add", "."]);
    git(&module, &["commit", "-qm", "m"]);
    let url = format!("file://{}", module.display());
    git(&path, &["-c", "protocol.file.allow=always", "submodule", "add", "-q", &url, "module"]);
    git(&path, &["commit", "-qm", "module"]);
    let (_machine, session) = Machine::with_open(directory.path(), &path).await;
    let first = session.snapshot().await;
    session
        .sh("git init -q module; echo n > module/n; git -C module add n; git -C module -c user.name=a -c user.email=a@b commit -qm n")
        .await;
    assert_eq!(session.changed(&first).await, [("module/n".to_owned(), FileStatus::Added, 1, 0)]);
    session.restore(&first).await.unwrap();
    assert_eq!(session.sh("ls module | wc -l").await, "0");
}

#[tokio::test]
async fn converted_files_keep_their_bytes_in_a_snapshot() {
    let directory = directory();
    let path = repository(directory.path());
    std::fs::write(path.join(".gitattributes"), "*.bat text eol=crlf\n*.id ident\n").unwrap();
    std::fs::write(path.join("run.bat"), "one\r\n").unwrap();
    std::fs::write(path.join("a.id"), "$Id$\n").unwrap();
    git(&path, &["add", "."]);
    git(&path, &["commit", "-qm", "windows"]);
    let (_machine, session) = Machine::with_open(directory.path(), &path).await;
    let (first, state) = (session.snapshot().await, session.sh(STATE).await);
    session.sh("echo x > run.bat; echo y > a.id").await;
    session.restore(&first).await.unwrap();
    assert_eq!(session.sh(STATE).await, state);
    assert_eq!(
        session.sh("od -c run.bat | head -n 1; grep -c 'Id: ' a.id").await,
        "0000000   o   n   e  \\r  \\n\n1"
    );
}

#[tokio::test]
async fn changing_or_unreadable_files_do_not_break_a_snapshot() {
    let (_directory, _machine, session) = fresh(&[]).await;
    session.sh("echo kept > kept; echo closed > closed; chmod 000 closed; mkdir locked; echo x > locked/x; chmod 000 locked; mkfifo fifo").await;
    let writer = "touch going; for i in $(seq 1000000); do echo $i > f$((i % 50)); rm -rf d$((i % 7)); mkdir d$((i % 7)); \
                  echo $i > d$((i % 7))/x; ln -sfn d$((i % 7)) l; rm -f f$(((i + 25) % 50)); done";
    session.start(session.command("writer", writer)).await.unwrap();
    session.sh("until [ -e going ]; do sleep 0.01; done").await;
    let mut snapshots = vec![];
    for _ in 0..20 {
        snapshots.push(session.snapshot().await);
    }
    for pair in snapshots.windows(2) {
        session.compare(&pair[0], &pair[1], 0).await.unwrap();
    }
    session.restore(&snapshots[10]).await.ok();
    session.kill_all().await.unwrap();
    session.restore(&snapshots[0]).await.unwrap();
    assert_eq!(session.snapshot().await, snapshots[0]);
    assert_eq!(session.sh("cat kept; stat -c %a closed").await, "kept\n0");
}

#[tokio::test]
async fn a_snapshot_names_the_branch_whatever_head_contains() {
    let (_directory, _machine, session) = fresh(&[]).await;
    assert_eq!(session.track().await.unwrap().branch, "main");
    session.sh("git checkout -q -b feature/x").await;
    assert_eq!(session.track().await.unwrap().branch, "feature/x", "also when no file changed");
    for head in [
        "ln -s /run/sbx/snapshots/git/HEAD .git/HEAD",
        "mkfifo .git/HEAD",
        "truncate -s 1G .git/HEAD",
        "head -c 300 /dev/urandom > .git/HEAD",
        "mv .git real; ln -s /run/sbx/snapshots/git .git",
    ] {
        session.sh(&format!("rm -f .git/HEAD; {head}; echo x >> file")).await;
        assert_eq!(session.track().await.unwrap().branch, "", "{head}");
    }
}
