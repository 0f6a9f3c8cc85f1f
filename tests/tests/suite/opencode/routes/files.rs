//! Files of a directory: the files of its newest session.

use super::{super::client::Client, plainly_refused, refused};
use e2e::turn::bash;
use reqwest::Method;
use serde_json::{Value, json};

/// Calls every route of files, with and without files.
pub(super) async fn check(client: &Client) {
    let client = Client { directory: "/home/me/files".to_owned(), ..client.clone() };
    for path in [
        "/file?path=.",
        "/find?pattern=x",
        "/find/file?query=x",
        "/skill",
        "/vcs/status",
        "/vcs/diff?mode=git",
    ] {
        assert_eq!(client.get(path).await, json!([]), "{path} without a session");
    }
    assert_eq!(client.get("/file/content?path=a").await, json!({"type": "text", "content": ""}));
    not_applied(&client, PATCH, "non-git").await;
    assert_eq!(client.get("/vcs").await, json!({}), "no project");
    let session = client.session(json!({})).await;
    assert_eq!(client.get("/vcs").await, json!({"branch": "main"}), "the files will start empty");
    assert_eq!(client.get("/file/content?path=a").await, json!({"type": "text", "content": ""}));
    // Files can be written before the first prompt, for example by a client with local changes.
    not_applied(&client, PATCH, "not-clean").await;
    assert_eq!(client.post("/vcs/apply", json!({"patch": NEW})).await, json!({"applied": true}));
    assert_eq!(client.get("/file/content?path=brought").await["content"], "along\n");
    let write = "mkdir src; echo 'fn main() {}' > src/main.rs; echo Hello > read.me; truncate -s 65M huge; printf '\\377\\0' > bytes; \
        mkdir -p .claude/skills/hello; cd .claude/skills/hello; \
        printf -- '---\\nname: hello\\ndescription: greets\\n---\\nSay hello.\\n' > SKILL.md";
    client.prompt(&session, &format!("{}\n@text done", bash(write))).await;
    names(&client).await;
    let text = client.get("/file/content?path=src/main.rs").await;
    assert_eq!(text, json!({"type": "text", "content": "fn main() {}\n"}));
    assert_eq!(client.get("/file/content?path=none").await["content"], "", "a missing file");
    let bytes = client.get("/file/content?path=bytes").await;
    assert_eq!((&bytes["type"], &bytes["content"]), (&json!("binary"), &json!("/wA=")));
    let found = client.get("/find?pattern=fn%20ma").await;
    let want = (&json!("src/main.rs"), &json!("fn main() {}\n"), &json!(1));
    assert_eq!((&found[0]["path"]["text"], &found[0]["lines"]["text"], &found[0]["line_number"]), want);
    let first = json!([{"match": {"text": "fn ma"}, "start": 0, "end": 5}]);
    assert_eq!((&found[0]["submatches"], &found[0]["absolute_offset"]), (&first, &json!(0)));
    let found = client.get("/find?pattern=[a-z]%2B%24&x").await;
    let name =
        found.as_array().unwrap().iter().find(|line| line["lines"]["text"] == "name: hello\n").unwrap();
    let second = json!([{"match": {"text": "hello"}, "start": 6, "end": 11}]);
    assert_eq!((&name["submatches"], &name["absolute_offset"]), (&second, &json!(4)), "{name}");
    assert_eq!(client.get("/find?pattern=nowhere").await, json!([]));
    changes(&client).await;
    let applied = client.post("/vcs/apply", json!({"patch": PATCH})).await;
    assert_eq!(applied, json!({"applied": true}));
    assert_eq!(client.get("/file/content?path=read.me").await["content"], "Goodbye\n");
    not_applied(&client, PATCH, "not-clean").await;
    refused(&client, Method::POST, "/vcs/apply", "{}").await;
    for path in ["/file/status", "/find/symbol?query=main"] {
        assert_eq!(client.get(path).await, json!([]), "{path}");
    }
    for bad in [
        "/file",
        "/file?path=none",
        "/file?path=../..",
        "/file/content",
        "/file/content?path=src",
        "/file/content?path=../../etc/passwd",
        "/find",
        "/find?pattern=(",
        "/find/file",
        "/find/file?query=x&limit=many",
        "/vcs/diff",
        "/vcs/diff?mode=all",
    ] {
        plainly_refused(&client, bad).await;
    }
}

/// A patch that applies only once.
const PATCH: &str =
    "diff --git a/read.me b/read.me\n--- a/read.me\n+++ b/read.me\n@@ -1 +1 @@\n-Hello\n+Goodbye\n";

const NEW: &str = "diff --git a/brought b/brought\nnew file mode 100644\n--- /dev/null\n+++ b/brought\n@@ -0,0 +1 @@\n+along\n";

async fn not_applied(client: &Client, patch: &str, reason: &str) {
    let refused = client.expect(400, Method::POST, "/vcs/apply", json!({"patch": patch})).await;
    assert_eq!(
        (&refused["name"], &refused["data"]["reason"]),
        (&json!("VcsApplyError"), &json!(reason)),
        "{refused}"
    );
}

/// The changes of the session, and the skill that it wrote.
async fn changes(client: &Client) {
    let status = client.get("/vcs/status").await;
    let main = json!({"file": "src/main.rs", "additions": 1, "deletions": 0, "status": "added"});
    assert!(status.as_array().unwrap().contains(&main), "{status}");
    for mode in ["git", "branch"] {
        let patches = client.get(&format!("/vcs/diff?mode={mode}")).await;
        let own = patches.as_array().unwrap().iter().find(|patch| patch["file"] == "src/main.rs").unwrap();
        assert!(own["patch"].as_str().unwrap().ends_with("+fn main() {}\n"), "{own}");
        let huge =
            json!({"file": "huge", "patch": "left out: huge, 65.0 MiB\n", "additions": 0, "deletions": 0});
        assert!(patches.as_array().unwrap().contains(&huge), "{patches}");
    }
    let raw = client.get("/vcs/diff/raw").await;
    assert!(raw.as_str().unwrap().contains("diff --git a/src/main.rs b/src/main.rs\n"), "{raw}");
    let skills = client.get("/skill").await;
    let location = "/workspace/.claude/skills/hello/SKILL.md";
    assert_eq!((&skills[0]["name"], &skills[0]["location"]), (&json!("hello"), &json!(location)));
    assert!(skills[0]["content"].as_str().unwrap().ends_with("Say hello.\n"), "{skills}");
    assert_eq!(client.get("/api/skill").await["data"], skills);
}

async fn names(client: &Client) {
    let listed = client.get("/file?path=.").await;
    let node = |name: &str| {
        let nodes = listed.as_array().unwrap().iter();
        nodes.filter(|node| node["name"] == name).map(|node| node["path"].clone()).collect::<Vec<Value>>()
    };
    assert_eq!((node("src"), node("read.me")), (vec![json!("src/")], vec![json!("read.me")]), "{listed}");
    let below = client.get("/file?path=src/").await;
    let want = json!({"name": "main.rs", "path": "src/main.rs", "absolute": "/workspace/src/main.rs", "type": "file", "ignored": false});
    assert_eq!(below, json!([want]));
    for (query, want) in [
        ("query=smr", json!(["src/main.rs"])),
        ("query=sr", json!(["src/", "src/main.rs"])),
        ("query=sr&type=directory", json!(["src/"])),
        ("query=sr&dirs=false", json!(["src/main.rs"])),
        ("query=sr&limit=1", json!(["src/"])),
        ("query=zz", json!([])),
    ] {
        assert_eq!(client.get(&format!("/find/file?{query}")).await, want, "{query}");
    }
}
