//! Bundles of real temporary repositories.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use crate::repository::start::Start;
use std::path::Path;

/// A bundle with the commit that it begins with.
#[derive(Debug)]
struct Made {
    bundle: Bundle,
    commit: String,
    notes: Vec<String>,
}

fn make(dir: &Path, start: &Start) -> Result<Made> {
    make_part(dir, start, None)
}

fn make_part(dir: &Path, start: &Start, depth: Option<u32>) -> Result<Made> {
    let commit = StartCommit::find(dir, start)?;
    let history = History::find(&commit, depth.and_then(NonZeroU32::new))?;
    let bundle = super::make(&commit, &history)?;
    Ok(Made { bundle, commit: commit.id().to_owned(), notes: commit.left.notes() })
}

struct Repository {
    dir: tempfile::TempDir,
    git: Git,
}

impl Repository {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let identity = ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"];
        let git = identity.into_iter().fold(Git::at(dir.path()), |git, name| git.with_text(name, "t"));
        git.run(&["init", "--quiet", "--initial-branch=trunk"]).unwrap();
        Self { dir, git }
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.dir.path().join(name), content).unwrap();
    }

    fn commit(&self, name: &str, content: &str) -> String {
        self.write(name, content);
        self.git.run(&["add", "."]).unwrap();
        self.git.run(&["commit", "--quiet", "-m", name]).unwrap();
        self.git.run(&["rev-parse", "HEAD"]).unwrap()
    }

    /// Everything of the user's that must not change.
    fn state(&self) -> (String, Vec<u8>, usize) {
        let objects = walk(&self.dir.path().join(".git/objects"));
        let refs = self.git.run(&["for-each-ref"]).unwrap();
        (refs, fs::read(self.dir.path().join(".git/index")).unwrap(), objects)
    }
}

fn walk(dir: &Path) -> usize {
    let entries = fs::read_dir(dir).unwrap().flatten();
    entries.map(|entry| if entry.path().is_dir() { walk(&entry.path()) } else { 1 }).sum()
}

/// Clones the bundle and returns its branch and files.
fn unpack(made: &Made) -> (String, Vec<(String, String)>) {
    let dir = tempfile::tempdir().unwrap();
    let git = Git::at(dir.path());
    git.run(&["clone", "--quiet", made.bundle.file.to_str().unwrap(), "clone"]).unwrap();
    let clone = Git::at(&dir.path().join("clone"));
    assert_eq!(clone.run(&["rev-parse", "HEAD"]).unwrap(), made.commit);
    let names = clone.run(&["ls-files"]).unwrap();
    let files = names
        .lines()
        .map(|name| (name.to_owned(), fs::read_to_string(dir.path().join("clone").join(name)).unwrap()));
    let files = files.collect();
    (clone.run(&["symbolic-ref", "--short", "HEAD"]).unwrap(), files)
}

fn file(name: &str, content: &str) -> (String, String) {
    (name.to_owned(), content.to_owned())
}

#[test]
fn a_revision_is_sent_with_its_history_and_without_changes() {
    let repository = Repository::new();
    let first = repository.commit("a", "1");
    repository.commit("b", "2");
    repository.write("a", "dirty");
    let head = make(repository.dir.path(), &Start::Head).unwrap();
    assert_eq!(unpack(&head), ("trunk".to_owned(), vec![file("a", "1"), file("b", "2")]));
    let base = make(repository.dir.path(), &Start::Revision(first.clone())).unwrap();
    assert_eq!((unpack(&base).1, base.commit), (vec![file("a", "1")], first));
    let again = make(repository.dir.path(), &Start::Head).unwrap();
    assert_eq!(
        (again.commit, again.notes),
        (head.commit, vec!["1 uncommitted file stays here; --dirty sends it".to_owned()])
    );
}

