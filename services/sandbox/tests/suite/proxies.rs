//! Public repositories in a network that lets programs out through an HTTP proxy alone.

use crate::harness::{Machine, Session, code, directory, parse_config};
use domain::ids::SessionId;
use rpc::v1::{self, WorkspaceHeader};
use std::{fs, path::Path};
use tempfile::TempDir;
use testkit::{git::repository, git_server::GitServer, upstream_proxy::UpstreamProxy};

const HOST: &str = "git.example.com";
const URL: &str = "https://git.example.com/acme/app.git";

/// A git server, whose certificate also names its address, and the directory of a machine.
struct Testbed {
    server: GitServer,
    directory: TempDir,
}

impl Testbed {
    async fn start() -> Self {
        let server = GitServer::start(&[HOST, "127.0.0.1"]).await;
        server.push("acme/app.git", &repository(&[("file", "public\n")]));
        let directory = directory();
        fs::write(directory.path().join("ca.pem"), &server.certificate).unwrap();
        Self { server, directory }
    }

    /// A machine that trusts the server. Its workspaces are small, so that a mirror is filled on a small disk too.
    async fn machine(&self, arguments: &[&str]) -> Machine {
        let ca = self.directory.path().join("ca.pem");
        let common = ["--git-ca", ca.to_str().unwrap(), "--disk-bytes", "67108864"];
        Machine::start_with(self.directory.path(), &[&common[..], arguments].concat()).await
    }
}

fn url(proxy: &UpstreamProxy) -> String {
    format!("http://{}", proxy.address)
}

#[tokio::test]
async fn a_public_repository_is_cloned_through_the_proxy_which_alone_knows_the_name() {
    let testbed = Testbed::start().await;
    // Only the proxy leads to the server, which has another port than that of the URL.
    let proxy = UpstreamProxy::start_open(&[(HOST, testbed.server.address)]).await;
    let machine = testbed.machine(&["--git-proxy", &url(&proxy)]).await;
    let session = machine.session();
    let refused = machine.session().open_url("https://127.0.0.1/acme/app.git").await;
    assert_eq!(code(refused), "url_not_allowed");
    assert_eq!(proxy.requests(), Vec::<String>::new(), "it gets no private address");
    let door = SessionId::of_warm_ups(&"prj_1".parse().unwrap()).to_string();
    let warm_up =
        Session { tenant: session.tenant.clone(), workspace: door.clone(), id: door, ..machine.session() };
    let header =
        WorkspaceHeader { git_url: URL.to_owned(), project_id: "prj_1".to_owned(), ..Default::default() };
    let ahead = v1::ReadSourceRequest { ahead: true, ..Default::default() };
    let read = warm_up.read_source(header.clone(), vec![], ahead.clone()).await.unwrap();
    assert_eq!((read.commit.len(), read.is_known), (40, false));
    // The server alone is asked for a commit that is known.
    let known = v1::ReadSourceRequest { known_commit: read.commit.clone(), ..ahead };
    let again = warm_up.read_source(header, vec![], known).await.unwrap();
    assert_eq!((again.commit, again.is_known, again.guidance), (read.commit, true, None));
    let other = Session { tenant: session.tenant.clone(), ..machine.session() };
    for (session, project) in [(session, "prj_1"), (other, "")] {
        let before = proxy.requests().len();
        let header =
            WorkspaceHeader { git_url: URL.to_owned(), project_id: project.to_owned(), ..Default::default() };
        session.open(header, vec![]).await.unwrap();
        let look = "cat file; git config remote.origin.url; git config --list | grep -ci proxy || true";
        assert_eq!(session.sh(look).await, format!("public\n{URL}\n0"));
        assert!(proxy.requests().len() > before, "each session asks the server, with a mirror too");
    }
    let (requests, want) = (proxy.requests(), format!("CONNECT {HOST}:443"));
    assert!(requests.iter().all(|request| *request == want), "{requests:?}");
}

#[tokio::test]
async fn exceptions_are_reached_without_the_proxy() {
    let testbed = Testbed::start().await;
    let proxy = UpstreamProxy::start_open(&[]).await;
    let (url, address) = (url(&proxy), testbed.server.address);
    let through = ["--git-private-networks", "--git-proxy", &url];
    let excepting = [&through[..], &["--git-proxy-except", "127.0.0.0/8"]].concat();
    let repository = format!("https://{address}/acme/app.git");
    let machine = testbed.machine(&excepting).await;
    machine.session().open_url(&repository).await.unwrap();
    assert_eq!(proxy.requests(), Vec::<String>::new());
    machine.stop().await;
    let machine = testbed.machine(&through).await;
    machine.session().open_url(&repository).await.unwrap();
    let requests = proxy.requests();
    assert!(requests.contains(&format!("CONNECT {address}")), "{requests:?}");
}

#[tokio::test]
async fn the_setting_is_named_when_the_proxy_opens_no_connection() {
    let testbed = Testbed::start().await;
    let closed = UpstreamProxy::start("flotilla:hunter2", &[(HOST, testbed.server.address)]).await;
    let ignorant = UpstreamProxy::start_open(&[]).await;
    for (proxy, want) in [
        ("127.0.0.1:1".to_owned(), "connect to"),
        (closed.address.to_string(), "407"),
        (ignorant.address.to_string(), "502"),
    ] {
        let machine = testbed.machine(&["--git-proxy", &format!("http://{proxy}")]).await;
        let status = machine.session().open_url(URL).await.unwrap_err();
        let named = format!("through the proxy {proxy} of FLOTILLA_SANDBOX_GIT_PROXY: ");
        assert!(status.message().contains(&named) && status.message().contains(want), "{status:?}");
        assert_eq!(code::<()>(Err(status)), "repository_unreachable");
        machine.stop().await;
    }
    assert_eq!(testbed.server.requests(), []);
}

#[test]
fn a_wrong_proxy_stops_the_start_and_no_text_has_its_password() {
    for (wrong, want) in [
        ("http://ann:hunter2@proxy.acme.dev:3128", "the URL has a login"),
        ("https://hunter2.acme.dev:3128", "the URL does not begin with http://"),
        ("hunter2", "this is not a URL"),
    ] {
        let error = parse_config(Path::new("/nowhere"), &["--git-proxy", wrong]).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("FLOTILLA_SANDBOX_GIT_PROXY must be ") && text.contains(want), "{text}");
        assert!(!text.contains("hunter2") && !format!("{error:?}").contains("hunter2"), "{text}");
    }
}
