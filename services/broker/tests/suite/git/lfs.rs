//! Objects of Git LFS, read through the door of a session.

use super::{HOST, TOKEN, Testbed, ask, code, refs};
use testkit::git_server::rules::{GitFault, LfsStore};

const AT: &str = "acme/app.git";
/// A repository below no prefix.
const OPEN: &str = "open/app.git";
const CONTENT: &[u8] = b"the content of a large file\n";
/// The path of the links in the answer to a batch.
const DOOR: &str = "http://127.0.0.1:3129";

fn oid_of(pointer: &str) -> String {
    pointer.split("sha256:").nth(1).unwrap()[..64].to_owned()
}

impl Testbed {
    /// Asks for a batch with this message.
    async fn batch(&self, path: &str, message: &str) -> String {
        let headers =
            format!("Content-Length: {}\r\nAuthorization: Basic bWluZQ==\r\n\r\n{message}", message.len());
        ask(&self.door(), &format!("POST /{HOST}/{path}/info/lfs/objects/batch"), &headers).await
    }

    async fn download(&self, oid: &str, size: usize) -> String {
        self.download_of(AT, oid, size).await
    }

    async fn download_of(&self, path: &str, oid: &str, size: usize) -> String {
        let message = format!(r#"{{"operation":"download","objects":[{{"oid":"{oid}","size":{size}}}]}}"#);
        self.batch(path, &message).await
    }

    async fn object(&self, oid: &str, size: usize) -> String {
        self.object_of(AT, oid, size).await
    }

    async fn object_of(&self, path: &str, oid: &str, size: usize) -> String {
        self.ask(&format!("GET /{HOST}/{path}/info/lfs/objects/{oid}?size={size}")).await
    }
}

#[tokio::test]
async fn a_client_gets_objects_and_nothing_that_opens_them() {
    let testbed = Testbed::start().await;
    let oid = oid_of(&testbed.server.store_lfs(AT, CONTENT));
    let size = CONTENT.len();
    let answer = testbed.download(&oid, size).await;
    let link = format!("{DOOR}/{HOST}/{AT}/info/lfs/objects/{oid}?size={size}");
    assert!(
        answer.starts_with("HTTP/1.1 200 OK") && answer.contains(&format!("\"href\":\"{link}\"")),
        "{answer}"
    );
    let read = testbed.object(&oid, size).await;
    assert!(read.starts_with("HTTP/1.1 200 OK") && read.contains("the content of a large file\n"), "{read}");

    // At another host, with a key and without the credential.
    let store = LfsStore { url: "https://other.example.com".to_owned(), key: "key-0815-of-store".to_owned() };
    testbed.server.lead_lfs_to(store);
    let answer = testbed.download(&oid, size).await;
    let read = testbed.object(&oid, size).await;
    assert!(answer.contains(&link) && read.contains("the content of a large file\n"), "{answer}\n{read}");
    for shown in [answer, read, testbed.broker.log()] {
        assert!(!shown.contains("key-0815") && !shown.contains(TOKEN), "{shown}");
    }
    let requests = testbed.server.requests();
    let stored = requests.iter().find(|request| request.target.starts_with("/store/")).unwrap();
    assert_eq!((stored.host.as_str(), &stored.authorization), ("other.example.com", &None));
    let own = requests.iter().filter(|request| !request.target.starts_with("/store/"));
    assert!(own.clone().count() > 0 && own.clone().all(|request| request.authorization.is_some()));
}

#[tokio::test]
async fn no_object_is_read_from_a_place_that_is_no_public_name() {
    let testbed = Testbed::start().await;
    let oid = oid_of(&testbed.server.store_lfs(AT, CONTENT));
    let address = testbed.server.address;
    for url in [
        format!("https://{address}"),
        format!("http://{HOST}"),
        format!("https://user:pass@{HOST}"),
        "https://localhost".to_owned(),
        "https://169.254.169.254".to_owned(),
        "https://[::1]".to_owned(),
        "file:///etc".to_owned(),
    ] {
        testbed.server.lead_lfs_to(LfsStore { url: url.clone(), key: "key".to_owned() });
        let told = testbed.object(&oid, CONTENT.len()).await;
        assert_eq!(code(&told), "git_lfs_link_refused", "{url}: {told}");
    }
    assert!(!testbed.server.requests().iter().any(|request| request.target.starts_with("/store/")));
}

#[tokio::test]
async fn only_reading_below_a_prefix_passes_for_git_lfs_too() {
    let testbed = Testbed::start().await;
    let pointer = testbed.server.store_lfs(AT, CONTENT);
    testbed.server.store_lfs("other/app.git", CONTENT);
    let (oid, size) = (oid_of(&pointer), CONTENT.len());
    let message = |operation: &str| {
        format!(r#"{{"operation":"{operation}","objects":[{{"oid":"{oid}","size":{size}}}]}}"#)
    };
    let object = format!("{{\"oid\":\"{oid}\",\"size\":{size}}}");
    let many = format!(r#"{{"operation":"download","objects":[{}]}}"#, vec![object; 101].join(","));
    for (path, message, want) in [
        (AT, message("download"), "200"),
        (AT, message("upload"), "git_push_refused"),
        ("other/app.git", message("download"), "git_prefix_missing"),
        ("acme/../other/app.git", message("download"), "git_address_invalid"),
        (AT, "{}".to_owned(), "git_request_refused"),
        (AT, "nonsense".to_owned(), "git_request_refused"),
        (AT, message("download").replace(&oid, "../../x"), "git_request_refused"),
        (AT, many, "git_request_refused"),
        (AT, " ".repeat(64 * 1024 + 1), "git_request_too_large"),
    ] {
        let before = testbed.server.requests().len();
        assert_eq!(code(&testbed.batch(path, &message).await), want, "{path}: {message:.80}");
        assert_eq!(testbed.server.requests().len() - before, usize::from(want == "200"), "{path}");
    }
    for (line, want) in [
        (format!("GET /{HOST}/{AT}/info/lfs/objects/{oid}"), "git_request_refused"),
        (format!("GET /{HOST}/{AT}/info/lfs/locks"), "git_request_refused"),
        (format!("PUT /{HOST}/{AT}/info/lfs/objects/{oid}?size={size}"), "git_request_refused"),
        (format!("GET /{HOST}/other/app.git/info/lfs/objects/{oid}?size={size}"), "git_prefix_missing"),
    ] {
        assert_eq!(testbed.code(&line).await, want, "{line}");
    }
}

#[tokio::test]
async fn what_a_server_of_git_lfs_answers_is_told() {
    let testbed = Testbed::start().await;
    let oid = oid_of(&testbed.server.store_lfs(AT, CONTENT));
    let size = CONTENT.len();
    let at = "app.git/info/lfs/objects/batch";
    let elsewhere = "https://evil.example.com/".to_owned();
    for (fault, want, text) in [
        (GitFault::Status(401), "git_unauthorized", "refuses the secret TOKEN"),
        (GitFault::Status(403), "git_unauthorized", "flotilla secret set TOKEN"),
        (GitFault::Status(404), "git_lfs_unsupported", "has no Git LFS"),
        (GitFault::Status(429), "git_busy", "429"),
        (GitFault::Status(500), "git_failed", "answered 500"),
        (GitFault::Page, "git_failed", "does not answer as a server of Git LFS"),
        (GitFault::Redirect(elsewhere), "git_failed", "redirects"),
    ] {
        testbed.server.fail(at, fault.clone());
        for answer in [testbed.download(&oid, size).await, testbed.object(&oid, size).await] {
            assert!(code(&answer) == want && answer.contains(text), "{fault:?}: {answer}");
        }
    }
    testbed.server.heal(at);
    let unknown = "0".repeat(64);
    let answer = testbed.download(&unknown, 1).await;
    assert!(answer.contains("\"code\":404") && !answer.contains("href"), "{answer}");
    assert_eq!(code(&testbed.object(&unknown, 1).await), "git_lfs_missing");
    // The server has the object with another length.
    testbed.server.store_lfs_as(AT, &oid, &CONTENT[1..]);
    let told = testbed.object(&oid, size).await;
    assert!(code(&told) == "git_lfs_object_invalid" && told.contains("its pointer names 28"), "{told}");
    testbed.server.fail(&oid, GitFault::Status(404));
    assert_eq!(code(&testbed.object(&oid, size).await), "git_lfs_missing");
    let back = format!("https://{HOST}/{AT}/info/lfs/objects/{oid}");
    testbed.server.fail(&oid, GitFault::Redirect(back));
    assert_eq!(code(&testbed.object(&oid, size).await), "git_lfs_link_refused", "it redirects for ever");
    let outside = format!("https://{HOST}/other/moved");
    testbed.server.fail(&oid, GitFault::Redirect(outside));
    testbed.object(&oid, size).await;
    let requests = testbed.server.requests();
    let mut outside = requests.iter().filter(|request| request.target.starts_with("/other/moved"));
    assert!(outside.next().is_some_and(|request| request.authorization.is_none()), "{requests:?}");
}

#[tokio::test]
async fn objects_of_the_public_repository_are_read_without_a_credential_and_nothing_else_is() {
    let testbed = Testbed::start().await;
    let oid = oid_of(&testbed.server.store_lfs(OPEN, CONTENT));
    testbed.server.store_lfs(AT, CONTENT);
    testbed.server.store_lfs("open/other.git", CONTENT);
    let size = CONTENT.len();
    assert_eq!(code(&testbed.download_of(OPEN, &oid, size).await), "git_prefix_missing");
    testbed.open_public(&format!("https://{HOST}/open/app")).await.unwrap();
    // The server wants a credential.
    for answer in [testbed.download_of(OPEN, &oid, size).await, testbed.object_of(OPEN, &oid, size).await] {
        assert!(code(&answer) == "git_lfs_login_required" && answer.contains(HOST), "{answer}");
    }
    testbed.server.require_nothing();
    let answer = testbed.download_of(OPEN, &oid, size).await;
    assert!(answer.contains(&format!("{DOOR}/{HOST}/{OPEN}/info/lfs/objects/{oid}?size={size}")), "{answer}");
    let read = testbed.object_of(OPEN, &oid, size).await;
    assert!(read.starts_with("HTTP/1.1 200 OK") && read.contains("the content of a large file\n"), "{read}");
    let requests = testbed.server.requests();
    let open: Vec<_> = requests.iter().filter(|request| request.target.contains("/open/")).collect();
    assert_eq!(open.len(), 2 + 1 + 2);
    assert!(open.iter().all(|request| request.authorization.is_none()), "no client and no setting opens it");

    // What is not an object of this repository.
    let upload = format!(r#"{{"operation":"upload","objects":[{{"oid":"{oid}","size":{size}}}]}}"#);
    for (answer, want) in [
        (testbed.batch(OPEN, &upload).await, "git_push_refused"),
        (testbed.download_of("open/other.git", &oid, size).await, "git_prefix_missing"),
        (testbed.object_of("open/app/app.git", &oid, size).await, "git_prefix_missing"),
        (testbed.ask(&refs(OPEN)).await, "git_prefix_missing"),
    ] {
        assert_eq!(code(&answer), want, "{answer}");
    }
    assert_eq!(testbed.server.requests().len(), requests.len(), "nothing of it reached the server");

    // A prefix comes first.
    testbed.open_public(&format!("https://{HOST}/{AT}")).await.unwrap();
    assert_eq!(code(&testbed.download(&oid, size).await), "200");
    assert!(testbed.server.requests().last().unwrap().authorization.is_some());
}

#[tokio::test]
async fn the_host_of_a_public_repository_need_not_have_git_lfs() {
    let testbed = Testbed::start().await;
    let oid = oid_of(&testbed.server.store_lfs(OPEN, CONTENT));
    testbed.server.require_nothing();
    testbed.open_public(&format!("https://{HOST}/{OPEN}")).await.unwrap();
    let at = "open/app.git/info/lfs/objects/batch";
    for (fault, want) in [
        (GitFault::Page, "git_lfs_unsupported"),
        (GitFault::Redirect("https://evil.example.com/".to_owned()), "git_lfs_unsupported"),
        (GitFault::Status(400), "git_lfs_unsupported"),
        (GitFault::Status(403), "git_lfs_login_required"),
        (GitFault::Status(404), "git_lfs_unsupported"),
        (GitFault::Status(429), "git_busy"),
        (GitFault::Status(500), "git_failed"),
    ] {
        testbed.server.fail(at, fault.clone());
        assert_eq!(code(&testbed.download_of(OPEN, &oid, CONTENT.len()).await), want, "{fault:?}");
    }
    testbed.server.heal(at);
    testbed.server.fail(&oid, GitFault::Status(403));
    assert_eq!(code(&testbed.object_of(OPEN, &oid, CONTENT.len()).await), "git_lfs_login_required");

    for wrong in [
        "http://git.example.com/open/app",
        "https://u:hunter2@git.example.com/open/app",
        "https://127.0.0.1/open/app",
        "https://git.example.com/open/../app",
        "git.example.com/open/app",
    ] {
        let status = testbed.open_public(wrong).await.unwrap_err();
        assert_eq!(rpc::status::code_of(&status).unwrap(), "git_address_invalid", "{wrong}");
        assert!(!status.message().contains("hunter2"), "{status:?}");
    }
}
