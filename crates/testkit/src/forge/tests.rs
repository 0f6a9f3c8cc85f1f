#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use crate::forge::rules::{Credential, Subject};
use axum::{
    body::Bytes,
    http::{HeaderMap, StatusCode},
};
use domain::text;
use reqwest::Method;
use sha2::{Digest as _, Sha256};

const APP: &str = "acme/app";
const ISSUES: &str = "/repos/acme/app/issues";
const LINES: &str = "one\ntwo\nthree\n";

/// A double with a private repository that Ann may write and Bob may read.
async fn start() -> Option<(Forge, Person, Person)> {
    let forge = Forge::start("github.test").await?;
    forge.repository(APP, &[("README.md", "hello\n"), ("src/a.txt", LINES)], Visibility::Private).await;
    let (ann, bob) = (forge.user("ann").await, forge.user("bob").await);
    forge.set_role(&ann, APP, Role::Write).await;
    forge.set_role(&bob, APP, Role::Read).await;
    Some((forge, ann, bob))
}

/// A receiver of webhooks that always answers with the same status.
struct Receiver {
    url: String,
    received: watch::Sender<Vec<(HeaderMap, Bytes)>>,
    _stop: oneshot::Sender<()>,
}

async fn receive(status: StatusCode) -> Receiver {
    let (listener, host) = http_server::listen().await;
    let received = watch::Sender::new(vec![]);
    let (stop, stopped) = oneshot::channel();
    let sender = received.clone();
    let answer = move |headers: HeaderMap, body: Bytes| {
        let sender = sender.clone();
        async move {
            sender.send_modify(|all: &mut Vec<_>| all.push((headers, body)));
            status
        }
    };
    http_server::spawn(listener, Router::new().fallback(answer), stopped);
    Receiver { url: format!("http://{host}/hooks"), received, _stop: stop }
}

/// HMAC with SHA-256, lower-case hexadecimal.
fn sign(secret: &str, message: &[u8]) -> String {
    let mut key = [0; 64];
    key[..secret.len()].copy_from_slice(secret.as_bytes());
    let pad = |with: u8| key.map(|byte: u8| byte ^ with);
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(message).finalize();
    text::hex(&Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize())
}

#[test]
fn the_signature_is_that_of_the_documentation_of_github() {
    let want = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    assert_eq!(sign("It's a Secret to Everybody", b"Hello, World!"), want);
}

#[tokio::test]
async fn a_comment_becomes_a_signed_webhook_and_the_bot_answers() {
    let Some((forge, ann, bob)) = start().await else { return };
    let receiver = receive(StatusCode::ACCEPTED).await;
    forge.set_webhook(&receiver.url).await;
    let issue = ann.open_issue(APP, "It fails", "Look.").await;
    let comment = ann.comment(APP, issue, "/flotilla fix").await;
    let delivery = forge.wait_for_delivery("the comment", |sent| sent.event == "issue_comment").await;
    assert_eq!((delivery.action.as_deref(), delivery.status_code), (Some("created"), 202));
    let payload = &delivery.payload;
    assert_eq!(payload["comment"]["id"], comment);
    assert_eq!(payload["installation"]["id"], forge.app.installation);
    assert_eq!(
        (&payload["sender"]["login"], &payload["repository"]["full_name"]),
        (&json!("ann"), &json!(APP))
    );
    assert_eq!(payload["repository"]["url"], format!("{}/api/v3/repos/{APP}", forge.url));
    let (headers, body) = receiver.received.borrow().last().unwrap().clone();
    let header = |name: &str| headers[name].to_str().unwrap().to_owned();
    assert_eq!(header("x-hub-signature-256"), format!("sha256={}", sign(forge.app.webhook_secret, &body)));
    assert_eq!(header("x-github-delivery"), delivery.guid);
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), delivery.payload);
    let bot = forge.bot(&json!({"repositories": ["app"]})).await;
    let subject = Subject::Comment(comment);
    let reaction = bot.react(APP, subject, "eyes").await;
    assert_eq!(bot.react(APP, subject, "eyes").await, reaction, "a second time changes nothing");
    bob.react(APP, subject, "-1").await;
    assert_eq!(ann.reactions(APP, subject).await, ["flotilla[bot] eyes", "bob -1"]);
    bot.comment(APP, issue, "I work on it.").await;
    let comments = ann.comments(APP, issue).await;
    assert_eq!(
        (&comments[1]["user"]["type"], comments[0]["reactions"]["eyes"].as_u64()),
        (&json!("Bot"), Some(1))
    );
    let posted = |request: &ForgeRequest| request.method == "POST" && request.target.ends_with("/comments");
    let request = forge.wait_for_request("the answer", |request| {
        posted(request) && request.credential == Credential::Installation
    });
    assert_eq!(request.await.status, Some(201));
}

