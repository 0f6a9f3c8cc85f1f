//! Mirrors that are damaged, and clones that are killed: no session fails because of them.

use super::{Testbed, session};
use e2e::api::Api;
use e2e::turn::output;
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};
use testkit::git_server::rules::GitFault;

/// What happens to a generation.
type Damage = fn(&Path);

/// The file of the only pack with this ending.
fn pack(generation: &Path, ending: &str) -> PathBuf {
    let files = fs::read_dir(generation.join("objects/pack")).unwrap();
    let mut files = files.map(|entry| entry.unwrap().path());
    files.find(|path| path.extension().is_some_and(|it| it == ending)).unwrap()
}

/// Changes one byte in the middle of a file.
fn flip(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes).unwrap();
}

fn truncate(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
}

#[tokio::test]
async fn a_damaged_mirror_is_removed_and_the_session_clones() {
    let testbed = Testbed::start().await;
    let api = &testbed.stack.api;
    let (want, _) = testbed.look(api).await;
    let damages: [(&str, Damage); 8] = [
        ("a byte of a pack", |generation| flip(&pack(generation, "pack"))),
        ("a byte of an index", |generation| flip(&pack(generation, "idx"))),
        ("half a pack", |generation| truncate(&pack(generation, "pack"))),
        ("no index", |generation| fs::remove_file(pack(generation, "idx")).unwrap()),
        ("no pack", |generation| fs::remove_file(pack(generation, "pack")).unwrap()),
        ("a byte of the references", |generation| flip(&generation.join("packed-refs"))),
        ("another configuration", |generation| flip(&generation.join("config"))),
        ("a program", |generation| {
            let text = "[core]\n\talternateRefsCommand = touch /workspace/owned;:\n";
            fs::set_permissions(generation.join("config"), fs::Permissions::from_mode(0o600)).unwrap();
            fs::write(generation.join("config"), text).unwrap();
        }),
    ];
    for (name, damage) in damages {
        let generation = testbed.generations().pop().unwrap();
        damage(&generation);
        assert_eq!(testbed.look(api).await.0, want, "{name}");
        let kept = testbed.generations();
        assert!(kept.len() == 1 && kept != [generation], "{name}: there is another mirror: {kept:?}");
    }
    assert_eq!(testbed.look(api).await, (want, 0));
}

#[tokio::test]
async fn a_record_that_cannot_be_read_is_no_mirror() {
    let mut testbed = Testbed::start().await;
    let (want, _) = testbed.look(&testbed.stack.api).await;
    let generation = testbed.generations().pop().unwrap();
    testbed.stack.stop_sandbox().await;
    fs::write(generation.join("record.json"), "{").unwrap();
    let drafts = testbed.stack.sandbox_data().join("mirrors/drafts");
    fs::create_dir(drafts.join("half")).unwrap();
    testbed.stack.start_sandbox().await;
    assert!(!generation.exists() && !drafts.join("half").exists());
    assert_eq!(testbed.look(&testbed.stack.api).await, (want.clone(), 1));
    // A restart keeps the mirror.
    testbed.stack.stop_sandbox().await;
    testbed.stack.start_sandbox().await;
    assert_eq!(testbed.look(&testbed.stack.api).await, (want, 0));
}

/// The processes of git that clone from `path`.
fn clones(path: &str) -> Vec<i32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let processes = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_clone = |pid: &i32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        command.contains("clone --quiet") && command.contains(path) && !command.contains("bwrap")
    };
    processes.filter(is_clone).collect()
}

async fn file(api: &Api, url: &str) -> Result<String, String> {
    let session = session(api, url).await;
    output(api, &session, "cat file; git fsck 2>&1").await
}

#[tokio::test]
async fn a_clone_that_is_killed_leaves_the_mirror_as_it_was() {
    let testbed = Testbed::start().await;
    let api = testbed.stack.api.clone();
    // A name that no other test has, so that its processes are found.
    let path = format!("acme/killed-{}.git", std::process::id());
    let url = format!("https://git.example.com/{path}");
    testbed.server.push(&path, &testbed.app);
    assert_eq!(file(&api, &url).await.unwrap(), "private\n");
    let kept = testbed.generations();
    testbed.commit("newer\n");
    testbed.server.push(&path, &testbed.app);
    let fetch = format!("{path}/git-upload-pack");
    testbed.server.fail(&fetch, GitFault::Hold(40));
    let asked = testbed.server.requests().len();
    let (own, address) = (api.clone(), url.clone());
    let opening = tokio::spawn(async move { file(&own, &address).await });
    let has_asked = async || testbed.server.requests()[asked..].iter().any(|it| it.target.ends_with(&fetch));
    testkit::eventually("the session fetches", has_asked).await;
    let killed = clones(&path);
    assert!(!killed.is_empty());
    let kill = |pid| {
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL)
    };
    let results: Vec<_> = killed.into_iter().map(kill).collect();
    assert!(results.iter().any(Result::is_ok));
    // The end of one process ends those below it, which may then be gone before their turn.
    assert!(
        results.iter().all(|result| matches!(result, Ok(()) | Err(rustix::io::Errno::SRCH))),
        "{results:?}"
    );
    testbed.server.heal(&fetch);
    testbed.server.release();
    // Whatever becomes of this one, the mirror is whole, and the next session works.
    drop(opening.await.unwrap());
    assert!(testbed.generations() == kept || testbed.generations().len() == 1);
    assert_eq!(file(&api, &url).await.unwrap(), "newer\n");
    assert_eq!(testbed.generations().len(), 1);
}
