//! Objects of Git LFS in mirrors: a later session transfers only those that the mirror lacks, and gets none that the server does not give to it.

use super::{HOST, NAMES_OF_MAIN, TOKEN, Testbed, URL, other_project, session, session_at, store};
use e2e::{api::Api, turn::output};
use serde_json::json;
use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};
use testkit::git_server::rules::GitFault;

/// The repository on the server.
const AT: &str = "acme/app.git";
/// The path of a batch.
const BATCH: &str = "app.git/info/lfs/objects/batch";
const ONE: &str = "the first content, which is no pointer\n";
const TWO: &str = "the second content, which is no pointer\n";
/// The requests of a session that has nothing to transfer: a batch.
const ASKED_ONCE: usize = 1;
/// The requests for an object that comes from the server: the broker asks where it is, and reads it.
const TRANSFER: usize = 2;

/// Sessions of a tenant that transfer at a time.
const TURNS: usize = 6;

/// What happens to the file of an object.
type Damage = fn(&Path);

impl Testbed {
    /// What a new session prints, and how often it asked the server about Git LFS.
    async fn print(&self, api: &Api, command: &str) -> (String, usize) {
        let (session, requests) = (session(api, URL).await, self.lfs_requests().len());
        let printed = output(api, &session, command).await.unwrap();
        (printed, self.lfs_requests().len() - requests)
    }

    /// The files of the objects in the tenant's mirrors. Waits until earlier generations are removed.
    async fn objects(&self) -> Vec<PathBuf> {
        testkit::eventually("one generation stays", async || self.generations().len() == 1).await;
        let entries = fs::read_dir(self.generations()[0].join("lfs")).unwrap();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }
}

fn names(files: &[PathBuf]) -> Vec<&OsStr> {
    files.iter().map(|file| file.file_name().unwrap()).collect()
}

/// The name of the object of a pointer.
fn oid(pointer: &str) -> &str {
    pointer.split("sha256:").nth(1).unwrap().split('\n').next().unwrap()
}

#[tokio::test]
async fn a_later_session_transfers_only_the_objects_that_the_mirror_lacks() {
    let testbed = Testbed::start().await;
    let api = &testbed.stack.api;
    let [one, two] = [ONE, TWO].map(|content| testbed.server.store_lfs(AT, content.as_bytes()));
    testbed.commit_lfs(&[("one.bin", &one), ("again.bin", &one)]);
    let look = "cat one.bin; cmp one.bin again.bin && git status --porcelain; echo changed > one.bin";
    assert_eq!(testbed.print(api, look).await, (ONE.to_owned(), ASKED_ONCE + TRANSFER));
    let kept = testbed.objects().await;
    let file = fs::metadata(&kept[0]).unwrap();
    assert!(kept.len() == 1 && kept[0].ends_with(oid(&one)));
    assert!(file.nlink() == 1 && file.mode() & 0o777 == 0o444, "no session shares a file with the mirror");
    // The first session has changed its own file, and no other one.
    assert_eq!(testbed.print(api, look).await, (ONE.to_owned(), ASKED_ONCE));
    assert_eq!(testbed.objects().await, kept, "nothing was written");

    // Another object, and another commit.
    testbed.commit_lfs(&[("two.bin", &two)]);
    let look = "cat one.bin two.bin; git fsck 2>&1; git status --porcelain";
    let both = format!("{ONE}{TWO}");
    assert_eq!(testbed.print(api, look).await, (both.clone(), ASKED_ONCE + TRANSFER));
    assert_eq!(testbed.print(api, look).await, (both.clone(), ASKED_ONCE));
    // The next generation of the packs has the objects of the one before.
    testbed.commit("newer\n");
    testbed.serve(&["--all"]);
    assert_eq!(testbed.print(api, look).await, (both.clone(), ASKED_ONCE));
    assert_eq!(testbed.objects().await.len(), 2);

    // Projects and tenants share nothing.
    let project = other_project(api, "other").await;
    assert_eq!(testbed.print(&project, look).await, (both.clone(), ASKED_ONCE + 2 * TRANSFER));
    let tenant = testbed.stack.other_tenant().await;
    store(&tenant, &json!({format!("https://{HOST}/acme/"): "TOKEN"})).await;
    tenant.set_secret("TOKEN", TOKEN).await;
    assert_eq!(testbed.print(&tenant, look).await, (both, ASKED_ONCE + 2 * TRANSFER));
}

