#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use proptest::prelude::*;
use std::{
    fs::{self, File, FileTimes, Permissions},
    os::unix::fs::PermissionsExt as _,
    process::Command,
};

/// The fingerprint, once the newest change is old enough.
fn settled(tree: &Path) -> Fingerprint {
    loop {
        if let Some(look) = TreeLook::of(tree).unwrap().filter(|look| look.is_settled) {
            return look.fingerprint;
        }
    }
}

fn git(tree: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git").current_dir(tree).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the name of the tree that git sees. Each call makes a new index outside of the files, so an old index cannot hide a change.
fn seen_by_git(tree: &Path) -> String {
    let repository = tempfile::tempdir().unwrap();
    let [git_directory, work_tree] = [("--git-dir", repository.path()), ("--work-tree", tree)]
        .map(|(name, path)| format!("{name}={}", path.display()));
    git(tree, &[&git_directory, "init", "--quiet"]);
    git(tree, &[&git_directory, &work_tree, "add", "--all"]);
    git(tree, &[&git_directory, &work_tree, "write-tree"])
}

/// A change of one of the files `f0` to `f3`, or of a directory.
#[derive(Debug, Clone)]
enum Change {
    Write(u8, Vec<u8>),
    /// Writes other content of the same length, and sets the time of modification back.
    Forge(u8),
    Append(u8),
    Remove(u8),
    Rename(u8, u8),
    MakeExecutable(u8),
    Link(u8, u8),
    MakeDirectory(u8),
    Nothing,
}

impl Change {
    /// Changes the tree. A change that is not possible changes nothing.
    fn apply(&self, tree: &Path) {
        let path = |number: &u8| tree.join(format!("f{}", number % 4));
        let append = |number: &u8| -> io::Result<()> {
            let mut file = File::options().append(true).open(path(number))?;
            io::Write::write_all(&mut file, b"x")
        };
        let forge = |number: &u8| -> io::Result<()> {
            let modified = fs::metadata(path(number))?.modified()?;
            let content: Vec<u8> = fs::read(path(number))?.iter().map(|byte| byte ^ 1).collect();
            fs::write(path(number), content)?;
            File::options().write(true).open(path(number))?.set_times(FileTimes::new().set_modified(modified))
        };
        let result = match self {
            Self::Write(number, content) => fs::write(path(number), content),
            Self::Forge(number) => forge(number),
            Self::Append(number) => append(number),
            Self::Remove(number) => fs::remove_file(path(number)),
            Self::Rename(from, to) => fs::rename(path(from), path(to)),
            Self::MakeExecutable(number) => fs::set_permissions(path(number), Permissions::from_mode(0o755)),
            Self::Link(number, to) => std::os::unix::fs::symlink(format!("f{to}"), path(number)),
            Self::MakeDirectory(number) => fs::create_dir(tree.join(format!("d{number}")))
                .and_then(|()| fs::write(tree.join(format!("d{number}/f")), "in it")),
            Self::Nothing => Ok(()),
        };
        drop(result);
    }
}

fn change() -> impl Strategy<Value = Change> {
    let content = proptest::collection::vec(any::<u8>(), 0..4);
    prop_oneof![
        (any::<u8>(), content).prop_map(|(number, content)| Change::Write(number, content)),
        any::<u8>().prop_map(Change::Forge),
        any::<u8>().prop_map(Change::Append),
        any::<u8>().prop_map(Change::Remove),
        (any::<u8>(), any::<u8>()).prop_map(|(from, to)| Change::Rename(from, to)),
        any::<u8>().prop_map(Change::MakeExecutable),
        (any::<u8>(), 0..4_u8).prop_map(|(number, to)| Change::Link(number, to)),
        (0..4_u8).prop_map(Change::MakeDirectory),
        Just(Change::Nothing),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn what_git_sees_changes_only_with_the_fingerprint(changes in proptest::collection::vec(change(), 1..6)) {
        let tree = tempfile::tempdir().unwrap();
        let tree = tree.path();
        for number in 0..3 {
            fs::write(tree.join(format!("f{number}")), format!("content {number}")).unwrap();
        }
        let (before, seen_before) = (settled(tree), seen_by_git(tree));
        changes.iter().for_each(|change| change.apply(tree));
        let (after, seen_after) = (settled(tree), seen_by_git(tree));
        prop_assert!(before != after || seen_before == seen_after);
    }
}

#[test]
fn a_change_that_hides_itself_is_seen() {
    let tree = tempfile::tempdir().unwrap();
    fs::write(tree.path().join("f0"), "content").unwrap();
    let before = settled(tree.path());
    Change::Forge(0).apply(tree.path());
    assert_ne!(settled(tree.path()), before);
}

#[test]
fn a_change_is_settled_when_no_later_one_can_have_its_time() {
    for (newest_ms, begun_ms, write_ms, want) in [
        (10_001, 10_001, 0, false),
        (10_001, 10_002, 0, true),
        (10_001, 10_010, 20, false),
        (10_001, 10_030, 20, true),
        (10_000, 11_900, 0, false),
        (10_000, 12_100, 20, true),
        (10_001, 9_000, 0, false),
    ] {
        let [newest, begun, write_time] = [newest_ms, begun_ms, write_ms].map(Duration::from_millis);
        assert_eq!(is_settled(newest, begun, write_time), want, "{newest_ms} {begun_ms} {write_ms}");
    }
}

#[test]
fn a_tree_that_has_just_changed_gets_its_fingerprint_after_a_tick() {
    let tree = tempfile::tempdir().unwrap();
    for text in ["one", "two", "three"] {
        fs::write(tree.path().join("f"), text).unwrap();
        let still = Fingerprint::of_still(tree.path()).unwrap();
        let at_once = TreeLook::of(tree.path()).unwrap().map(|look| look.fingerprint);
        assert_eq!((still, at_once), (Some(settled(tree.path())), still), "{text}");
    }
}

#[test]
fn a_tree_without_a_change_keeps_its_fingerprint() {
    let tree = tempfile::tempdir().unwrap();
    fs::create_dir(tree.path().join("d")).unwrap();
    fs::write(tree.path().join("d/f"), "text").unwrap();
    let first = settled(tree.path());
    assert_eq!(fs::read(tree.path().join("d/f")).unwrap(), b"text");
    assert_eq!(settled(tree.path()), first);
}

#[test]
fn a_tree_that_changes_right_now_or_is_too_deep_has_no_fingerprint() {
    let tree = tempfile::tempdir().unwrap();
    fs::write(tree.path().join("f"), "text").unwrap();
    // A busy machine may need longer than it takes the change to settle, but not each time.
    let is_refused = |_| {
        fs::write(tree.path().join("f"), "text").unwrap();
        TreeLook::of(tree.path()).unwrap().is_none_or(|look| !look.is_settled)
    };
    assert!((0..1_000).any(is_refused));
    let mut directory = rustix::fs::open(tree.path(), DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..=walk::DEPTH_MAX {
        rustix::fs::mkdirat(&directory, "d", Mode::RWXU).unwrap();
        directory = rustix::fs::openat(&directory, "d", DIRECTORY, Mode::empty()).unwrap();
    }
    let later = tempfile::tempdir().unwrap();
    settled(later.path());
    assert_eq!(TreeLook::of(tree.path()).unwrap(), None);
}
