//! Contents of Git LFS: the server gets them as objects, and the branch has their pointers.

use super::testbed::{HOST, TOKEN, Testbed, code};
use aws_lc_rs::digest::{SHA256, digest};
use domain::text;
use testkit::git_server::rules::{GitFault, LfsStore};

const AT: &str = "acme/app.git";
const ATTRIBUTES: (&str, &str) = (".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n");
const CONTENT: &str = "the new content of a large file\n";

fn oid_of(content: &str) -> String {
    text::hex(digest(&SHA256, content.as_bytes()).as_ref())
}

fn pointer(content: &str) -> String {
    let (oid, size) = (oid_of(content), content.len());
    format!("version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {size}\n")
}

impl Testbed {
    /// A testbed whose server has Git LFS with one object.
    async fn with_lfs() -> Self {
        let testbed = Self::start().await;
        testbed.server.store_lfs(AT, b"known\n");
        testbed
    }

    /// The number of contents that were sent.
    fn uploads(&self) -> usize {
        self.server.requests().iter().filter(|request| request.method == "PUT").count()
    }

    /// Whether the repository of the server has an object of git with this content.
    fn has_blob(&self, content: &str) -> bool {
        let blob = self.object(content.as_bytes());
        let directory = self.server.directory(AT);
        !self.run(&directory, &["cat-file", "--batch-check"], blob.as_bytes()).ends_with("missing")
    }
}

#[tokio::test]
async fn contents_become_pointers_in_the_branch_and_objects_at_the_server() {
    let testbed = Testbed::with_lfs().await;
    let files = [
        ATTRIBUTES,
        ("art/large.bin", CONTENT),
        ("art/again.bin", CONTENT),
        ("art/known.bin", "known\n"),
        ("text", "plain\n"),
    ];
    testbed.commit(&testbed.base, &files);
    let program = format!("100755,{},art/run.bin", testbed.object(CONTENT.as_bytes()));
    testbed.app.git(&["update-index", "--add", "--cacheinfo", &program]);
    let commit = testbed.commit_tree(&testbed.app.git(&["write-tree"]), &[&testbed.base], "Changes");
    let told = testbed.push(&commit).await.unwrap();
    assert_eq!((told.commits, told.files), (1, 6));
    assert_eq!(testbed.remote("agent/ses_a"), told.commit);
    assert_eq!(testbed.remote("agent/ses_a^"), testbed.base);
    let text = |path: &str| testbed.remote_text(&format!("agent/ses_a:{path}"));
    for path in ["art/large.bin", "art/again.bin", "art/run.bin"] {
        assert_eq!(text(path), pointer(CONTENT), "{path}");
    }
    assert_eq!((text("art/known.bin"), text("text")), (pointer("known\n"), "plain\n".to_owned()));
    let program = testbed.remote_git(&["ls-tree", "agent/ses_a", "art/run.bin"]);
    assert!(program.starts_with("100755 blob"), "{program}");
    assert!(!testbed.has_blob(CONTENT) && testbed.has_blob("plain\n"), "only the pointer is in the history");
    assert_eq!(testbed.server.find_lfs(AT, &oid_of(CONTENT)).as_deref(), Some(CONTENT.as_bytes()));
    assert_eq!(testbed.uploads(), 1, "the server has the other one, and each is sent once");
    let requests = testbed.server.requests();
    let verified = requests.iter().filter(|request| request.target.ends_with("/objects/verify"));
    assert_eq!(verified.count(), 1);

    let again = testbed.push(&commit).await.unwrap();
    assert_eq!((again.commit, again.commits), (told.commit, 0));
    assert_eq!((testbed.uploads(), testbed.push_directories()), (1, 0));

    let other = testbed.commit(&testbed.base, &[ATTRIBUTES, ("art/large.bin", "other\n")]);
    assert_eq!(testbed.push(&other).await.unwrap().commits, 1);
    assert_eq!((text("art/large.bin"), testbed.uploads()), (pointer("other\n"), 2));
    assert_eq!(testbed.push(&other).await.unwrap().commits, 0);
}

#[tokio::test]
async fn a_store_gets_objects_with_its_key_and_without_the_credential() {
    let testbed = Testbed::with_lfs().await;
    let key = "key-0815-of-store".to_owned();
    testbed.server.lead_lfs_to(LfsStore { url: format!("https://{HOST}"), key });
    let commit = testbed.commit(&testbed.base, &[ATTRIBUTES, ("large.bin", CONTENT)]);
    testbed.push(&commit).await.unwrap();
    assert_eq!(testbed.server.find_lfs(AT, &oid_of(CONTENT)).as_deref(), Some(CONTENT.as_bytes()));
    let requests = testbed.server.requests();
    let stored: Vec<_> = requests.iter().filter(|request| request.target.starts_with("/store/")).collect();
    assert!(stored.len() == 1 && stored[0].authorization.is_none(), "{stored:?}");
    let log = testbed.broker.log();
    assert!(!log.contains("key-0815") && !log.contains(TOKEN), "{log}");
}