#[test]
fn uncommitted_files_go_along_and_the_repository_is_untouched() {
    let repository = Repository::new();
    repository.commit("a", "1");
    repository.commit(".gitignore", "*.log\n");
    repository.write("a", "changed");
    repository.write("new file", "2");
    repository.write("x.log", "ignored");
    let before = repository.state();
    let bundle = make(repository.dir.path(), &Start::Dirty).unwrap();
    assert_eq!(repository.state(), before);
    assert_eq!(
        unpack(&bundle).1,
        [file(".gitignore", "*.log\n"), file("a", "changed"), file("new file", "2")]
    );

    // Checkout needs the temporary commit as a base: it is kept outside of the repository.
    let dirty_bundle = dirty_file(&bundle.commit).unwrap();
    repository.git.run(&["bundle", "verify", "--quiet", dirty_bundle.to_str().unwrap()]).unwrap();
    fs::remove_file(dirty_bundle).unwrap();
}

#[test]
fn a_clean_repository_with_dirty_is_its_head() {
    let repository = Repository::new();
    let head = repository.commit("a", "1");
    assert_eq!(make(repository.dir.path(), &Start::Dirty).unwrap().commit, head);
}

#[test]
fn what_cannot_be_sent_is_said() {
    let nothing = tempfile::tempdir().unwrap();
    let error = make(nothing.path(), &Start::Dirty).unwrap_err();
    assert!(error.to_string().starts_with("there is no git repository at"), "{error}");
    assert_eq!(crate::exit::code(&error), "repository_missing");
    let empty = Repository::new();
    let error = make(empty.dir.path(), &Start::Head).unwrap_err();
    assert_eq!(format!("{error:#}"), "the repository has no commit yet; commit something, or use --dirty");
    empty.commit("a", "1");
    let error = make(empty.dir.path(), &Start::Revision("nope".to_owned())).unwrap_err();
    assert!(format!("{error:#}").ends_with("name another one with --base"), "{error:#}");
    assert_eq!(crate::exit::code(&error), "commit_missing");
}

