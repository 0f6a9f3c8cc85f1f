//! Who may ask for what.

use super::{APP, Testbed, text};
use testkit::forge::rules::{Role, Visibility};

#[tokio::test]
async fn a_person_without_the_right_gets_one_line_and_nothing_happens() {
    let Some(testbed) = Testbed::start().await else { return };
    let forge = &testbed.forge;
    let public = "acme/open";
    forge.repository(public, &[("a", "1\n")], Visibility::Public).await;
    let issue = testbed.ann.open_issue(public, "A thing", "").await;
    for (login, role, has) in [
        // Everybody may read a public repository.
        ("bea", Role::Stranger, "read"),
        ("cyd", Role::Read, "read"),
        ("dan", Role::Triage, "triage"),
    ] {
        let person = forge.user(login).await;
        forge.set_role(&person, public, role).await;
        person.comment(public, issue, "/flotilla @text leak").await;
        let refusal = format!("{login} has {has} access here, and this needs write access.");
        let is_told = async || {
            let comments = testbed.ann.comments(public, issue).await;
            comments.iter().any(|comment| text(&comment["body"]).contains(&refusal))
        };
        testkit::eventually(&refusal, is_told).await;
    }
    // Who may read may ask what the commands are.
    let person = forge.user("cyd").await;
    person.comment(public, issue, "/flotilla help").await;
    let is_told = async || {
        let comments = testbed.ann.comments(public, issue).await;
        comments.iter().any(|comment| text(&comment["body"]).contains("| `/flotilla stop` |"))
    };
    testkit::eventually("the commands are told", is_told).await;
    assert!(testbed.stack.model.journal.requests().is_empty(), "no model was asked");
    let all = rpc::v1::ListSessionsRequest::default();
    let sessions = testbed.stack.api.sessions().list_sessions(all).await.unwrap().into_inner().sessions;
    assert_eq!(sessions, []);
}

#[tokio::test]
async fn a_bot_a_quotation_and_hidden_text_start_nothing() {
    let Some(testbed) = Testbed::start().await else { return };
    let ann = &testbed.ann;
    let issue = ann.open_issue(APP, "A thing", "<!--\n/flotilla @text hidden\n-->").await;
    for body in
        ["> /flotilla @text quoted", "```\n/flotilla @text code\n```", "see /flotillakit/ for more", "hello"]
    {
        ann.comment(APP, issue, body).await;
    }
    let bot = testbed.forge.bot(&serde_json::json!({})).await;
    bot.comment(APP, issue, "/flotilla @text again").await;
    let are_over = async || {
        let deliveries = testbed.deliveries().await;
        deliveries.len() >= 6 && deliveries.iter().all(|delivery| delivery.state == "ignored")
    };
    testkit::eventually("all deliveries are ignored", are_over).await;
    assert!(testbed.stack.model.journal.requests().is_empty(), "no model was asked");
}
