#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use std::path::Path;
use tokio::process::Command;

/// Clones a repository of the server with the `git` program, and returns its error output.
async fn clone(server: &GitServer, login: &str, into: &Path) -> Result<(), String> {
    let certificate = into.join("ca.pem");
    std::fs::write(&certificate, &server.certificate).unwrap();
    let url = format!("https://{login}localhost:{}/acme/app.git", server.address.port());
    let mut git = Command::new("git");
    git.args(["clone", "--quiet", &url]).arg(into.join("app")).kill_on_drop(true);
    git.envs([
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
    ]);
    let output = git.env("GIT_SSL_CAINFO", &certificate).output().await.unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(stderr) }
}

#[tokio::test]
async fn git_clones_with_the_login_and_fails_on_command() {
    let server = GitServer::start(&["localhost"]).await;
    server.push("acme/app.git", &crate::git::repository(&[("file", "private\n")]));
    server.require("ann:pass");
    let directory = tempfile::tempdir().unwrap();
    let refused = clone(&server, "", directory.path()).await.unwrap_err();
    assert!(refused.contains("could not read Username"), "{refused}");
    server.fail("app.git/info/refs", GitFault::Status(503));
    assert!(clone(&server, "ann:pass@", directory.path()).await.unwrap_err().contains("503"));
    server.heal("app.git/info/refs");
    clone(&server, "ann:pass@", directory.path()).await.unwrap();
    assert_eq!(std::fs::read_to_string(directory.path().join("app/file")).unwrap(), "private\n");
    let requests = server.requests();
    let packs = requests.iter().filter(|request| request.target.ends_with("/git-upload-pack"));
    assert!(packs.clone().count() > 0 && packs.clone().all(|request| request.protocol.is_some()));
}
