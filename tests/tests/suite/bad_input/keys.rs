//! Authentication: missing, wrong and revoked keys, and keys of another tenant.

use e2e::{
    Options, Stack,
    api::{Api, assert_refused, code},
    settings::OPERATOR_KEY,
    turn::assert_works,
};
use rpc::v1::{self, session_service_client::SessionServiceClient};
use tonic::{Code, Request, Status};

/// Lists sessions with exactly these headers.
async fn list(gateway_url: &str, headers: &[(&'static str, &str)]) -> Result<(), Status> {
    let mut client = SessionServiceClient::new(chassis::grpc::channel(gateway_url).unwrap());
    let mut request = Request::new(v1::ListSessionsRequest::default());
    for (name, value) in headers {
        request.metadata_mut().insert(*name, value.parse().unwrap());
    }
    client.list_sessions(request).await.map(|_| ())
}

#[tokio::test]
async fn a_call_without_a_valid_key_is_refused() {
    let stack = Stack::without_sandbox().await;
    let url = stack.gateway_url();
    let key = &stack.api.key;
    let bearer = |key: &str| format!("Bearer {key}");
    list(url, &[("authorization", &bearer(key))]).await.unwrap();
    assert_refused(list(url, &[]).await, Code::Unauthenticated, "key_missing");
    for other in [key.clone(), format!("Basic {key}"), format!("bearer{key}"), String::new()] {
        assert_refused(list(url, &[("authorization", &other)]).await, Code::Unauthenticated, "key_missing");
    }
    let flipped = key.replace(&key[key.len() - 1..], "-");
    for other in
        ["flk_unknown", "", " ", &key[..key.len() - 1], &flipped, &format!("{key}x"), &"k".repeat(8_000)]
    {
        let refused = list(url, &[("authorization", &bearer(other))]).await;
        assert_refused(refused, Code::Unauthenticated, "key_unknown");
    }
    assert_works(&stack.api, &stack.session().await).await;
}

#[tokio::test]
async fn guessing_keys_slows_down_only_the_guesser() {
    let stack = Stack::without_sandbox().await;
    let (url, http) = (stack.gateway_url(), reqwest::Client::new());
    let mut number = 0;
    let mut guess = || {
        number += 1;
        format!("flk_{number:08}guess")
    };
    let status = loop {
        let refused = list(url, &[("authorization", &format!("Bearer {}", guess()))]).await.unwrap_err();
        if code(&refused) != "key_unknown" {
            break refused;
        }
    };
    let wait = rpc::status::retry_after_of(&status).unwrap();
    assert_eq!((status.code(), code(&status).as_str()), (Code::ResourceExhausted, "too_many_attempts"));
    // Guessing the operator's key from there is slowed down as well. A busy machine may guess as slowly as attempts come back.
    let refused = loop {
        let operator = Api::with_key(url, &guess());
        let refused = operator.tenants().list_tenants(v1::ListTenantsRequest::default()).await.unwrap_err();
        if code(&refused) != "operator_only" {
            break refused;
        }
    };
    assert_eq!((refused.code(), code(&refused).as_str()), (Code::ResourceExhausted, "too_many_attempts"));
    let ask = async |key: &str| {
        http.get(format!("{url}/config")).basic_auth("anybody", Some(key)).send().await.unwrap()
    };
    let refused = loop {
        let answer = ask(&guess()).await;
        if answer.status() != 401 {
            break answer;
        }
    };
    let header = |name: &str| refused.headers()[name].to_str().unwrap().to_owned();
    assert_eq!((refused.status().as_u16(), header("x-flotilla-code")), (429, "too_many_attempts".to_owned()));
    assert!((1..=60).contains(&header("retry-after").parse::<u64>().unwrap()));
    let body: serde_json::Value = refused.json().await.unwrap();
    assert!(body["data"]["message"].as_str().unwrap().contains("too many wrong keys"), "{body}");
    // A key that was valid before does not have to wait, even at the same address.
    assert_eq!(ask(&stack.api.key).await.status(), 200);
    assert_works(&stack.api, &stack.session().await).await;
    assert_eq!(
        stack
            .operator()
            .tenants()
            .list_tenants(v1::ListTenantsRequest::default())
            .await
            .unwrap()
            .into_inner()
            .tenants
            .len(),
        1
    );
    // The guesser may try again after a short time.
    assert!(wait.as_secs() <= 60, "{wait:?}");
    let again = async { while ask("flk_again___guess").await.status() != 401 {} };
    testkit::within("another guess is looked up", again).await;
}

#[tokio::test]
async fn connections_without_a_valid_key_have_few_places() {
    // A sixteenth of the places are for connections of one address that have sent no valid key.
    let stack =
        Stack::with(Options { connections_max: 64, workers: 0, sandbox: false, ..Options::default() }).await;
    let url = stack.gateway_url();
    let ask = async |client: &reqwest::Client, key: &str| {
        client.get(format!("{url}/config")).basic_auth("x", Some(key)).send().await.unwrap().status().as_u16()
    };
    let client = || reqwest::Client::builder().build().unwrap();
    let keyless: Vec<_> = (0..4).map(|_| client()).collect();
    for client in &keyless {
        assert_eq!(ask(client, "flk_wrong").await, 401);
    }
    let refused = client().get(format!("{url}/config")).send().await.unwrap();
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (503, &"5".parse().unwrap()));
    assert_eq!(refused.headers()["x-flotilla-code"], "connections_too_many");
    let body: serde_json::Value = refused.json().await.unwrap();
    assert_eq!(body["data"]["ref"], "connections_too_many", "{body}");
    let call = stack.api.at(url).projects().list_projects(v1::ListProjectsRequest::default()).await;
    assert_refused(call, Code::Unavailable, "connections_too_many");
    // A valid key on an open connection makes room, and clients with keys have places of their own, in both protocols.
    assert_eq!(ask(&keyless[0], &stack.api.key).await, 200);
    let keyed: Vec<_> = (0..6).map(|_| client()).collect();
    for client in &keyed {
        assert_eq!(ask(client, &stack.api.key).await, 200);
    }
    for api in (0..6).map(|_| stack.api.at(url)) {
        api.projects().list_projects(v1::ListProjectsRequest::default()).await.unwrap();
    }
    drop(keyed);
}

#[tokio::test]
async fn a_revoked_key_is_refused_at_once() {
    let stack = Stack::without_sandbox().await;
    let (api, session) = (&stack.api, stack.session().await);
    let request = v1::CreateKeyRequest {
        tenant_id: String::new(),
        name: "second".to_owned(),
        role: v1::KeyRole::Admin.into(),
    };
    let answer = api.tenants().create_key(request).await.unwrap().into_inner();
    let prefix = answer.key.unwrap().prefix;
    assert!(answer.secret.starts_with(&prefix) && answer.secret.len() > prefix.len() + 20);
    let second = Api::with_key(stack.gateway_url(), &answer.secret);
    assert_works(&second, &session).await;
    let revoke = async |api: &Api, prefix: &str| {
        let request = v1::RevokeKeyRequest { tenant_id: String::new(), prefix: prefix.to_owned() };
        api.tenants().revoke_key(request).await.map(|_| ())
    };
    revoke(api, &prefix).await.unwrap();
    assert_refused(second.prompt(&session, "@text x").await, Code::Unauthenticated, "key_unknown");
    assert_refused(revoke(&second, &prefix).await, Code::Unauthenticated, "key_unknown");
    for unknown in ["flk_00000000", "", "\0"] {
        assert_refused(revoke(api, unknown).await, Code::NotFound, "key_not_found");
    }
    let request = v1::ListKeysRequest::default();
    let keys = api.tenants().list_keys(request).await.unwrap().into_inner().keys;
    let ended: Vec<_> = keys.iter().filter(|key| key.revoked_at_ms > 0).map(|key| &key.prefix).collect();
    assert_eq!(ended, [&prefix]);
    assert_works(api, &session).await;
}

#[tokio::test]
async fn the_operator_must_name_an_existing_tenant() {
    let stack = Stack::without_sandbox().await;
    let url = stack.gateway_url();
    let other = stack.other_tenant().await;
    let operator = ("authorization", &*format!("Bearer {OPERATOR_KEY}"));
    let named = |id| ("x-flotilla-tenant", id);
    assert_refused(list(url, &[operator]).await, Code::InvalidArgument, "tenant_missing");
    for bad in ["acme", "", "00000000"] {
        assert_refused(list(url, &[operator, named(bad)]).await, Code::InvalidArgument, "tenant_invalid");
    }
    let nobody = "00000000-0000-0000-0000-000000000000";
    assert_refused(list(url, &[operator, named(nobody)]).await, Code::NotFound, "tenant_not_found");
    list(url, &[operator, named(&stack.api.tenant_id)]).await.unwrap();
    let own = ("authorization", &*format!("Bearer {}", stack.api.key));
    list(url, &[own, named(&stack.api.tenant_id)]).await.unwrap();
    for foreign in [&*other.tenant_id, nobody, "acme", ""] {
        assert_refused(list(url, &[own, named(foreign)]).await, Code::NotFound, "tenant_not_found");
    }
    let create = |name: &str| v1::CreateTenantRequest { name: name.to_owned() };
    let by_tenant = stack.api.tenants().create_tenant(create("evil")).await;
    assert_refused(by_tenant, Code::PermissionDenied, "operator_only");
    let operator = Api::with_key(url, OPERATOR_KEY);
    for (name, code) in
        [("", "name_empty"), ("a b", "name_invalid"), ("é", "name_invalid"), ("\0", "name_invalid")]
    {
        assert_refused(operator.tenants().create_tenant(create(name)).await, Code::InvalidArgument, code);
    }
    assert_works(&stack.api, &stack.session().await).await;
}

#[tokio::test]
async fn a_revoked_key_ends_its_streams_at_every_gateway() {
    let stack = Stack::gateway_alone().await;
    let second = stack.second_gateway().await;
    let request = v1::CreateKeyRequest {
        tenant_id: String::new(),
        name: "leaver".to_owned(),
        role: v1::KeyRole::Admin.into(),
    };
    let issued = stack.api.tenants().create_key(request).await.unwrap().into_inner();
    let leaver = stack.api.at(&second.url).of_key(&issued.secret);
    let mut stream =
        leaver.events().subscribe_all(v1::SubscribeAllRequest::default()).await.unwrap().into_inner();
    let get = |path: &str| {
        reqwest::Client::new().get(format!("{}{path}", second.url)).bearer_auth(&leaver.key).send()
    };
    let mut events = get("/event").await.unwrap();
    let colleague = stack.api.at(&second.url);
    let mut other =
        colleague.events().subscribe_all(v1::SubscribeAllRequest::default()).await.unwrap().into_inner();

    let prefix = issued.key.unwrap().prefix;
    let request = v1::RevokeKeyRequest { tenant_id: String::new(), prefix };
    stack.api.tenants().revoke_key(request).await.unwrap();
    let status = testkit::within("the end of the stream", async {
        loop {
            if let Err(status) = stream.message().await {
                break status;
            }
        }
    });
    assert_refused(Err::<(), _>(status.await), Code::Unauthenticated, "key_unknown");
    testkit::within("the end of the events", async { while events.chunk().await.unwrap().is_some() {} })
        .await;
    testkit::eventually("calls are refused", async || get("/session").await.unwrap().status() == 401).await;
    // Another key of the tenant goes on.
    let session = colleague.session(None).await;
    let created = async {
        loop {
            let item = format!("{:?}", other.message().await.unwrap().unwrap());
            if item.contains(&session) {
                break;
            }
        }
    };
    testkit::within("an event of a colleague", created).await;
}

#[tokio::test]
async fn a_key_does_what_its_role_allows() {
    let stack = Stack::without_sandbox().await;
    let session = stack.session().await;
    let key = async |role: v1::KeyRole| {
        let request =
            v1::CreateKeyRequest { name: "same name".to_owned(), role: role.into(), ..Default::default() };
        let issued = stack.api.tenants().create_key(request).await.unwrap().into_inner();
        assert_eq!(issued.key.unwrap().role(), role);
        stack.api.of_key(&issued.secret)
    };
    let (member, viewer) = (key(v1::KeyRole::Member).await, key(v1::KeyRole::Viewer).await);
    assert_works(&member, &session).await;
    assert_eq!(viewer.get(&session).await.id, session);
    let refused =
        |result: Result<(), Status>| assert_refused(result, Code::PermissionDenied, "scope_missing");
    let message = refused(viewer.prompt(&session, "@text no").await.map(drop));
    assert!(message.contains("may only read"), "{message}");
    refused(viewer.try_session(None).await.map(drop));
    let push = v1::PushSessionRequest { session_id: session.clone(), ..Default::default() };
    refused(viewer.sessions().push_session(push).await.map(drop));
    for api in [&member, &viewer] {
        let request = v1::CreateKeyRequest {
            name: "more".to_owned(),
            role: v1::KeyRole::Admin.into(),
            ..Default::default()
        };
        refused(api.tenants().create_key(request).await.map(drop));
        let request = v1::RevokeKeyRequest { prefix: stack.api.key[..8].to_owned(), ..Default::default() };
        refused(api.tenants().revoke_key(request).await.map(drop));
        let request = v1::SetSettingsRequest { document: "{}".to_owned(), ..Default::default() };
        refused(api.settings().set_settings(request).await.map(drop));
    }
}
