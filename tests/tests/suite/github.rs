//! Work on issues and pull requests of GitHub, at a double of it: from a comment to a pull request.

mod deliveries;
mod people;

use e2e::{Options, Stack, api::Api, settings::Outside};
use rpc::v1;
use serde_json::{Value, json};
use testkit::forge::{
    Forge,
    person::Person,
    rules::{ForgeRequest, Role, Subject, Visibility},
};

use crate::guidance::tool;

/// The name of the double.
const HOST: &str = "ghe.example.com";
const APP: &str = "acme/app";
/// What a comment says of work that has ended well.
const DONE: &str = "**Flotilla: done**";

/// A stack with an App, whose installation belongs to the tenant of `stack.api`, and a private repository in which Ann may write.
struct Testbed {
    stack: Stack,
    forge: Forge,
    ann: Person,
}

impl Testbed {
    /// `None`: the double cannot run here.
    async fn start() -> Option<Self> {
        let testbed = Self::unbound().await?;
        let request = testbed.binding();
        testbed.operator().github().bind_installation(request).await.expect("an installation of the tenant");
        Some(testbed)
    }

    /// The same before the installation belongs to anybody.
    async fn unbound() -> Option<Self> {
        Self::of(Options::default()).await
    }

    /// The same with other options.
    async fn of(options: Options) -> Option<Self> {
        let forge = Forge::start(HOST).await?;
        let outside = Outside {
            hosts: vec![format!("{HOST}={}", forge.address)],
            git_certificate: Some(forge.certificate.clone()),
            ..Outside::default()
        };
        let stack = Stack::with(Options { broker: true, outside, ..options }).await;
        let ann = forge.user("ann").await;
        forge
            .repository(APP, &[("README.md", "An app.\n"), ("src/a.txt", "one\n")], Visibility::Private)
            .await;
        forge.set_role(&ann, APP, Role::Write).await;
        forge.set_webhook(&format!("{}/webhooks/github", stack.gateway_url())).await;
        let testbed = Self { stack, forge, ann };
        let request = testbed.setup();
        testbed.operator().github().setup_github(request).await.expect("an App");
        Some(testbed)
    }

    fn operator(&self) -> Api {
        Api::with_key(self.stack.gateway_url(), e2e::settings::OPERATOR_KEY)
    }

    fn setup(&self) -> v1::SetupGithubRequest {
        let mut request = v1::SetupGithubRequest::default();
        request.app_id = self.forge.app.id;
        request.web_url.clone_from(&self.forge.url);
        request.api_url = format!("{}/api/v3", self.forge.url);
        request.private_key = self.forge.app.key.as_bytes().to_vec();
        request.webhook_secret = self.forge.app.webhook_secret.as_bytes().to_vec();
        request
    }

    fn binding(&self) -> v1::BindInstallationRequest {
        v1::BindInstallationRequest {
            installation_id: self.forge.app.installation,
            tenant_id: self.stack.api.tenant_id.clone(),
        }
    }

    /// Waits until so many requests were answered that have this method, and this text in their target.
    async fn until(&self, count: usize, method: &str, part: &str) {
        let is_meant = |request: &&ForgeRequest| {
            request.method == method
                && request.target.contains(part)
                && request.status.is_some_and(|status| status < 300)
        };
        let what = format!("{count} {method} {part}");
        self.forge.wait_until(&what, |all| all.iter().filter(is_meant).count() >= count).await;
    }

