//! The tokens of callers, each only for the calls of its caller.

use crate::harness::Broker;
use chassis::grpc;
use futures::stream;
use rpc::{
    client::Bearer,
    v1::{
        self, broker_service_client::BrokerServiceClient, forge_service_client::ForgeServiceClient,
        push_request::Part,
    },
};
use tonic::Status;

const GATEWAY: &str = "token-of-all-gateways";
const WORKER: &str = "token-of-all-workers";

/// The calls that are not for a token.
async fn refused(broker: &Broker, token: &str) -> Vec<&'static str> {
    let channel = grpc::channel(&broker.url).unwrap();
    let mut client = BrokerServiceClient::with_interceptor(channel.clone(), Bearer::new(token).unwrap());
    let mut forge = ForgeServiceClient::with_interceptor(channel, Bearer::new(token).unwrap());
    let header = v1::PushRequest { part: Some(Part::Header(v1::PushHeader::default())) };
    let ends = [
        ("FlushEgress", client.flush_egress(v1::FlushEgressRequest::default()).await.err()),
        ("GrantHosts", client.grant_hosts(v1::GrantHostsRequest::default()).await.err()),
        ("OpenEgress", client.open_egress(v1::OpenEgressRequest::default()).await.err()),
        ("PullLayer", client.pull_layer(v1::PullLayerRequest::default()).await.err()),
        ("Push", client.push(stream::iter([header])).await.err()),
        ("PutSecret", client.put_secret(v1::PutSecretRequest::default()).await.err()),
        ("ReadPage", client.read_page(v1::ReadPageRequest::default()).await.err()),
        ("ResolveImage", client.resolve_image(v1::ResolveImageRequest::default()).await.err()),
        (
            "AcknowledgeComment",
            forge.acknowledge_comment(v1::AcknowledgeCommentRequest::default()).await.err(),
        ),
        ("CheckDelivery", forge.check_delivery(v1::CheckDeliveryRequest::default()).await.err()),
        ("GetForgeApp", forge.get_forge_app(v1::GetForgeAppRequest {}).await.err()),
        (
            "GetForgeInstallation",
            forge.get_forge_installation(v1::GetForgeInstallationRequest::default()).await.err(),
        ),
        (
            "GetForgePermission",
            forge.get_forge_permission(v1::GetForgePermissionRequest::default()).await.err(),
        ),
        (
            "GetForgeRepository",
            forge.get_forge_repository(v1::GetForgeRepositoryRequest::default()).await.err(),
        ),
        (
            "ListDeliveryAttempts",
            forge.list_delivery_attempts(v1::ListDeliveryAttemptsRequest::default()).await.err(),
        ),
        (
            "RepeatDeliveryAttempt",
            forge.repeat_delivery_attempt(v1::RepeatDeliveryAttemptRequest::default()).await.err(),
        ),
        (
            "OpenForgePullRequest",
            forge.open_forge_pull_request(v1::OpenForgePullRequestRequest::default()).await.err(),
        ),
        ("PutForgeApp", forge.put_forge_app(v1::PutForgeAppRequest::default()).await.err()),
        ("PutForgeCheck", forge.put_forge_check(v1::PutForgeCheckRequest::default()).await.err()),
        ("PutForgeComment", forge.put_forge_comment(v1::PutForgeCommentRequest::default()).await.err()),
    ];
    let code = |(name, status): (&'static str, Option<Status>)| {
        // Each request lacks what it needs.
        let code = rpc::status::code_of(&status.expect(name)).unwrap();
        assert_ne!(code, "token_invalid", "{name}");
        (code == "caller_not_allowed").then_some(name)
    };
    ends.into_iter().filter_map(code).collect()
}

#[tokio::test]
async fn the_token_of_a_caller_is_only_for_its_calls() {
    let tokens = format!("gateway:{GATEWAY},worker:{WORKER},worker:{WORKER}-next");
    let broker = Broker::start(&["--tokens", &tokens]).await;
    let of_workers = [
        "GrantHosts",
        "OpenEgress",
        "PullLayer",
        "ReadPage",
        "ResolveImage",
        "AcknowledgeComment",
        "OpenForgePullRequest",
        "PutForgeCheck",
    ];
    assert_eq!(refused(&broker, GATEWAY).await, of_workers);
    let of_gateways = [
        "FlushEgress",
        "PutSecret",
        "CheckDelivery",
        "GetForgeApp",
        "GetForgeInstallation",
        "GetForgePermission",
        "GetForgeRepository",
        "ListDeliveryAttempts",
        "RepeatDeliveryAttempt",
        "PutForgeApp",
    ];
    assert_eq!(refused(&broker, WORKER).await, of_gateways);
    assert_eq!(refused(&broker, &format!("{WORKER}-next")).await, of_gateways);
    assert!(broker.log().contains("PutSecret was refused"), "operators see it");
}

#[tokio::test]
async fn a_token_of_a_caller_that_nobody_knows_stops_the_start() {
    let error = Broker::start_error(&["--tokens", "somebody:aaaaaaaaaaaaaaaa"]).await;
    assert!(error.contains("neither gateway nor worker") && !error.contains("aaaa"), "{error}");
}