#[test]
fn uncommitted_files_are_those_that_git_would_commit() {
    let repository = Repository::new();
    let crlf: String = (0..30).map(|line| format!("{line}\r\n")).collect();
    repository.commit("crlf.txt", &crlf);
    let elsewhere = tempfile::tempdir().unwrap();
    let ignores = elsewhere.path().join("team-ignore");
    fs::write(&ignores, "secrets.env\n").unwrap();
    repository.git.run(&["config", "core.excludesFile", ignores.to_str().unwrap()]).unwrap();
    repository.git.run(&["config", "core.autocrlf", "true"]).unwrap();
    repository.git.run(&["config", "core.fileMode", "false"]).unwrap();
    repository.git.run(&["add", "--renormalize", "."]).unwrap();
    repository.git.run(&["commit", "--quiet", "-m", "normal"]).unwrap();
    repository.write("secrets.env", "TOKEN=abc");
    repository.write("note.txt", "n");
    repository.write("crlf.txt", &crlf.replace("7\r", "seven\r"));
    fs::set_permissions(
        repository.dir.path().join("note.txt"),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let made = make(repository.dir.path(), &Start::Dirty).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let git = Git::at(dir.path());
    git.run(&["clone", "--quiet", made.bundle.file.to_str().unwrap(), "."]).unwrap();
    let numbers = git.run(&["diff", "--numstat", "HEAD^", "HEAD"]).unwrap();
    assert_eq!(numbers, "3\t3\tcrlf.txt\n1\t0\tnote.txt");
    assert!(
        git.run(&["ls-tree", "HEAD", "note.txt"]).unwrap().starts_with("100644"),
        "modes are not looked at"
    );
    fs::remove_file(dirty_file(&made.commit).unwrap()).unwrap();
}

#[test]
fn a_program_of_the_repository_does_not_run() {
    let repository = Repository::new();
    repository.commit("a", "1");
    let hooks = repository.dir.path().join(".git/hooks");
    fs::create_dir_all(&hooks).unwrap();
    let mark = repository.dir.path().join(".git/ran");
    for name in ["post-index-change", "reference-transaction"] {
        let hook = hooks.join(name);
        fs::write(&hook, format!("#!/bin/sh\ntouch {}\n", mark.display())).unwrap();
        fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    repository.write("a", "2");
    let made = make(repository.dir.path(), &Start::Dirty).unwrap();
    assert!(!mark.exists());
    fs::remove_file(dirty_file(&made.commit).unwrap()).unwrap();
}

#[test]
fn repositories_inside_stay_and_are_named() {
    let repository = Repository::new();
    repository.commit("a", "1");
    repository.write("new", "2");
    for (name, commits) in [("empty", false), ("full", true)] {
        let inner = Git::at(&repository.dir.path().join(name));
        fs::create_dir(repository.dir.path().join(name)).unwrap();
        inner.run(&["init", "--quiet"]).unwrap();
        fs::write(repository.dir.path().join(name).join("x"), "x").unwrap();
        if commits {
            inner.run(&["add", "."]).unwrap();
            inner.run(&["-c", "user.name=t", "-c", "user.email=t", "commit", "--quiet", "-m", "x"]).unwrap();
        }
    }
    let made = make(repository.dir.path(), &Start::Dirty).unwrap();
    assert_eq!(unpack(&made).1, [file("a", "1"), file("new", "2")]);
    assert_eq!(made.notes, ["repositories inside of this one stay here: empty/, full/"]);
    fs::remove_file(dirty_file(&made.commit).unwrap()).unwrap();
}

/// The refs that say where the history of a bundle ends.
fn ends(made: &Made) -> Vec<String> {
    let git = Git::at(made.bundle.file.parent().unwrap());
    let heads = git.run(&["bundle", "list-heads", made.bundle.file.to_str().unwrap()]).unwrap();
    heads
        .lines()
        .filter_map(|line| line.split_once(" refs/flotilla/shallow/"))
        .map(|(id, _)| id.to_owned())
        .collect()
}

#[test]
fn a_part_of_the_history_says_where_it_ends() {
    let repository = Repository::new();
    let commits: Vec<String> = (0..4).map(|number| repository.commit("a", &number.to_string())).collect();
    let part = make_part(repository.dir.path(), &Start::Head, Some(2)).unwrap();
    assert_eq!(ends(&part), [commits[2].clone()]);
    let whole = make_part(repository.dir.path(), &Start::Head, Some(9)).unwrap();
    assert_eq!(ends(&whole), [""; 0], "that is all of it");
    assert_eq!(unpack(&whole).1, [file("a", "3")]);
    let objects = |made: &Made| {
        let dir = tempfile::tempdir().unwrap();
        let git = Git::at(dir.path());
        git.run(&["init", "--quiet", "--bare", "."]).unwrap();
        git.run(&["bundle", "unbundle", made.bundle.file.to_str().unwrap()]).unwrap();
        git.run(&["cat-file", "--batch-check", "--batch-all-objects"]).unwrap().lines().count()
    };
    assert_eq!((objects(&part), objects(&whole)), (6, 12));
}

#[test]
fn shallow_and_partial_clones_are_sent_as_far_as_they_go() {
    let repository = Repository::new();
    let commits: Vec<String> = (0..3).map(|number| repository.commit("a", &number.to_string())).collect();
    repository.git.run(&["config", "uploadpack.allowFilter", "true"]).unwrap();
    let source = format!("file://{}", repository.dir.path().display());
    let dir = tempfile::tempdir().unwrap();
    for (name, option, end) in
        [("shallow", "--depth=2", &commits[1]), ("partial", "--filter=blob:none", &commits[2])]
    {
        Git::at(dir.path()).run(&["clone", "--quiet", option, &source, name]).unwrap();
        let made = make(&dir.path().join(name), &Start::Head).unwrap();
        assert_eq!((made.commit.as_str(), ends(&made)), (commits[2].as_str(), vec![end.clone()]), "{name}");
    }
    fs::write(dir.path().join("shallow/a"), "dirty").unwrap();
    let made = make(&dir.path().join("shallow"), &Start::Dirty).unwrap();
    assert_eq!(ends(&made), [commits[1].clone()]);
    fs::remove_file(dirty_file(&made.commit).unwrap()).unwrap();
}