    /// The comments of the App on an issue.
    async fn told(&self, number: u64) -> Vec<String> {
        let comments = self.ann.comments(APP, number).await;
        let own = comments.iter().filter(|comment| comment["user"]["login"] == "flotilla[bot]");
        own.map(|comment| comment["body"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until the comment of the App on an issue says how the work ended, and has these words. The request, which it shows
    /// as well, has them before.
    async fn until_told(&self, number: u64, end: &str, words: &str) {
        let is_told =
            async || self.told(number).await.iter().any(|text| text.contains(end) && text.contains(words));
        testkit::eventually(words, is_told).await;
    }

    /// What became of the deliveries, the newest first.
    async fn deliveries(&self) -> Vec<v1::GithubDelivery> {
        let request = v1::ListDeliveriesRequest::default();
        self.operator().github().list_deliveries(request).await.unwrap().into_inner().deliveries
    }
}

/// A comment that asks for a file and an answer.
fn task(path: &str, content: &str, answer: &str) -> String {
    let write = tool("write", &json!({"filePath": format!("/workspace/{path}"), "content": content}));
    format!("/flotilla\n{write}\n@text {answer}")
}

#[tokio::test]
async fn a_comment_becomes_a_pull_request_and_the_next_one_continues_it() {
    let Some(testbed) = Testbed::start().await else { return };
    let (forge, ann) = (&testbed.forge, &testbed.ann);
    let issue = ann.open_issue(APP, "The app says nothing", "Please let it greet.").await;
    let comment = ann.comment(APP, issue, &task("greeting.txt", "Hello\n", "It greets now.")).await;
    testbed.until(1, "POST", "/check-runs").await;

    assert_eq!(ann.reactions(APP, Subject::Comment(comment)).await, ["flotilla[bot] eyes"]);
    let pulls = ann.pulls(APP).await;
    assert_eq!(pulls.len(), 1, "{pulls:?}");
    let (number, branch) = (pulls[0]["number"].as_u64().unwrap(), pulls[0]["head"]["ref"].as_str().unwrap());
    assert_eq!(branch, format!("flotilla/{issue}-the-app-says-nothing"));
    assert_eq!(
        (pulls[0]["title"].as_str(), pulls[0]["base"]["ref"].as_str()),
        (Some("The app says nothing"), Some("main"))
    );
    assert!(pulls[0]["body"].as_str().unwrap().contains(&format!("Closes #{issue}. ann asked for it.")));
    assert_eq!(ann.file(APP, branch, "greeting.txt").await.as_deref(), Some("Hello\n"));
    let told = testbed.told(issue).await;
    assert_eq!(told.len(), 1, "{told:?}");
    for words in ["**Flotilla: done**", "ann asked", "It greets now.", &format!("The work is in #{number}")] {
        assert!(told[0].contains(words), "{words}: {told:?}");
    }
    let check = async |testbed: &Testbed| {
        let commit = testbed.ann.commits(APP, branch).await[0]["sha"].as_str().unwrap().to_owned();
        testbed.ann.check_runs(APP, &commit).await
    };
    let checks = check(&testbed).await;
    assert_eq!((checks.len(), checks[0]["conclusion"].as_str()), (1, Some("success")), "{checks:?}");

    // The model knows the issue, as what others have written.
    let request = testbed.stack.model.journal.requests()[0].body.to_string();
    assert!(
        request.contains("ann asks this on the issue") && request.contains("> Please let it greet."),
        "{request}"
    );

    // A comment on the pull request goes on in the same session, with the same comment and the same pull request.
    ann.comment(APP, number, &task("greeting.txt", "Hello, Ann\n", "By name.")).await;
    testbed.until(2, "POST", "/check-runs").await;
    assert_eq!(ann.file(APP, branch, "greeting.txt").await.as_deref(), Some("Hello, Ann\n"));
    assert_eq!((ann.pulls(APP).await.len(), testbed.told(number).await.len()), (1, 0));
    let told = testbed.told(issue).await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("By name."), "{told:?}");
    let checks = check(&testbed).await;
    assert_eq!((checks.len(), checks[0]["conclusion"].as_str()), (1, Some("success")), "{checks:?}");
    let sessions =
        testbed.stack.api.sessions().list_sessions(v1::ListSessionsRequest::default()).await.unwrap();
    let sessions = sessions.into_inner().sessions;
    assert_eq!((sessions.len(), sessions[0].class()), (1, v1::SessionClass::Pr), "{sessions:?}");

    // No token was asked for more than one repository and one purpose.
    let credentials = forge.requests();
    assert!(credentials.iter().any(|request| request.target.contains("/access_tokens")), "{credentials:?}");
}

#[tokio::test]
async fn three_comments_at_once_are_three_turns_of_one_session() {
    let Some(testbed) = Testbed::start().await else { return };
    let ann = &testbed.ann;
    let issue = ann.open_issue(APP, "Three things", "").await;
    let comments = ["one", "two", "three"].map(|word| {
        let text = format!("/flotilla @text {word}");
        async move { ann.comment(APP, issue, &text).await }
    });
    let comments = futures::future::join_all(comments).await;
    testbed.until(3, "POST", "/reactions").await;
    for comment in comments {
        assert_eq!(ann.reactions(APP, Subject::Comment(comment)).await.len(), 1);
    }
    testbed.until_told(issue, DONE, "").await;
    assert_eq!(testbed.told(issue).await.len(), 1);
    let sessions =
        testbed.stack.api.sessions().list_sessions(v1::ListSessionsRequest::default()).await.unwrap();
    let sessions = sessions.into_inner().sessions;
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    let talk = testbed.stack.api.conversation(&sessions[0].id).await;
    let prompts: Vec<_> = talk.iter().filter(|(info, _)| info["role"] == "user").collect();
    assert_eq!(prompts.len(), 3, "{talk:?}");
}

#[tokio::test]
async fn an_end_without_a_pull_request_is_told_too() {
    let Some(testbed) = Testbed::start().await else { return };
    let ann = &testbed.ann;
    let issue = ann.open_issue(APP, "A question", "").await;
    ann.comment(APP, issue, "/flotilla @text Because of the tides.").await;
    testbed.until_told(issue, DONE, "Because of the tides.").await;
    ann.comment(APP, issue, "/flotilla @status 400").await;
    testbed.until_told(issue, "**Flotilla: failed**", "").await;
    assert_eq!((testbed.told(issue).await.len(), ann.pulls(APP).await.len()), (1, 0));
    // What may not be published is told as well.
    ann.comment(APP, issue, &task(".github/workflows/ci.yml", "on: push\n", "Done.")).await;
    testbed.until_told(issue, "could not be published", ".github/workflows/ci.yml").await;
    assert_eq!(ann.pulls(APP).await.len(), 0);
}

/// The text of a value, for messages.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
