//! `checkout` against a fake gateway, in real repositories.

use super::{
    command, commit,
    fake::{Fake, SESSION},
    repository,
};
use crate::{
    exit::{self, Exit},
    repository::git::Git,
    terminal::output::Output,
};
use std::fs;

/// A repository, and results of a session that began with its commit: each as `checkout` gets it.
struct Results {
    ours: tempfile::TempDir,
    git: Git,
    base: String,
    theirs: tempfile::TempDir,
    agent: Git,
}

impl Results {
    fn new() -> Self {
        let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let git = repository(ours.path());
        let base = git.run(&["rev-parse", "HEAD"]).unwrap();
        Git::at(theirs.path()).run(&["clone", "--quiet", ours.path().to_str().unwrap(), "."]).unwrap();
        let agent =
            Git::at(theirs.path()).with_text("GIT_AUTHOR_NAME", "w").with_text("GIT_AUTHOR_EMAIL", "w");
        let agent = agent.with_text("GIT_COMMITTER_NAME", "w");
        let agent = agent.with_text("GIT_COMMITTER_EMAIL", domain::egress::push::AGENT_EMAIL);
        Self { ours, git, base, theirs, agent }
    }

    /// Makes a result that begins anew on the base commit, and gives it to the gateway.
    fn put(&self, fake: &Fake, content: &str) -> String {
        self.agent.run(&["reset", "--quiet", "--hard", &self.base]).unwrap();
        let result = commit(&self.agent, self.theirs.path(), "a", content);
        self.agent.run(&["bundle", "create", "--quiet", "b", "HEAD", &format!("^{}", self.base)]).unwrap();
        let bundle = fs::read(self.theirs.path().join("b")).unwrap();
        fake.0.lock().unwrap().export = (bundle, result.clone(), self.base.clone());
        result
    }

    async fn checkout(&self, fake: &Fake, words: &[&str]) -> anyhow::Result<String> {
        let output = Output::kept(false);
        let repo = ["checkout", SESSION, "--repo", self.ours.path().to_str().unwrap()];
        fake.run(&output, &[&repo, words].concat()).await?;
        Ok(output.take())
    }

    fn tip(&self) -> String {
        self.git.run(&["rev-parse", "flotilla/5kUL559D5O"]).unwrap()
    }
}

#[tokio::test]
async fn a_second_checkout_moves_the_branch_on_where_it_is_checked_out() {
    let (fake, results) = (Fake::default(), Results::new());
    let first = results.put(&fake, "2");
    results.checkout(&fake, &["--switch"]).await.unwrap();
    assert_eq!(results.tip(), first);
    let second = results.put(&fake, "3");
    // A change of another file stays.
    fs::write(results.ours.path().join("mine"), "x").unwrap();
    let text = results.checkout(&fake, &[]).await.unwrap();
    assert!(text.contains("on branch flotilla/5kUL559D5O"), "{text}");
    assert_eq!(results.tip(), second);
    assert_eq!(fs::read_to_string(results.ours.path().join("a")).unwrap(), "3");
    assert!(results.ours.path().join("mine").exists());
    // One that the result would overwrite is not touched.
    let third = results.put(&fake, "4");
    fs::write(results.ours.path().join("a"), "mine").unwrap();
    let error = results.checkout(&fake, &[]).await.unwrap_err();
    assert!(format!("{error:#}").contains("commit or stash your changes first"), "{error:#}");
    assert_eq!(
        (results.tip(), fs::read_to_string(results.ours.path().join("a")).unwrap()),
        (second, "mine".to_owned())
    );
    assert_ne!(results.tip(), third);
}

#[tokio::test]
async fn commits_of_a_person_on_the_branch_stay() {
    let (fake, results) = (Fake::default(), Results::new());
    results.put(&fake, "2");
    results.checkout(&fake, &["--switch"]).await.unwrap();
    let own = commit(&results.git, results.ours.path(), "mine", "x");
    results.git.run(&["switch", "--quiet", "trunk"]).unwrap();
    results.put(&fake, "3");
    let error = results.checkout(&fake, &[]).await.unwrap_err();
    assert_eq!(exit::code(&error), "branch_has_other_commits");
    assert_eq!(results.tip(), own);
    results.checkout(&fake, &["--branch", "other"]).await.unwrap();
}

#[tokio::test]
async fn a_branch_named_flotilla_is_no_obstacle() {
    let (fake, results) = (Fake::default(), Results::new());
    results.git.run(&["branch", "flotilla"]).unwrap();
    let result = results.put(&fake, "2");
    let text = results.checkout(&fake, &[]).await.unwrap();
    assert!(text.contains("branch flotilla-5kUL559D5O holds the result"), "{text}");
    assert_eq!(results.git.run(&["rev-parse", "flotilla-5kUL559D5O"]).unwrap(), result);
}

