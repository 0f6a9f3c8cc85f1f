//! File operations, and paths that must not lead outside.

use crate::harness::{Session, code, fresh};
use rpc::v1::{self, FileKind};

async fn list(session: &Session, ignore: &[&str]) -> Vec<String> {
    let request = v1::ListFilesRequest {
        fence: session.fence(),
        ignore: ignore.iter().map(ToString::to_string).collect(),
        ..Default::default()
    };
    let response = session.client.clone().list_files(request).await.unwrap().into_inner();
    response.entries.into_iter().map(|entry| entry.path).collect()
}

async fn glob(session: &Session, pattern: &str, path: &str) -> Result<Vec<String>, tonic::Status> {
    let request = v1::GlobFilesRequest {
        fence: session.fence(),
        pattern: pattern.to_owned(),
        path: path.to_owned(),
        entries_max: 0,
    };
    let response = session.client.clone().glob_files(request).await?.into_inner();
    Ok(response.entries.into_iter().map(|entry| entry.path).collect())
}

async fn grep(
    session: &Session,
    pattern: &str,
    include: &str,
) -> Result<v1::GrepFilesResponse, tonic::Status> {
    let request = v1::GrepFilesRequest {
        fence: session.fence(),
        pattern: pattern.to_owned(),
        include: include.to_owned(),
        ..Default::default()
    };
    session.client.clone().grep_files(request).await.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn a_file_is_removed_only_if_it_is_unchanged() {
    let (_directory, _machine, session) = fresh(&[]).await;
    let written = session.write("a/b", b"one").await.unwrap();
    session.sh("ln -s b a/link; ln -s /etc/hostname a/out").await;
    let remove = async |path: &str, sha256: &str| {
        let (path, expected_sha256) = (path.to_owned(), sha256.to_owned());
        let request = v1::RemoveFileRequest { fence: session.fence(), path, expected_sha256 };
        session.client.clone().remove_file(request).await
    };
    assert_eq!(code(remove("a/b", &"0".repeat(64)).await), "file_changed");
    assert_eq!(code(remove("a", "").await), "file_is_directory");
    assert_eq!(code(remove("a/missing", "").await), "file_not_found");
    assert_eq!(code(remove("/etc/passwd", "").await), "path_outside_workspace");
    remove("a/link", &written.sha256).await.unwrap();
    assert_eq!(session.sh("ls a").await, "b\nout", "the link goes, the file stays");
    remove("a/b", &written.sha256).await.unwrap();
    assert_eq!(session.sh("ls a").await, "out");
    let late = v1::Fence { epoch: 0, ..session.fence().unwrap() };
    let request = v1::RemoveFileRequest { fence: Some(late), path: "a/out".to_owned(), ..Default::default() };
    assert_eq!(code(session.client.clone().remove_file(request).await), "epoch_stale");
}

#[tokio::test]
async fn a_file_is_written_and_read() {
    let (_directory, _machine, session) = fresh(&[]).await;
    let written = session.write("a/b/c.txt", b"one\ntwo\n").await.unwrap();
    assert!(written.created);
    let read = session.read("/workspace/a/b/c.txt").await.unwrap();
    assert_eq!(
        (read.data.as_slice(), read.size_bytes, read.sha256),
        (&b"one\ntwo\n"[..], 8, written.sha256.clone())
    );
    assert_eq!(code(session.write_if("a/b/c.txt", b"x", "absent").await), "file_changed");
    assert_eq!(code(session.write_if("a/b/c.txt", b"x", &"0".repeat(64)).await), "file_changed");
    session.sh("chmod 755 a/b/c.txt; ln -s b/c.txt a/link; ln -s /workspace/a/b/c.txt a/absolute").await;
    for link in ["a/link", "a/absolute"] {
        assert!(!session.write(link, b"new").await.unwrap().created);
        assert_eq!(session.sh("stat -c %a a/b/c.txt; cat a/b/c.txt").await, "755\nnew");
        assert_eq!(session.read(link).await.unwrap().data, b"new");
        session.write("a/b/c.txt", b"old").await.unwrap();
    }
    assert!(session.write_if("fresh", b"", "absent").await.unwrap().created);
    let large = vec![b'x'; domain::limits::FILE_BYTES_MAX];
    session.write("large", &large).await.unwrap();
    assert_eq!(session.sh("stat -c %s large").await, large.len().to_string());
    assert_eq!(code(session.write("large", &[large, vec![0]].concat()).await), "file_too_large");
}

#[tokio::test]
async fn a_read_gives_lines_or_entries_and_suggests_similar_names() {
    let (_directory, _machine, session) = fresh(&[]).await;
    session.write("src/main.rs", b"fn main() {}\n// two\n").await.unwrap();
    let lines = session.lines("src/main.rs").await.unwrap();
    assert_eq!(
        (lines.lines, lines.more, lines.kind),
        (vec!["fn main() {}".to_owned(), "// two".to_owned()], false, FileKind::Text.into())
    );
    let directory = session.lines("").await.unwrap();
    assert_eq!(
        (directory.lines, directory.kind),
        (vec![".git/".to_owned(), "src/".to_owned()], FileKind::Directory.into())
    );
    let status = session.lines("src/Main.r").await.unwrap_err();
    assert!(status.message().contains("src/main.rs"), "{status:?}");
    // A component in the middle, and a name that only looks the same.
    let status = session.lines("SRC/main.rs").await.unwrap_err();
    assert!(status.message().ends_with("did you mean src/main.rs?"), "{status:?}");
    session.sh("touch $'Shot at 9.41\\u202fAM.txt' $'re\\u0301sume\\u0301.md'").await;
    for (typed, name) in [
        ("Shot at 9.41 AM.txt", "Shot at 9.41\u{202f}AM.txt"),
        ("r\u{e9}sum\u{e9}.md", "re\u{301}sume\u{301}.md"),
    ] {
        let status = session.lines(typed).await.unwrap_err();
        assert!(status.message().ends_with(&format!("did you mean {name}?")), "{status:?}");
    }
    session.sh("rm Shot* re*").await;
    // Nothing expands a tilde, and nobody wants a directory of that name.
    assert_eq!(code(session.write("~/notes.txt", b"x").await), "path_outside_workspace");
    assert_eq!(session.sh("ls").await, "src");
    assert_eq!(session.sh("echo from tmp > /tmp/note").await, "");
    assert_eq!(session.lines("/tmp/note").await.unwrap().lines, ["from tmp"]);
    assert_eq!(code(session.write("/tmp/note", b"").await), "path_outside_workspace");
}

#[tokio::test]
async fn no_path_leads_outside() {
    let (_directory, _machine, session) = fresh(&[]).await;
    session.sh("ln -s /etc etc; ln -s /etc/passwd abs; ln -s ../../etc/passwd rel; ln -s /proc/self/root/etc/passwd magic; \
                ln -s loop2 loop1; ln -s loop1 loop2; mkdir d; ln -s .. d/up; ln -s /proc/1/environ environ").await;
    for (path, expected) in [
        ("../etc/passwd", "path_outside_workspace"),
        ("/etc/passwd", "path_outside_workspace"),
        ("/workspace/../etc/passwd", "path_outside_workspace"),
        ("d/up/../../etc/passwd", "path_outside_workspace"),
        ("etc/passwd", "path_outside_workspace"),
        ("abs", "path_outside_workspace"),
        ("rel", "path_outside_workspace"),
        ("magic", "path_outside_workspace"),
        ("environ", "path_outside_workspace"),
        ("/proc/self/environ", "path_outside_workspace"),
        ("/proc/self/fd/3", "path_outside_workspace"),
        ("/dev/zero", "path_outside_workspace"),
        ("loop1", "path_invalid"),
        (&"x/".repeat(3_000), "path_invalid"),
    ] {
        assert_eq!(code(session.read(path).await), expected, "read {path}");
        assert_eq!(code(session.lines(path).await), expected, "lines {path}");
    }
    for path in ["../x", "/etc/x", "etc/x", "rel", "abs", "magic", "/run/sbx/out/x"] {
        assert_eq!(code(session.write(path, b"x").await), "path_outside_workspace", "write {path}");
    }
    assert_eq!(code(glob(&session, "*", "etc").await), "path_outside_workspace");
}

#[tokio::test]
async fn odd_files_are_refused_at_once() {
    let (_directory, _machine, session) = fresh(&[]).await;
    session.sh(r"mkfifo fifo; ln -s fifo to_fifo; truncate -s 2G sparse; printf 'a\0b' > binary; mkdir dir; \
                 python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(chr(115))' 2>/dev/null || \
                 perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0); bind(S, sockaddr_un(q(s)))'; test -S s; \
                 echo secret > closed; chmod 000 closed").await;
    for (path, read, lines) in [
        ("fifo", "file_not_regular", "file_not_regular"),
        ("to_fifo", "file_not_regular", "file_not_regular"),
        ("s", "file_not_regular", "file_not_regular"),
        ("dir", "file_is_directory", ""),
        ("binary", "", "file_is_binary"),
        ("sparse", "", "file_is_binary"),
        ("closed", "file_not_permitted", "file_not_permitted"),
        ("none", "file_not_found", "file_not_found"),
    ] {
        let check =
            |expected: &str, got: Option<String>| assert_eq!(got.unwrap_or_default(), expected, "{path}");
        check(read, session.read(path).await.err().and_then(|status| rpc::status::code_of(&status)));
        check(lines, session.lines(path).await.err().and_then(|status| rpc::status::code_of(&status)));
    }
    let sparse = session.read("sparse").await.unwrap();
    assert_eq!((sparse.data.len(), sparse.size_bytes, sparse.sha256.as_str()), (1 << 20, 2 << 30, ""));
    assert!(grep(&session, "nothing", "").await.unwrap().truncated, "a file was too large to be searched");
}

#[tokio::test]
async fn listing_glob_and_search_respect_gitignore() {
    let (_directory, _machine, session) = fresh(&[]).await;
    session.sh("printf 'target/\n*.log\n' > .gitignore; mkdir -p src target; ln -s .. src/up; \
                echo 'let needle = 1;' > src/old.rs; touch -d '2001-01-01' src/old.rs; \
                printf 'a\r\nneedle two\r\n' > src/new.rs; echo needle > target/x.rs; echo needle > a.log; echo needle > n.txt").await;
    assert_eq!(
        list(&session, &[]).await,
        [".gitignore", "n.txt", "src", "src/new.rs", "src/old.rs", "src/up"]
    );
    assert_eq!(list(&session, &["src/"]).await, [".gitignore", "n.txt"]);
    assert_eq!(glob(&session, "*.rs", "").await.unwrap(), ["src/new.rs", "src/old.rs"]);
    assert_eq!(glob(&session, "**/old.*", "/workspace/src").await.unwrap(), ["src/old.rs"]);
    assert_eq!(glob(&session, "src/*.md", "").await.unwrap(), [""; 0]);
    assert_eq!(code(glob(&session, "[", "").await), "pattern_invalid");
    let found = grep(&session, "ne+dle", "*.rs").await.unwrap();
    let lines: Vec<_> = found.matches.iter().map(|m| (m.path.as_str(), m.line, m.text.as_str())).collect();
    assert_eq!(lines, [("src/new.rs", 2, "needle two"), ("src/old.rs", 1, "let needle = 1;")]);
    assert!(!found.truncated);
    assert_eq!(code(grep(&session, "(", "").await), "pattern_invalid");
    // Patterns that ruin backtracking engines.
    session.sh("head -c 200000 /dev/zero | tr '\\0' a > long").await;
    assert!(grep(&session, "(a*)*$b", "").await.unwrap().matches.is_empty());
}

#[tokio::test]
async fn a_path_that_is_swapped_all_the_time_never_leads_out() {
    let (_directory, _machine, session) = fresh(&[]).await;
    session.sh("mkdir real; echo inside > real/passwd; ln -s real swap").await;
    // One process swaps hundreds of times while a loop of a shell starts one that swaps once.
    let swap =
        "perl -e 'while (1) { for (q(/etc), q(real)) { symlink($_, q(next)); rename(q(next), q(swap)) } }'";
    session.start(session.command("swap", swap)).await.unwrap();
    for _ in 0..300 {
        if let Ok(read) = session.read("swap/passwd").await {
            assert_eq!(read.data, b"inside\n");
        }
        drop(session.write("swap/written", b"x").await);
    }
    assert_eq!(session.sh("ls /etc/written 2>/dev/null || echo none").await, "none");
}

/// A walk enters directories by name, and here each name is a directory and a link that leads out in turns.
#[tokio::test]
async fn a_directory_that_is_swapped_all_the_time_is_never_searched_outside() {
    let (_directory, _machine, session) = fresh(&[]).await;
    session.sh("mkdir real; echo needle inside > real/passwd; ln -s /home/agent link").await;
    session.sh("echo needle outside > /home/agent/passwd; echo needle > /home/agent/secret").await;
    let swap = "perl -e 'while (1) { rename(q(real), q(d)); rename(q(link), q(real)); rename(q(real), q(link)); rename(q(d), q(real)) }'";
    session.start(session.command("swap", swap)).await.unwrap();
    for _ in 0..300 {
        for found in grep(&session, "needle", "").await.unwrap().matches {
            assert_eq!(found.text, "needle inside", "{found:?}");
        }
        for path in glob(&session, "**/*", "").await.unwrap() {
            assert!(!path.ends_with("secret"), "{path}");
        }
        assert!(!list(&session, &[]).await.iter().any(|path| path.ends_with("secret")));
    }
    session.kill_all().await.unwrap();
}
