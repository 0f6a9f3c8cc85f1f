//! Somebody with a token who works as people do: through the API of the double, and with git.

use super::rules::Subject;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use reqwest::{Client, Method};
use serde_json::{Value, json};
use std::{fs, net::SocketAddr, path::PathBuf};
use tokio::process::Command;

/// Items of a list that are read. No test makes more.
const PAGE: &str = "per_page=100";

/// Where the double is.
#[derive(Debug, Clone)]
pub(super) struct Gate {
    pub(super) client: Client,
    pub(super) url: String,
    pub(super) host: String,
    pub(super) address: SocketAddr,
    /// The file of its certificate.
    pub(super) certificate: PathBuf,
}

/// A person, an App or one of its installations. Every method fails the test if the double refuses; [`Person::request`] does not.
#[derive(Debug, Clone)]
pub struct Person {
    pub login: String,
    pub token: String,
    pub(super) gate: Gate,
}

impl Person {
    /// Asks the API for a path like `/repos/acme/app`, and returns the status and the answer. `Value::Null` is no body.
    pub async fn request(&self, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let url = format!("{}/api/v3{path}", self.gate.url);
        let mut request =
            self.gate.client.request(method, url).bearer_auth(&self.token).header("user-agent", &self.login);
        if !body.is_null() {
            request = request.json(body);
        }
        let response = request.send().await.expect("an answer of the double");
        let status = response.status().as_u16();
        let text = response.text().await.expect("an answer of the double");
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    async fn ask(&self, method: Method, path: &str, body: Value) -> Value {
        let (status, answer) = self.request(method.clone(), path, &body).await;
        assert!((200..300).contains(&status), "{}: {method} {path}: {status} {answer}", self.login);
        answer
    }

    async fn list(&self, path: &str) -> Vec<Value> {
        match self.ask(Method::GET, path, Value::Null).await {
            Value::Array(items) => items,
            other => panic!("{path} is no list: {other}"),
        }
    }

    /// Returns the number of the issue.
    pub async fn open_issue(&self, repository: &str, title: &str, body: &str) -> u64 {
        let message = json!({"title": title, "body": body});
        get_number(&self.ask(Method::POST, &format!("/repos/{repository}/issues"), message).await, "number")
    }

    /// Closes an issue or a pull request.
    pub async fn close(&self, repository: &str, number: u64) {
        self.set_state(repository, number, "closed").await;
    }

    /// Opens it again.
    pub async fn reopen(&self, repository: &str, number: u64) {
        self.set_state(repository, number, "open").await;
    }

    async fn set_state(&self, repository: &str, number: u64, state: &str) {
        let path = format!("/repos/{repository}/issues/{number}");
        self.ask(Method::PATCH, &path, json!({"state": state})).await;
    }

    /// Returns the id of the comment on an issue or a pull request.
    pub async fn comment(&self, repository: &str, number: u64, body: &str) -> u64 {
        let path = format!("/repos/{repository}/issues/{number}/comments");
        get_number(&self.ask(Method::POST, &path, json!({"body": body})).await, "id")
    }

    pub async fn edit_comment(&self, repository: &str, comment: u64, body: &str) {
        let path = format!("/repos/{repository}/issues/comments/{comment}");
        self.ask(Method::PATCH, &path, json!({"body": body})).await;
    }

    pub async fn delete_comment(&self, repository: &str, comment: u64) {
        let path = format!("/repos/{repository}/issues/comments/{comment}");
        self.ask(Method::DELETE, &path, Value::Null).await;
    }

    /// Returns the id of the comment on a line that the pull request changes or shows.
    pub async fn review_comment(
        &self,
        repository: &str,
        number: u64,
        path: &str,
        line: u64,
        body: &str,
    ) -> u64 {
        let pull = self.pull(repository, number).await;
        let message = json!({
            "path": path, "line": line, "side": "RIGHT", "body": body, "commit_id": pull["head"]["sha"],
        });
        let path = format!("/repos/{repository}/pulls/{number}/comments");
        get_number(&self.ask(Method::POST, &path, message).await, "id")
    }

    /// Returns the id of the reaction: `eyes`, `+1`, `-1` and so on.
    pub async fn react(&self, repository: &str, subject: Subject, content: &str) -> u64 {
        let path = format!("{}/reactions", place(repository, subject));
        get_number(&self.ask(Method::POST, &path, json!({"content": content})).await, "id")
    }

    /// Returns the number of the pull request. The head is a branch, or `ann:branch` in a fork.
    pub async fn open_pull(&self, repository: &str, head: &str, base: &str, title: &str, body: &str) -> u64 {
        let message = json!({"title": title, "head": head, "base": base, "body": body});
        get_number(&self.ask(Method::POST, &format!("/repos/{repository}/pulls"), message).await, "number")
    }

    /// Returns the commit that merges the pull request.
    pub async fn merge(&self, repository: &str, number: u64) -> String {
        let path = format!("/repos/{repository}/pulls/{number}/merge");
        let answer = self.ask(Method::PUT, &path, json!({})).await;
        answer["sha"].as_str().expect("a commit").to_owned()
    }

    /// Makes a fork, and returns its name.
    pub async fn fork(&self, repository: &str) -> String {
        let answer = self.ask(Method::POST, &format!("/repos/{repository}/forks"), json!({})).await;
        answer["full_name"].as_str().expect("a name").to_owned()
    }

    /// Adds a commit with these files to a branch, which begins at the default branch if it is new. Returns the commit.
    pub async fn push(&self, repository: &str, branch: &str, files: &[(&str, &str)]) -> String {
        self.try_push(repository, branch, files).await.expect("a push")
    }

    /// As [`Person::push`].
    ///
    /// # Errors
    /// What git prints if the double refuses.
    pub async fn try_push(
        &self,
        repository: &str,
        branch: &str,
        files: &[(&str, &str)],
    ) -> Result<String, String> {
        let work_tree = self.check_out(repository).await?;
        let remote = format!("refs/remotes/origin/{branch}");
        let is_there = work_tree.git(&["rev-parse", "--verify", "--quiet", &remote]).await.is_ok();
        let start = if is_there { remote.as_str() } else { "HEAD" };
        work_tree.git(&["checkout", "--quiet", "-B", branch, start]).await?;
        work_tree.push(branch, files).await
    }

    /// Replaces a branch with a commit on the default branch that has these files. Returns the commit.
    pub async fn force_push(&self, repository: &str, branch: &str, files: &[(&str, &str)]) -> String {
        let work_tree = self.check_out(repository).await.expect("a clone");
        work_tree.git(&["checkout", "--quiet", "-B", branch]).await.expect("a branch");
        work_tree.push(branch, files).await.expect("a push")
    }

    /// Deletes a branch.
    pub async fn delete_branch(&self, repository: &str, branch: &str) {
        let path = format!("/repos/{repository}/git/refs/heads/{branch}");
        self.ask(Method::DELETE, &path, Value::Null).await;
    }

    async fn check_out(&self, repository: &str) -> Result<WorkTree<'_>, String> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let work_tree = WorkTree { person: self, directory };
        work_tree.git(&["clone", "--quiet", &format!("{}/{repository}.git", self.gate.url), "."]).await?;
        Ok(work_tree)
    }