#[tokio::test]
async fn no_session_gets_an_object_of_a_mirror_that_the_server_does_not_give_to_it() {
    let testbed = Testbed::start().await;
    let api = &testbed.stack.api;
    let [one, two] = [ONE, TWO].map(|content| testbed.server.store_lfs(AT, content.as_bytes()));
    testbed.commit_lfs(&[("one.bin", &one), ("two.bin", &two)]);
    let both = format!("{ONE}{TWO}");
    let look = "cat one.bin two.bin";
    assert_eq!(testbed.print(api, look).await, (both.clone(), ASKED_ONCE + 2 * TRANSFER));
    let kept = testbed.objects().await;

    // The server takes one back.
    testbed.server.forget_lfs(AT, oid(&one));
    // In two halves, so that the command does not find itself.
    let search =
        format!("{look}; grep -ra 'the first con''tent' /workspace /run /tmp 2>/dev/null; echo searched");
    assert_eq!(testbed.print(api, &search).await, (format!("{one}{TWO}searched\n"), ASKED_ONCE));
    assert!(testbed.told().contains("because the server does not have their contents: one.bin."));

    // It has no Git LFS any more, refuses the secret, or does not answer as such a server.
    testbed.server.fail(BATCH, GitFault::Status(404));
    assert_eq!(testbed.print(api, look).await, (format!("{one}{two}"), ASKED_ONCE));
    for (fault, code) in [
        (GitFault::Status(401), "repository_unauthorized"),
        (GitFault::Status(500), "repository_unreachable"),
        (GitFault::Page, "repository_unreachable"),
    ] {
        testbed.server.fail(BATCH, fault);
        let refused = testbed.session().await;
        let error = output(api, &refused, look).await.unwrap_err();
        assert!(error.contains(code), "{code}: {error}");
        assert!(!testbed.stack.workspace(&refused).join("tree").exists(), "{code}");
    }
    testbed.server.heal(BATCH);

    // A pointer that names another size is not the object of the mirror.
    let longer = two.replace(&format!("size {}", TWO.len()), &format!("size {}", TWO.len() + 1));
    testbed.commit_lfs(&[("two.bin", &longer)]);
    let refused = testbed.session().await;
    let error = output(api, &refused, look).await.unwrap_err();
    assert!(error.contains("lfs_object_invalid"), "{error}");
    testbed.commit_lfs(&[("two.bin", &two)]);

    // What it gives again comes from the mirror, which was never changed.
    testbed.server.store_lfs(AT, ONE.as_bytes());
    assert_eq!(testbed.print(api, look).await, (both, ASKED_ONCE));
    assert_eq!(names(&testbed.objects().await), names(&kept));
}

#[tokio::test]
async fn a_damaged_object_of_a_mirror_is_transferred_again() {
    let testbed = Testbed::start().await;
    let api = &testbed.stack.api;
    let [one, two] = [ONE, TWO].map(|content| testbed.server.store_lfs(AT, content.as_bytes()));
    testbed.commit_lfs(&[("one.bin", &one), ("two.bin", &two)]);
    let (look, both) = ("cat one.bin two.bin", format!("{ONE}{TWO}"));
    assert_eq!(testbed.print(api, look).await, (both.clone(), ASKED_ONCE + 2 * TRANSFER));
    let damages: [(&str, Damage); 4] = [
        ("other bytes", |file| fs::write(file, TWO.replace("second", "SECOND")).unwrap()),
        ("fewer bytes", |file| fs::write(file, "the").unwrap()),
        ("more bytes", |file| fs::write(file, format!("{TWO}{TWO}")).unwrap()),
        ("no file", |file| fs::remove_file(file).unwrap()),
    ];
    for (name, damage) in damages {
        let kept = testbed.objects().await;
        let file = kept.iter().find(|file| file.ends_with(oid(&two))).unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
        damage(file);
        assert_eq!(testbed.print(api, look).await, (both.clone(), ASKED_ONCE + TRANSFER), "{name}");
        let mended = testbed.objects().await;
        assert_eq!(mended.len(), 2, "{name}");
        let file = mended.iter().find(|file| file.ends_with(oid(&two))).unwrap();
        assert_eq!(fs::read_to_string(file).unwrap(), TWO, "{name}");
        assert_eq!(testbed.print(api, look).await, (both.clone(), ASKED_ONCE), "{name}");
    }
    // A restart keeps the objects.
    let mut testbed = testbed;
    testbed.stack.stop_sandbox().await;
    testbed.stack.start_sandbox().await;
    assert_eq!(testbed.print(&testbed.stack.api, look).await, (both, ASKED_ONCE));
}

