//! Bundles of real temporary repositories.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use super::*;

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
fn unpack(bundle: &Bundle) -> (String, Vec<(String, String)>) {
    let dir = tempfile::tempdir().unwrap();
    let git = Git::at(dir.path());
    git.run(&["clone", "--quiet", bundle.file.to_str().unwrap(), "clone"]).unwrap();
    let clone = Git::at(&dir.path().join("clone"));
    assert_eq!(clone.run(&["rev-parse", "HEAD"]).unwrap(), bundle.commit);
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
    let head = make(repository.dir.path(), &Start::Revision("HEAD".to_owned())).unwrap();
    assert_eq!(unpack(&head), ("trunk".to_owned(), vec![file("a", "1"), file("b", "2")]));
    let base = make(repository.dir.path(), &Start::Revision(first.clone())).unwrap();
    assert_eq!((unpack(&base).1, base.commit), (vec![file("a", "1")], first));
    let again = make(repository.dir.path(), &Start::Revision("HEAD".to_owned())).unwrap();
    assert_eq!(again.sha256, head.sha256);
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
    let error = make(empty.dir.path(), &Start::Revision("HEAD".to_owned())).unwrap_err();
    assert_eq!(format!("{error:#}"), "the repository has no commit yet; commit something, or use --dirty");
    empty.commit("a", "1");
    let error = make(empty.dir.path(), &Start::Revision("nope".to_owned())).unwrap_err();
    assert!(format!("{error:#}").ends_with("name another one with --base"), "{error:#}");
    assert_eq!(crate::exit::code(&error), "commit_missing");
}