    /// The comments on an issue or a pull request, the oldest first.
    pub async fn comments(&self, repository: &str, number: u64) -> Vec<Value> {
        self.list(&format!("/repos/{repository}/issues/{number}/comments?{PAGE}")).await
    }

    /// The comments on the lines of a pull request.
    pub async fn review_comments(&self, repository: &str, number: u64) -> Vec<Value> {
        self.list(&format!("/repos/{repository}/pulls/{number}/comments?{PAGE}")).await
    }

    /// Who reacted, and how: `flotilla[bot] eyes`.
    pub async fn reactions(&self, repository: &str, subject: Subject) -> Vec<String> {
        let reactions = self.list(&format!("{}/reactions?{PAGE}", place(repository, subject))).await;
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let words = |row: &Value| format!("{} {}", text(&row["user"]["login"]), text(&row["content"]));
        reactions.iter().map(words).collect()
    }

    pub async fn check_runs(&self, repository: &str, commit: &str) -> Vec<Value> {
        let path = format!("/repos/{repository}/commits/{commit}/check-runs?{PAGE}");
        let answer = self.ask(Method::GET, &path, Value::Null).await;
        answer["check_runs"].as_array().expect("a list").clone()
    }

    /// All pull requests, the newest first.
    pub async fn pulls(&self, repository: &str) -> Vec<Value> {
        self.list(&format!("/repos/{repository}/pulls?state=all&{PAGE}")).await
    }

