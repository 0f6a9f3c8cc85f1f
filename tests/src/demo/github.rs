//! `./dev demo github`: a comment on an issue becomes a pull request, and a comment on that continues it. The stack is real processes; GitHub is a
//! double that speaks its protocols, and the model is scripted by the comments.

use super::{
    report::{self, ok},
    stack::{self, RunningStack, text},
};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::{path::Path, time::Duration};
use testkit::forge::{
    Forge,
    person::Person,
    rules::{Role, Subject, Visibility},
};
use tokio::time::{Instant, sleep};

/// The name of the double.
const HOST: &str = "ghe.example.com";
const REPOSITORY: &str = "acme/greetings";
const MISTAKE: &str = "printf 'Hello, %s' \"$1\"";
const REPAIR: &str = "printf 'Hello, %s!\\n' \"${1:-world}\"";
/// Longest wait for what the App does, and the pause between two looks at it.
const WAIT: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(200);

/// The people and the repository.
struct Testbed<'a> {
    stack: &'a RunningStack,
    /// Writes the repository.
    ann: Person,
    /// Reads it.
    bob: Person,
    issue: u64,
}

/// Shows the way. `flotilla` is the program to show.
///
/// # Errors
/// The first thing that is not as it should be.
pub async fn run(flotilla: &Path) -> Result<()> {
    let directory = stack::directory("flotilla-demo-github.")?;
    let forge = Forge::start(HOST).await.context("npm has not installed the double of GitHub")?;
    let certificate = directory.path().join("forge.pem");
    std::fs::write(&certificate, &forge.certificate)?;
    let variables = vec![
        ("FLOTILLA_BROKER_HOSTS", format!("{HOST}={}", forge.address)),
        ("FLOTILLA_BROKER_GIT_CA", certificate.display().to_string()),
    ];
    let stack = RunningStack::start(flotilla, directory.path(), variables).await?;
    let shown = stack::until_interrupted(show(&stack, &forge, directory.path())).await;
    stack.stop_after(shown).await?;
    report::ok("everything holds");
    Ok(())
}

async fn show(stack: &RunningStack, forge: &Forge, directory: &Path) -> Result<()> {
    set_up(stack, forge, directory).await?;
    let testbed = open_issue(stack, forge).await;
    refuse(&testbed).await?;
    let number = repair(&testbed).await?;
    go_on(&testbed, number).await?;
    let deliveries = stack.objects(&["github", "deliveries", "--json"]).await?;
    let dead: Vec<_> = deliveries.iter().filter(|delivery| delivery["state"] == "dead").collect();
    ensure!(!deliveries.is_empty() && dead.is_empty(), "{dead:?}");
    ok(&format!("all {} deliveries are processed", deliveries.len()));
    Ok(())
}

/// Makes the App known, and gives its installation to the tenant of the stack.
async fn set_up(stack: &RunningStack, forge: &Forge, directory: &Path) -> Result<()> {
    let (key, secret) = (directory.join("app.pem"), directory.join("webhook.secret"));
    std::fs::write(&key, &forge.app.key)?;
    std::fs::write(&secret, forge.app.webhook_secret)?;
    let number = forge.app.id.to_string();
    let files = [text(&key)?, text(&secret)?];
    let arguments = ["github", "setup", "--app-id", &number, "--private-key", files[0]];
    stack
        .flotilla(&[&arguments[..], &["--webhook-secret", files[1], "--server", &forge.url]].concat())
        .await?;
    let ready = stack.ready()?;
    let [tenant, gateway] = ["tenant", "gateway_url"].map(|name| ready[name].as_str().unwrap_or_default());
    stack.flotilla(&["github", "bind", &forge.app.installation.to_string(), "--tenant", tenant]).await?;
    forge.set_webhook(&format!("{gateway}/webhooks/github")).await;
    ok("the operator has made the App known, and given its installation to the tenant");
    Ok(())
}

async fn open_issue<'a>(stack: &'a RunningStack, forge: &Forge) -> Testbed<'a> {
    let (ann, bob) = (forge.user("ann").await, forge.user("bob").await);
    let files = [
        ("greet.sh", include_str!("../../sample/greet.sh")),
        ("test.sh", include_str!("../../sample/test.sh")),
    ];
    forge.repository(REPOSITORY, &files, Visibility::Private).await;
    forge.set_role(&ann, REPOSITORY, Role::Write).await;
    forge.set_role(&bob, REPOSITORY, Role::Read).await;
    let issue = ann.open_issue(REPOSITORY, "The greeting has no end", "`./test.sh` fails.").await;
    Testbed { stack, ann, bob, issue }
}

/// A person who may only read gets an answer of one line.
async fn refuse(testbed: &Testbed<'_>) -> Result<()> {
    testbed.bob.comment(REPOSITORY, testbed.issue, "/flotilla rewrite everything").await;
    testbed.until_told("bob has read access here").await?;
    ensure!(testbed.stack.objects(&["ls", "--json"]).await?.is_empty(), "a session has begun");
    ok("a person who may only read the repository is told so, and no session begins");
    Ok(())
}