/// Gives the repository one file of Git LFS, whose transfer the server holds. Returns the target of that request.
fn hold_one(testbed: &Testbed) -> String {
    let one = testbed.server.store_lfs(AT, ONE.as_bytes());
    testbed.commit_lfs(&[("one.bin", &one)]);
    let held = format!("objects/{}", oid(&one));
    testbed.server.fail(&held, GitFault::Hold(3));
    held
}

#[tokio::test]
async fn sessions_that_open_while_one_transfers_an_object_take_it_from_that_one() {
    let testbed = Testbed::start().await;
    let held = hold_one(&testbed);
    let mut opened = vec![];
    for (number, revision) in NAMES_OF_MAIN.into_iter().enumerate() {
        let api = testbed.stack.api.clone();
        let session = session_at(&api, revision).await;
        opened.push(tokio::spawn(async move { output(&api, &session, "cat one.bin").await }));
        if number == 0 {
            testbed.server.wait_for_request(&held).await;
        }
    }
    let asked = 3 * ASKED_ONCE + TRANSFER;
    testkit::eventually("all wait for the first one", async || testbed.lfs_requests().len() == asked).await;
    testbed.server.heal(&held);
    testbed.server.release();
    for opened in opened {
        assert_eq!(opened.await.unwrap().unwrap(), ONE);
    }
    assert_eq!(testbed.lfs_requests().len(), asked);
}

#[tokio::test]
async fn sessions_that_wait_for_a_turn_to_transfer_open_although_the_first_one_has_ended() {
    let testbed = Testbed::start().await;
    let held = hold_one(&testbed);
    let mut opened = vec![];
    for number in 0..TURNS + 2 {
        // By different names, so that none waits for what another one reads of the commit.
        let name = format!("of-{number}");
        testbed.serve(&[&format!("HEAD:refs/heads/{name}")]);
        let api = testbed.stack.api.clone();
        let session = session_at(&api, &name).await;
        let cloned = testbed.stack.workspace(&session).join("build/one.bin");
        opened.push(tokio::spawn(async move { output(&api, &session, "cat one.bin").await }));
        if number == 0 {
            testbed.server.wait_for_request(&held).await;
        }
        testkit::eventually("the session has cloned", async || cloned.exists()).await;
    }
    let asked = TURNS * ASKED_ONCE + TRANSFER;
    testkit::eventually("all turns are taken", async || testbed.lfs_requests().len() == asked).await;
    testbed.server.heal(&held);
    testbed.server.release();
    for opened in opened {
        assert_eq!(opened.await.unwrap().unwrap(), ONE);
    }
}

#[tokio::test]
async fn a_session_begins_with_its_own_objects_while_another_one_still_waits_for_others() {
    let testbed = Testbed::start().await;
    let [one, two] = [ONE, TWO].map(|content| testbed.server.store_lfs(AT, content.as_bytes()));
    testbed.commit_lfs(&[("one.bin", &one), ("two.bin", &two)]);
    let held = format!("objects/{}", oid(&two));
    testbed.server.fail(&held, GitFault::Hold(3));
    let (api, first) = (testbed.stack.api.clone(), testbed.session().await);
    let opened = tokio::spawn(async move { output(&api, &first, "cat one.bin two.bin").await });
    testbed.server.wait_for_request(&held).await;

    testbed.app.git(&["rm", "--quiet", "two.bin"]);
    testbed.commit_lfs(&[]);
    let second = session_at(&testbed.stack.api, "main").await;
    assert_eq!(output(&testbed.stack.api, &second, "cat *.bin").await.unwrap(), ONE);
    assert!(!opened.is_finished(), "the first session waits for its second object");
    let read = format!("objects/{}", oid(&one));
    let transfers = testbed.lfs_requests().into_iter().filter(|target| target.ends_with(&read));
    assert_eq!(transfers.count(), 1, "the second session has the object of the first one");

    testbed.server.heal(&held);
    testbed.server.release();
    assert_eq!(opened.await.unwrap().unwrap(), format!("{ONE}{TWO}"));
    assert_eq!(testbed.objects().await.len(), 2);
}