    pub async fn pull(&self, repository: &str, number: u64) -> Value {
        self.ask(Method::GET, &format!("/repos/{repository}/pulls/{number}"), Value::Null).await
    }

    pub async fn issue(&self, repository: &str, number: u64) -> Value {
        self.ask(Method::GET, &format!("/repos/{repository}/issues/{number}"), Value::Null).await
    }

    /// The content of a file. `None`: the branch does not have it.
    pub async fn file(&self, repository: &str, branch: &str, path: &str) -> Option<String> {
        let path = format!("/repos/{repository}/contents/{path}?ref={branch}");
        let (status, answer) = self.request(Method::GET, &path, &Value::Null).await;
        if status == 404 {
            return None;
        }
        let content = answer["content"].as_str().expect("a content").replace('\n', "");
        Some(String::from_utf8(STANDARD.decode(content).expect("base64")).expect("a text"))
    }

    /// The commits of a branch, the newest first.
    pub async fn commits(&self, repository: &str, branch: &str) -> Vec<Value> {
        self.list(&format!("/repos/{repository}/commits?sha={branch}&{PAGE}")).await
    }
}

fn get_number(answer: &Value, field: &str) -> u64 {
    answer[field].as_u64().expect("a number")
}

fn place(repository: &str, subject: Subject) -> String {
    match subject {
        Subject::Issue(number) => format!("/repos/{repository}/issues/{number}"),
        Subject::Comment(id) => format!("/repos/{repository}/issues/comments/{id}"),
        Subject::ReviewComment(id) => format!("/repos/{repository}/pulls/comments/{id}"),
    }
}

/// A clone of somebody.
struct WorkTree<'a> {
    person: &'a Person,
    directory: tempfile::TempDir,
}

impl WorkTree<'_> {
    /// Commits these files on top of what is checked out, and makes it the branch.
    async fn push(&self, branch: &str, files: &[(&str, &str)]) -> Result<String, String> {
        for (path, content) in files {
            let file = self.directory.path().join(path);
            fs::create_dir_all(file.parent().expect("a parent")).expect("a directory");
            fs::write(&file, content).expect("a file");
        }
        self.git(&["add", "--all"]).await?;
        self.git(&["commit", "--quiet", "--allow-empty", "--message", &format!("Change {branch}")]).await?;
        self.git(&["push", "--quiet", "--force", "origin", &format!("HEAD:refs/heads/{branch}")]).await?;
        self.git(&["rev-parse", "HEAD"]).await
    }

    /// Runs git, and returns its output or its errors.
    async fn git(&self, arguments: &[&str]) -> Result<String, String> {
        let Person { login, token, gate } = self.person;
        let basic = STANDARD.encode(format!("x-access-token:{token}"));
        let resolve = format!("http.curloptResolve={}:{}:127.0.0.1", gate.host, gate.address.port());
        let mut git = Command::new("git");
        git.args(["-c", &resolve, "-c", &format!("http.extraHeader=Authorization: Basic {basic}")]);
        git.args(arguments).current_dir(self.directory.path()).kill_on_drop(true).env_clear();
        git.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        git.env("GIT_SSL_CAINFO", &gate.certificate);
        let email = format!("{login}@example.com");
        git.envs([
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_AUTHOR_NAME", login.as_str()),
            ("GIT_COMMITTER_NAME", login.as_str()),
            ("GIT_AUTHOR_EMAIL", email.as_str()),
            ("GIT_COMMITTER_EMAIL", email.as_str()),
        ]);
        let output = git.output().await.expect("git");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }
}