/// A comment becomes a pull request. Returns its number.
async fn repair(testbed: &Testbed<'_>) -> Result<u64> {
    let Testbed { ann, issue, .. } = testbed;
    let asked_at = Instant::now();
    let edit = json!({"filePath": "/workspace/greet.sh", "oldString": MISTAKE, "newString": REPAIR});
    let test = json!({"command": "bash test.sh"});
    let request = format!(
        "/flotilla fix the greeting\n@tool bash {test}\n@tool edit {edit}\n@tool bash {test}\n@text The greeting ends now, and the test passes."
    );
    let comment = ann.comment(REPOSITORY, *issue, &request).await;
    until("eyes", async || {
        ann.reactions(REPOSITORY, Subject::Comment(comment)).await.iter().any(|by| by.ends_with(" eyes"))
    })
    .await?;
    ok(&format!("the comment has eyes after {:.1} s", asked_at.elapsed().as_secs_f32()));
    testbed.until_told("**Flotilla: done**").await?;
    let pulls = ann.pulls(REPOSITORY).await;
    ensure!(pulls.len() == 1, "there should be one pull request: {pulls:?}, {:?}", testbed.told().await);
    let [branch, title] =
        [&pulls[0]["head"]["ref"], &pulls[0]["title"]].map(|value| value.as_str().unwrap_or_default());
    let number = pulls[0]["number"].as_u64().context("a number")?;
    testbed.check_file(branch, REPAIR).await?;
    ok(&format!(
        "pull request #{number} ({title}) is open after {:.1} s, with the repair on its branch {branch}",
        asked_at.elapsed().as_secs_f32()
    ));
    let outputs = testbed.stack.bash_outputs(&testbed.stack.newest_session().await?).await?;
    ensure!(outputs.len() == 2 && outputs[0].contains("FAIL") && !outputs[1].contains("FAIL"), "{outputs:?}");
    ok("the test failed before the repair, and passes after it");
    testbed.check_run(branch).await?;
    Ok(number)
}

/// A comment on the pull request goes on in its session, although the worker and the broker are killed.
async fn go_on(testbed: &Testbed<'_>, number: u64) -> Result<()> {
    let write = json!({"filePath": "/workspace/NEWS", "content": "The greeting ends.\n"});
    let wait = json!({"command": "sleep 3"});
    let request =
        format!("/flotilla tell people\n@tool bash {wait}\n@tool write {write}\n@text There are news now.");
    testbed.ann.comment(REPOSITORY, number, &request).await;
    testbed.until_told("**Flotilla: working**").await?;
    for process in ["worker-1", "broker"] {
        testbed.stack.kill(process)?;
    }
    testbed.until_told("There are news now.").await?;
    let pulls = testbed.ann.pulls(REPOSITORY).await;
    ensure!(pulls.len() == 1, "there should still be one pull request: {pulls:?}");
    let branch = pulls[0]["head"]["ref"].as_str().context("a branch")?;
    ensure!(testbed.ann.file(REPOSITORY, branch, "NEWS").await.is_some(), "the branch has no second commit");
    let sessions = testbed.stack.objects(&["ls", "--json"]).await?;
    ensure!(sessions.len() == 1, "one session has both turns: {sessions:?}");
    let told = testbed.told().await;
    let states = told.iter().filter(|text| text.contains("**Flotilla: ")).count();
    ensure!(states == 1, "there should be one comment about the state: {told:?}");
    ok(
        "a comment on the pull request added a commit, although its worker and the broker were killed meanwhile",
    );
    testbed.check_run(branch).await
}

impl Testbed<'_> {
    /// The comments of the App on the issue.
    async fn told(&self) -> Vec<String> {
        let comments = self.ann.comments(REPOSITORY, self.issue).await;
        let own = comments.iter().filter(|comment| comment["user"]["login"] == "flotilla[bot]");
        own.filter_map(|comment| Some(comment["body"].as_str()?.to_owned())).collect()
    }

    async fn until_told(&self, words: &str) -> Result<()> {
        until(words, async || self.told().await.iter().any(|text| text.contains(words))).await
    }

    async fn check_file(&self, branch: &str, part: &str) -> Result<()> {
        let file = self.ann.file(REPOSITORY, branch, "greet.sh").await.unwrap_or_default();
        ensure!(file.contains(part), "the branch lacks the repair: {file}");
        Ok(())
    }

    /// Waits until the newest commit of the branch has a check run that has passed.
    async fn check_run(&self, branch: &str) -> Result<()> {
        let passes = async || {
            let commits = self.ann.commits(REPOSITORY, branch).await;
            let commit = commits.first().and_then(|commit| commit["sha"].as_str()).unwrap_or_default();
            let runs: Vec<Value> = self.ann.check_runs(REPOSITORY, commit).await;
            runs.len() == 1 && runs[0]["conclusion"] == "success"
        };
        until("a check run", passes).await?;
        ok("its newest commit has one check run, which says success");
        Ok(())
    }
}

async fn until(what: &str, is_over: impl AsyncFn() -> bool) -> Result<()> {
    let until = Instant::now() + WAIT;
    while !is_over().await {
        ensure!(Instant::now() < until, "waited in vain for: {what}");
        sleep(PAUSE).await;
    }
    Ok(())
}