#[tokio::test]
async fn a_pull_request_follows_its_branch_until_it_is_merged() {
    let Some((forge, ann, bob)) = start().await else { return };
    let pull = json!({"title": "Fix", "head": "fix", "base": "main"});
    let pulls = format!("/repos/{APP}/pulls");
    assert_eq!(ann.request(Method::POST, &pulls, &pull).await.0, 422, "there is no branch");
    let first = ann.push(APP, "fix", &[("src/a.txt", "one\n2\nthree\n")]).await;
    let number = ann.open_pull(APP, "fix", "main", "Fix", "Because.").await;
    let (status, answer) = ann.request(Method::POST, &pulls, &pull).await;
    let message = &answer["errors"][0]["message"];
    assert_eq!((status, message), (422, &json!("A pull request already exists for acme:fix.")));
    let comment = ann.review_comment(APP, number, "src/a.txt", 2, "Why?").await;
    let comments = ann.review_comments(APP, number).await;
    assert_eq!(comments[0]["diff_hunk"], "@@ -1,3 +1,3 @@\n one\n-two\n+2", "{comment}");
    let second = forge.bot(&json!({})).await.push(APP, "fix", &[("new.txt", "new\n")]).await;
    let moved =
        forge.wait_for_delivery("the push", |sent| sent.action.as_deref() == Some("synchronize")).await;
    let payload = &moved.payload;
    assert_eq!((&payload["before"], &payload["after"]), (&json!(first), &json!(second)));
    assert_eq!(payload["sender"]["login"], "flotilla[bot]");
    let read = ann.pull(APP, number).await;
    assert_eq!(
        (&read["head"]["sha"], &read["additions"], &read["changed_files"]),
        (&json!(second), &json!(2), &json!(2))
    );
    assert!(ann.issue(APP, number).await["pull_request"].is_object(), "it is an issue as well");
    ann.push(APP, "main", &[("README.md", "changed\n")]).await;
    let merge = format!("{pulls}/{number}/merge");
    assert_eq!(bob.request(Method::PUT, &merge, &json!({})).await.0, 403, "Bob only reads");
    let merged = ann.merge(APP, number).await;
    assert_eq!(ann.commits(APP, "main").await[0]["sha"], merged);
    for (path, want) in [("README.md", "changed\n"), ("new.txt", "new\n"), ("src/a.txt", "one\n2\nthree\n")] {
        assert_eq!(ann.file(APP, "main", path).await.as_deref(), Some(want));
    }
    let fork = bob.fork(APP).await;
    bob.push(&fork, "mine", &[("of-bob.txt", "bob\n")]).await;
    let number = bob.open_pull(APP, "bob:mine", "main", "From outside", "").await;
    let (_, files) = ann.request(Method::GET, &format!("{pulls}/{number}/files"), &Value::Null).await;
    assert_eq!((files.as_array().unwrap().len(), &files[0]["filename"]), (1, &json!("of-bob.txt")));
}

#[tokio::test]
async fn a_token_opens_what_it_was_made_for() {
    let Some((forge, ann, bob)) = start().await else { return };
    forge.repository("acme/other", &[], Visibility::Private).await;
    let read = async |person: &Person, name: &str| {
        person.request(Method::GET, &format!("/repos/{name}"), &Value::Null).await
    };
    let stranger = forge.bearer("stranger", "ghp_unknown");
    assert_eq!(read(&stranger, APP).await.1["message"], "Bad credentials");
    assert_eq!(read(&ann, "acme/other").await.0, 404);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    for (iat, exp, want) in [(now, now + 540, 200), (now, now + 660, 401), (now - 600, now - 60, 401)] {
        let jwt = forge.app.sign(&json!({"iat": iat, "exp": exp, "iss": forge.app.id}));
        let app = forge.bearer("flotilla", &jwt);
        assert_eq!(app.request(Method::GET, "/app", &Value::Null).await.0, want, "{iat} {exp}");
    }
    let reader = forge
        .bot(&json!({"repositories": ["app"], "permissions": {"contents": "read", "issues": "read"}}))
        .await;
    assert_eq!(read(&reader, "acme/other").await.0, 404);
    let (status, listed) = reader.request(Method::GET, "/installation/repositories", &Value::Null).await;
    assert_eq!((status, &listed["total_count"]), (200, &json!(1)));
    let refused = reader.request(Method::POST, ISSUES, &json!({"title": "No"})).await;
    assert_eq!((refused.0, &refused.1["message"]), (403, &json!("Resource not accessible by integration")));
    for (person, want) in [(&stranger, "could not read Username"), (&reader, "403"), (&bob, "403")] {
        let refusal = person.try_push(APP, "main", &[]).await.unwrap_err();
        assert!(refusal.contains(want), "{}: {refusal}", person.login);
    }
    forge.delay_tokens(2).await;
    let fresh = forge.bot(&json!({})).await;
    let statuses = [read(&fresh, APP).await.0, read(&fresh, APP).await.0, read(&fresh, APP).await.0];
    assert_eq!(statuses, [401, 403, 200]);
    forge.change_installation("acme", InstallationChange::Permissions(vec![("issues", "read")])).await;
    assert_eq!(fresh.request(Method::POST, ISSUES, &json!({"title": "No"})).await.0, 403);
    forge.expire_tokens().await;
    assert_eq!(read(&fresh, APP).await.0, 401);
    for (login, want) in [("ann", "write"), ("bob", "read"), ("nobody", "none"), ("admin", "admin")] {
        let path = format!("/repos/{APP}/collaborators/{login}/permission");
        let (_, answer) = ann.request(Method::GET, &path, &Value::Null).await;
        assert_eq!(answer["permission"], want, "{login}");
    }
}