#[tokio::test]
async fn checkout_makes_a_branch_and_leaves_the_files_alone() {
    let (theirs, ours) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let git = repository(ours.path());
    let base = git.run(&["rev-parse", "HEAD"]).unwrap();
    git.run(&["clone", "--quiet", ".", theirs.path().join("clone").to_str().unwrap()]).unwrap();
    let clone = theirs.path().join("clone");
    let remote = Git::at(&clone).with_text("GIT_AUTHOR_NAME", "w").with_text("GIT_AUTHOR_EMAIL", "w");
    let remote = remote.with_text("GIT_COMMITTER_NAME", "w").with_text("GIT_COMMITTER_EMAIL", "w");
    let result = commit(&remote, &clone, "a", "2");
    remote.run(&["bundle", "create", "--quiet", "b", "HEAD", &format!("^{base}")]).unwrap();

    let fake = Fake::default();
    fake.0.lock().unwrap().export = (fs::read(clone.join("b")).unwrap(), result.clone(), base.clone());
    // A second checkout moves the branch to the same place.
    for _ in 0..2 {
        let words = ["checkout", SESSION, "--repo", ours.path().to_str().unwrap()];
        assert_eq!(command(&fake, &words).await.unwrap(), Exit::Done);
    }
    assert_eq!(git.run(&["rev-parse", "flotilla/5kUL559D5O"]).unwrap(), result);
    assert_eq!(git.run(&["rev-parse", "HEAD"]).unwrap(), base);
    assert_eq!(fs::read_to_string(ours.path().join("a")).unwrap(), "1");
    assert_eq!(git.run(&["status", "--porcelain"]).unwrap(), "");
}

#[tokio::test]
async fn checkout_in_another_repository_says_which_commit_is_missing() {
    let (theirs, ours) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let remote = repository(theirs.path());
    let base = commit(&remote, theirs.path(), "b", "only there");
    let result = commit(&remote, theirs.path(), "a", "2");
    remote.run(&["bundle", "create", "--quiet", "c", "HEAD", &format!("^{base}")]).unwrap();
    repository(ours.path());
    let fake = Fake::default();
    fake.0.lock().unwrap().export = (fs::read(theirs.path().join("c")).unwrap(), result, base.clone());
    let words = ["checkout", SESSION, "--repo", ours.path().to_str().unwrap()];
    let error = command(&fake, &words).await.unwrap_err();
    assert_eq!(exit::code(&error), "commit_missing");
    assert!(error.to_string().starts_with(&format!("this repository lacks the commit {base}")), "{error}");

    let nothing = tempfile::tempdir().unwrap();
    let words = ["checkout", SESSION, "--repo", nothing.path().to_str().unwrap()];
    assert_eq!(exit::code(&command(&fake, &words).await.unwrap_err()), "repository_missing");
}

#[tokio::test]
async fn hostile_objects_of_a_result_stay_outside() {
    let (fake, results) = (Fake::default(), Results::new());
    let blob = results.agent.run_with(&["hash-object", "-w", "--stdin"], b"[core]\n").unwrap();
    let blob = String::from_utf8(blob).unwrap().trim().to_owned();
    for (name, reason) in [(".git", "hasDotgit"), ("..", "hasDotdot")] {
        let entry = format!("100644 blob {blob}\t{name}\n");
        let tree = results.agent.run_with(&["mktree"], entry.as_bytes()).unwrap();
        let tree = String::from_utf8(tree).unwrap().trim().to_owned();
        let words = ["commit-tree", &tree, "-p", &results.base, "-m", "x"];
        let result = results.agent.run(&words).unwrap();
        results.agent.run(&["update-ref", "refs/heads/hostile", &result]).unwrap();
        let not_base = format!("^{}", results.base);
        results.agent.run(&["bundle", "create", "--quiet", "b", "hostile", &not_base]).unwrap();
        let bundle = fs::read(results.theirs.path().join("b")).unwrap();
        fake.0.lock().unwrap().export = (bundle, result.clone(), results.base.clone());
        let error = format!("{:#}", results.checkout(&fake, &[]).await.unwrap_err());
        assert!(error.contains(reason), "{name}: {error}");
        assert!(!results.git.is(&["cat-file", "-e", &result]), "{name}");
    }
}

#[tokio::test]
async fn a_commit_of_the_server_that_is_none_reaches_no_git() {
    let (fake, results) = (Fake::default(), Results::new());
    let result = results.put(&fake, "2");
    let bundle = fake.0.lock().unwrap().export.0.clone();
    for (commit, base) in [
        ("--output=stolen", results.base.as_str()),
        ("trunk", &results.base),
        ("", &results.base),
        (&result[..39], &results.base),
        (&result, "--all"),
        // It is well formed, and the bundle lacks it.
        (&"a".repeat(40), &results.base),
    ] {
        fake.0.lock().unwrap().export = (bundle.clone(), commit.to_owned(), base.to_owned());
        let error = results.checkout(&fake, &[]).await.unwrap_err();
        assert_eq!(exit::code(&error), "result_invalid", "{commit} {base}: {error:#}");
        assert!(
            !results.ours.path().join("stolen").exists()
                && !results.git.is(&["rev-parse", "--verify", "flotilla/5kUL559D5O"])
        );
    }
}
