//! The inbox of deliveries.

use super::{APP, DONE, Testbed};
use e2e::{Options, api::assert_refused};
use rpc::v1;
use serde_json::json;
use tonic::Code;

/// Sends a delivery as anybody could.
async fn send(testbed: &Testbed, headers: &[(&str, &str)], body: &str) -> (u16, String) {
    let url = format!("{}/webhooks/github", testbed.stack.gateway_url());
    let mut request = reqwest::Client::new().post(url).body(body.to_owned());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.send().await.unwrap();
    let code = response.headers().get("x-flotilla-code").map(|code| code.to_str().unwrap().to_owned());
    (response.status().as_u16(), code.unwrap_or_default())
}

#[tokio::test]
async fn only_what_github_has_signed_is_stored() {
    let Some(testbed) = Testbed::start().await else { return };
    let body = json!({"action": "created"}).to_string();
    let named = [("x-github-delivery", "g1"), ("x-github-event", "issue_comment")];
    let signed = |signature: &'static str| [named[0], named[1], ("x-hub-signature-256", signature)];
    let zeros = "sha256=0000000000000000000000000000000000000000000000000000000000000000";
    for (headers, body, want) in [
        (&named[..], body.as_str(), (401, "signature_invalid")),
        (&signed(zeros)[..], &body, (401, "signature_invalid")),
        (&signed("sha1=00")[..], &body, (401, "signature_invalid")),
        (&named[..1], &body, (400, "delivery_invalid")),
        (&[("x-github-delivery", "a b"), named[1]][..], &body, (400, "delivery_invalid")),
        (&signed(zeros)[..], "payload=%7B%7D", (400, "delivery_invalid")),
        (&signed(zeros)[..], "", (400, "delivery_invalid")),
        (&signed(zeros)[..], &"x".repeat(domain::limits::DELIVERY_BYTES_MAX + 1), (413, "body_too_large")),
    ] {
        let (status, code) = send(&testbed, headers, body).await;
        assert_eq!((status, code.as_str()), want, "{headers:?}");
    }
    assert_eq!(testbed.deliveries().await, []);
}

#[tokio::test]
async fn a_repeated_delivery_changes_nothing() {
    let Some(testbed) = Testbed::start().await else { return };
    let ann = &testbed.ann;
    let issue = ann.open_issue(APP, "A question", "").await;
    ann.comment(APP, issue, "/flotilla @text once").await;
    testbed.until_told(issue, DONE, "once").await;
    let comment = testbed.deliveries().await.into_iter().find(|it| it.state == "done").unwrap();
    assert_eq!((comment.event.as_str(), comment.attempts), ("issue_comment", 1), "{comment:?}");
    let request = v1::ReplayDeliveryRequest { guid: comment.guid.clone() };
    testbed.operator().github().replay_delivery(request).await.unwrap();
    let is_over = async || {
        let again = testbed.deliveries().await.into_iter().find(|it| it.guid == comment.guid).unwrap();
        again.state == "done"
    };
    testkit::eventually("the delivery is processed again", is_over).await;
    assert_eq!(testbed.stack.model.journal.requests().len(), 1, "the comment is one prompt");
    let unknown = v1::ReplayDeliveryRequest { guid: "none".to_owned() };
    let refused = testbed.operator().github().replay_delivery(unknown).await;
    assert_refused(refused, Code::NotFound, "delivery_not_found");
}

#[tokio::test]
async fn what_github_could_not_send_is_sent_again() {
    let options = Options { gateway: &["--missed-deliveries-ms", "200"], ..Options::default() };
    let Some(mut testbed) = Testbed::of(options).await else { return };
    testbed.operator().github().bind_installation(testbed.binding()).await.unwrap();
    let issue = testbed.ann.open_issue(APP, "A question", "").await;
    // Without the broker, nobody can check the signature of a delivery.
    testbed.stack.stop_broker().await;
    testbed.ann.comment(APP, issue, "/flotilla @text missed").await;
    let failed = testbed.forge.wait_for_delivery("the comment", |sent| sent.event == "issue_comment").await;
    assert_eq!(failed.status_code, 503);
    testbed.stack.start_broker().await;
    testbed.until_told(issue, DONE, "missed").await;
    let sent: Vec<_> =
        testbed.forge.deliveries().into_iter().filter(|sent| sent.guid == failed.guid).collect();
    assert!(sent.len() >= 2 && sent[1..].iter().all(|sent| sent.is_redelivery), "{sent:?}");
    assert_eq!(testbed.stack.model.journal.requests().len(), 1);
}

#[tokio::test]
async fn deliveries_for_nobody_wait_until_somebody_has_the_installation() {
    let Some(testbed) = Testbed::unbound().await else { return };
    let ann = &testbed.ann;
    let issue = ann.open_issue(APP, "A question", "").await;
    ann.comment(APP, issue, "/flotilla @text late").await;
    let is_dead = async || testbed.deliveries().await.iter().any(|it| it.state == "dead");
    testkit::eventually("the delivery is dead", is_dead).await;
    let dead = testbed.deliveries().await.into_iter().find(|it| it.state == "dead").unwrap();
    assert!(
        dead.note.contains(&format!("flotilla github bind {}", testbed.forge.app.installation)),
        "{dead:?}"
    );
    testbed.operator().github().bind_installation(testbed.binding()).await.unwrap();
    testbed.until_told(issue, DONE, "late").await;

    // An installation has one owner, and only the operator gives it away.
    let other = e2e::api::Api::new_tenant(testbed.stack.gateway_url(), "other").await;
    let stolen = v1::BindInstallationRequest { tenant_id: other.tenant_id.clone(), ..testbed.binding() };
    let refused = testbed.operator().github().bind_installation(stolen).await;
    assert_refused(refused, Code::AlreadyExists, "installation_taken");
    let by_tenant = testbed.stack.api.github().bind_installation(testbed.binding()).await;
    assert_refused(by_tenant, Code::PermissionDenied, "operator_only");
    let seen = other.github().get_github(v1::GetGithubRequest {}).await.unwrap().into_inner();
    assert_eq!((seen.app.is_some(), seen.installations.len()), (true, 0));
}
