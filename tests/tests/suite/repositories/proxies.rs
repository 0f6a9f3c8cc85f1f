//! Repositories in a network that lets programs out through an HTTP proxy alone.

use super::{HOST, Testbed, link_submodule, session};
use e2e::{Options, settings::Outside, turn::output};
use testkit::{git::repository, git_server::GitServer, upstream_proxy::UpstreamProxy};

/// A repository below no prefix.
const OPEN: &str = "open/app.git";
const CONTENT: &str = "the content of a large file\n";

#[tokio::test]
async fn a_public_repository_comes_through_the_proxy_with_its_contents_and_its_submodules() {
    let server = GitServer::start(&[HOST]).await;
    let proxy = UpstreamProxy::start_open(&[(HOST, server.address)]).await;
    let outside = Outside {
        has_public_git: true,
        upstream_proxy: Some(format!("http://{}", proxy.address)),
        ..Outside::default()
    };
    let testbed = Testbed::on(server, Options { outside, ..Options::default() }).await;
    let (server, app, api) = (&testbed.server, &testbed.app, &testbed.stack.api);
    server.require_nothing();
    let leaf = repository(&[("leaf", "leaf\n")]);
    server.push("acme/leaf.git", &leaf);
    link_submodule(app, &format!("https://{HOST}/acme/leaf.git"), "below", &leaf.commit);
    // Git takes the link for removed if there is no directory.
    std::fs::create_dir_all(app.path().join("below")).unwrap();
    let pointer = server.store_lfs(OPEN, CONTENT.as_bytes());
    testbed.commit_lfs(&[("large.bin", &pointer)]);
    server.push(OPEN, app);

    let url = format!("https://{HOST}/{OPEN}");
    let session = session(api, &url).await;
    let look = "cat file large.bin below/leaf; git status --porcelain; git config remote.origin.url";
    assert_eq!(output(api, &session, look).await.unwrap(), format!("private\n{CONTENT}leaf\n{url}\n"));
    let asked = server.requests();
    for end in ["open/app.git/git-upload-pack", "objects/batch", "acme/leaf.git/git-upload-pack"] {
        assert!(asked.iter().any(|request| request.target.ends_with(end)), "{end}: {asked:?}");
    }
    let (requests, want) = (proxy.requests(), format!("CONNECT {HOST}:443"));
    assert!(!requests.is_empty() && requests.iter().all(|request| *request == want), "{requests:?}");
}