#[tokio::test]
async fn the_double_fails_on_command() {
    let Some((forge, ann, _)) = start().await else { return };
    let target = format!("/api/v3{ISSUES}");
    let headers = vec![("retry-after", "7".to_owned())];
    forge.fail(1, "GET", &target, ForgeFault::Answer { status: 502, headers, body: "{}".to_owned() });
    forge.fail(1, "GET", &target, ForgeFault::Hang);
    forge.fail(1, "GET", &target, ForgeFault::Close);
    let get = || ann.gate.client.get(format!("{}{target}", forge.url)).bearer_auth(&ann.token);
    let send = || get().header("user-agent", "ann").send();
    let failed = send().await.unwrap();
    assert_eq!((failed.status().as_u16(), &failed.headers()["retry-after"]), (502, &"7".parse().unwrap()));
    let hung = tokio::spawn(send());
    forge.wait_for_request("the request that hangs", |request| request.status.is_none()).await;
    hung.abort();
    let broken = async { send().await?.bytes().await };
    assert!(broken.await.is_err());
    let fine = send().await.unwrap();
    let known = get().header("user-agent", "ann").header("if-none-match", fine.headers()["etag"].clone());
    assert_eq!((fine.status().as_u16(), known.send().await.unwrap().status().as_u16()), (200, 304));
    assert_eq!(get().send().await.unwrap().status().as_u16(), 403, "GitHub wants a user agent");
    forge.limit_writes(SecondaryLimit { writes: 1, status: 403, retry_after_seconds: 60 });
    ann.open_issue(APP, "One", "").await;
    let (status, answer) = ann.request(Method::POST, ISSUES, &json!({"title": "Two"})).await;
    assert_eq!(status, 403);
    assert!(answer["message"].as_str().unwrap().contains("secondary rate limit"), "{answer}");
}

#[tokio::test]
async fn a_failed_webhook_is_sent_again_only_on_demand() {
    let Some((forge, ann, _)) = start().await else { return };
    ann.open_issue(APP, "Nobody listens", "").await;
    let failed = forge.wait_for_delivery("the issue", |sent| sent.event == "issues").await;
    assert_eq!(failed.status_code, 0);
    let broken = receive(StatusCode::INTERNAL_SERVER_ERROR).await;
    forge.set_webhook(&broken.url).await;
    forge.deliver("ping", &json!({"zen": "Half measures"})).await;
    let refused = forge.wait_for_delivery("the ping", |sent| sent.event == "ping").await;
    assert_eq!((refused.status_code, broken.received.borrow().len()), (500, 1));
    let receiver = receive(StatusCode::OK).await;
    forge.set_webhook(&receiver.url).await;
    let app = forge.bearer("flotilla", &forge.app.jwt());
    let list = |cursor: &str| format!("/app/hook/deliveries?per_page=1{cursor}");
    let (_, first) = app.request(Method::GET, &list(""), &Value::Null).await;
    assert_eq!((&first[0]["guid"], &first[0]["status_code"]), (&json!(refused.guid), &json!(500)));
    let (_, second) =
        app.request(Method::GET, &list(&format!("&cursor=v1_{}", refused.id)), &Value::Null).await;
    assert_eq!(second[0]["guid"], failed.guid);
    let attempts = format!("/app/hook/deliveries/{}/attempts", failed.id);
    assert_eq!(app.request(Method::POST, &attempts, &Value::Null).await.0, 202);
    let again = forge.wait_for_delivery("the second attempt", |sent| sent.is_redelivery).await;
    assert_eq!((again.guid, again.status_code, again.payload), (failed.guid, 200, failed.payload));
    assert_eq!(forge.deliveries().len(), 3, "nothing else was sent");
}