#[tokio::test]
async fn no_branch_moves_when_the_server_does_not_take_an_object() {
    let testbed = Testbed::start().await;
    let commit = testbed.commit(&testbed.base, &[ATTRIBUTES, ("art/large.bin", CONTENT)]);
    let status = testbed.push(&commit).await.unwrap_err();
    assert_eq!(code(&status), "push_lfs_content", "{status:?}");
    for part in ["art/large.bin", "has no Git LFS", "flotilla checkout"] {
        assert!(status.message().contains(part), "{status:?}");
    }
    testbed.server.store_lfs(AT, b"known\n");
    let object = format!("objects/{}", oid_of(CONTENT));
    let object = object.as_str();
    let evil = "https://evil.example.com/".to_owned();
    for (at, fault, want, text) in [
        (object, GitFault::Status(413), "push_lfs_refused", "answered 413"),
        (object, GitFault::Status(403), "push_lfs_refused", "answered 403"),
        (object, GitFault::Redirect(evil), "push_lfs_refused", "answered 301"),
        (object, GitFault::Status(500), "push_unreachable", "answered 500"),
        (object, GitFault::Status(429), "push_unreachable", "too many requests"),
        ("objects/verify", GitFault::Status(404), "push_lfs_refused", "answered 404"),
        ("objects/batch", GitFault::Status(403), "push_unauthorized", "lack the right to write"),
        ("objects/batch", GitFault::Status(500), "push_unreachable", "answered 500"),
        ("objects/batch", GitFault::Page, "push_unreachable", "does not answer as a server of Git LFS"),
    ] {
        testbed.server.fail(at, fault.clone());
        let status = testbed.push(&commit).await.unwrap_err();
        assert_eq!(code(&status), want, "{fault:?}: {status:?}");
        assert!(status.message().contains(text), "{fault:?}: {status:?}");
        testbed.server.heal(at);
        testbed.server.forget_lfs(AT, &oid_of(CONTENT));
    }
    assert_eq!((testbed.pushes(), testbed.push_directories()), (0, 0));
    for url in
        [format!("http://{HOST}"), format!("https://{}", testbed.server.address), "file:///etc".to_owned()]
    {
        let before = testbed.uploads();
        testbed.server.lead_lfs_to(LfsStore { url: url.clone(), key: "key".to_owned() });
        let status = testbed.push(&commit).await.unwrap_err();
        assert_eq!(code(&status), "push_unreachable", "{url}: {status:?}");
        assert!(status.message().contains("leads to a place"), "{url}: {status:?}");
        assert_eq!((testbed.uploads(), testbed.pushes()), (before, 0), "{url}");
    }
    testbed.server.lead_lfs_to(LfsStore { url: format!("https://{HOST}"), key: "key".to_owned() });
    assert_eq!(testbed.push(&commit).await.unwrap().commits, 1);
}

#[tokio::test]
async fn the_content_of_a_pointer_of_the_base_is_no_change() {
    let mut testbed = Testbed::with_lfs().await;
    let base = testbed.commit(&testbed.base, &[ATTRIBUTES, ("known.bin", &pointer("known\n"))]);
    testbed.app.git(&["update-ref", "HEAD", &base]);
    testbed.server.push(AT, &testbed.app);
    testbed.base = base;
    let commit = testbed.commit(&testbed.base, &[("known.bin", "known\n")]);
    assert_eq!(code(&testbed.push(&commit).await.unwrap_err()), "push_nothing");
    let commit = testbed.commit(&testbed.base, &[("known.bin", "known\n"), ("file", "changed\n")]);
    let told = testbed.push(&commit).await.unwrap();
    let changed = testbed.remote_git(&["diff", "--name-only", &testbed.base, &told.commit]);
    assert_eq!((changed.as_str(), testbed.uploads()), ("file", 0));
}

#[tokio::test]
async fn attributes_count_up_to_their_bound() {
    let testbed = Testbed::with_lfs().await;
    let bytes_max = 256 * 1024;
    let mut attributes = ATTRIBUTES.1.to_owned();
    // Git takes no long line.
    while attributes.len() < bytes_max {
        let left = bytes_max - attributes.len();
        attributes += &"#".repeat(left.min(64) - 1);
        attributes.push('\n');
    }
    let commit =
        testbed.commit(&testbed.base, &[(ATTRIBUTES.0, attributes.as_str()), ("large.bin", CONTENT)]);
    testbed.push(&commit).await.unwrap();
    assert_eq!(testbed.remote_text("agent/ses_a:large.bin"), pointer(CONTENT));
    attributes.push('\n');
    let commit =
        testbed.commit(&testbed.base, &[(ATTRIBUTES.0, attributes.as_str()), ("large.bin", CONTENT)]);
    testbed.send(testbed.request(&commit).to("agent/long")).await.unwrap();
    assert_eq!((testbed.remote_text("agent/long:large.bin"), testbed.uploads()), (CONTENT.to_owned(), 1));
}

#[tokio::test]
async fn a_later_push_puts_a_commit_with_pointers_on_top_of_the_earlier_one() {
    let testbed = Testbed::with_lfs().await;
    let commit = testbed.commit(&testbed.base, &[ATTRIBUTES, ("large.bin", CONTENT)]);
    let first = testbed.push(&commit).await.unwrap().commit;
    let commit = testbed.commit(&testbed.base, &[ATTRIBUTES, ("large.bin", CONTENT), ("text", "plain\n")]);
    let second = testbed.push(&commit).await.unwrap();
    assert_eq!((second.commits, testbed.remote("agent/ses_a^")), (1, first));
    assert_eq!(testbed.remote_text("agent/ses_a:large.bin"), pointer(CONTENT));
    assert_eq!(testbed.remote_git(&["diff", "--name-only", "agent/ses_a^", "agent/ses_a"]), "text");
    assert_eq!(testbed.push(&commit).await.unwrap().commits, 0);
}
