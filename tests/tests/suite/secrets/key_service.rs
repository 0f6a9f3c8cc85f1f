//! A key of the deployment in a key service, which a scripted transit engine plays.

use super::vault::{World, is_damaged, put, take};
use broker::secrets::{
    deployment_key::DeploymentKey,
    reseal::{self, ResealProgress},
    transit::{TransitKey, TransitSettings},
    vault::{Vault, VaultError},
};
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};
use testkit::transit::{KEY, NEXT_KEY, TransitServer};

const TOKEN: &str = "hvs.token-4711";

fn key(url: &str, token_file: &Path) -> DeploymentKey {
    named_key(url, KEY, token_file)
}

fn named_key(url: &str, key: &str, token_file: &Path) -> DeploymentKey {
    let settings = TransitSettings { url, key, token_file, authorities: vec![] };
    DeploymentKey::Transit(Box::new(TransitKey::new(settings).unwrap()))
}

/// The file with the token, which only its owner reads.
fn token_file(world: &World) -> PathBuf {
    let file = world.directory.path().join("token");
    fs::write(&file, format!("{TOKEN}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    file
}

/// A vault that seals with a key service and opens what its file sealed. The secret A is from before.
async fn start() -> (World, TransitServer, Vault) {
    let (world, server) = (World::new().await, TransitServer::start(TOKEN).await);
    world.put("A", "one").await;
    let vault = world.vault([key(&server.url, &token_file(&world)), world.key("key")]);
    assert!(vault.check_keys().await.unwrap());
    (world, server, vault)
}

/// The code and the text of a refusal, which show no secret.
fn refusal<T: std::fmt::Debug>(result: Result<T, VaultError>) -> (&'static str, String) {
    let Err(VaultError::Envelope(error)) = result else { panic!("{result:?}") };
    let text = format!("{error} {error:?}");
    assert!(!text.contains(TOKEN) && !text.contains("4711"), "{text}");
    (error.code().as_str(), text)
}

#[tokio::test]
async fn secrets_move_from_the_file_to_the_key_service_and_back() {
    let (world, server, vault) = start().await;
    let tenant = world.tenants[0];
    assert_eq!(take(&vault, tenant, "A").await.unwrap(), "one");
    let at_start = server.operations();
    assert_eq!(at_start, ["encrypt", "decrypt", "decrypt"], "only the check of the start");
    put(&vault, tenant, "B", "two").await.unwrap();
    assert_eq!(take(&vault, tenant, "B").await.unwrap(), "two");
    assert_eq!(take(&vault, tenant, "B").await.unwrap(), "two");
    let operations = &server.operations()[at_start.len()..];
    assert_eq!(operations, ["encrypt", "decrypt", "decrypt"], "no opened key is kept");

    let done = ResealProgress { resealed: 1, left: 0, is_done: true };
    assert_eq!(reseal::pass(&vault).await.unwrap(), done);
    let token_file = world.directory.path().join("token");
    let only_service = world.vault([key(&server.url, &token_file)]);
    assert!(!only_service.check_keys().await.unwrap());
    assert_eq!(take(&only_service, tenant, "A").await.unwrap(), "one");
    assert_eq!(world.key_ids().await, ["transit:flotilla", "transit:flotilla"]);

    let back = world.vault([world.key("key"), key(&server.url, &token_file)]);
    assert!(back.check_keys().await.unwrap());
    let done = ResealProgress { resealed: 2, left: 0, is_done: true };
    assert_eq!(reseal::pass(&back).await.unwrap(), done);
    server.fail(503, "it is no longer needed");
    assert_eq!(take(&back, tenant, "B").await.unwrap(), "two");
}

#[tokio::test]
async fn a_key_service_that_is_away_loses_nothing_and_is_asked_again() {
    let (world, server, vault) = start().await;
    let tenant = world.tenants[0];
    put(&vault, tenant, "B", "two").await.unwrap();
    let before = server.operations().len();
    server.fail(503, &format!("sealed {TOKEN}"));
    assert_eq!(refusal(take(&vault, tenant, "B").await).0, "kms_unavailable");
    assert_eq!(server.operations().len(), before + 3, "it is asked three times");
    assert_eq!(refusal(put(&vault, tenant, "B", "4711").await).0, "kms_unavailable");
    assert_eq!(refusal(reseal::pass(&vault).await).0, "kms_unavailable");
    assert_eq!(take(&vault, tenant, "A").await.unwrap(), "one", "the file still opens");
    server.heal();
    assert_eq!(take(&vault, tenant, "B").await.unwrap(), "two", "the refused change changed nothing");
    let nowhere = key("http://127.0.0.1:9", &world.directory.path().join("token"));
    let (code, text) = refusal(take(&world.vault([nowhere]), tenant, "B").await);
    assert!(code == "kms_unavailable" && text.contains("refused"), "{text}");
}

#[tokio::test]
async fn no_broker_moves_to_a_key_service_that_is_away_or_refuses() {
    let (world, server) = (World::new().await, TransitServer::start(TOKEN).await);
    let token_file = token_file(&world);
    let to_service = || world.vault([key(&server.url, &token_file), world.key("key")]);
    let prepared = || world.vault([world.key("key"), key(&server.url, &token_file)]);
    for (status, code) in [(503, "kms_unavailable"), (403, "kms_refused")] {
        server.fail(status, "no");
        assert_eq!(refusal(to_service().check_keys().await).0, code);
        assert_eq!(refusal(prepared().check_keys().await).0, code, "the step before");
    }
    world.put("A", "one").await;
    assert!(!world.vault([world.key("key")]).check_keys().await.unwrap(), "the file still seals");
    server.heal();
    assert!(to_service().check_keys().await.unwrap());
    server.fail(503, "no");
    assert!(to_service().check_keys().await.unwrap(), "its key is noted already");
}

#[tokio::test]
async fn another_key_of_the_same_name_is_refused_at_the_start() {
    let (world, server, vault) = start().await;
    let (tenant, token_file) = (world.tenants[0], token_file(&world));
    put(&vault, tenant, "B", "two").await.unwrap();
    let other = TransitServer::start(TOKEN).await;
    let foreign = || key(&other.url, &token_file);
    for vault in [world.vault([foreign(), world.key("key")]), world.vault([world.key("key"), foreign()])] {
        let refused = vault.check_keys().await;
        assert!(matches!(refused, Err(VaultError::ForeignKey(_))), "{refused:?}");
    }
    let own = world.vault([key(&server.url, &token_file), world.key("key")]);
    assert!(own.check_keys().await.unwrap());
    assert_eq!(take(&own, tenant, "B").await.unwrap(), "two");
    // Also before the key seals: two brokers prepare the move, and one has the wrong address.
    let (next, wrong) = (TransitServer::start(TOKEN).await, TransitServer::start(TOKEN).await);
    let prepared = |of_next: &TransitServer| {
        let next = named_key(&of_next.url, NEXT_KEY, &token_file);
        world.vault([key(&server.url, &token_file), world.key("key"), next])
    };
    assert!(prepared(&next).check_keys().await.unwrap());
    let refused = prepared(&wrong).check_keys().await;
    assert!(matches!(refused, Err(VaultError::ForeignKey(_))), "{refused:?}");
    assert_eq!(reseal::pass(&own).await.unwrap(), ResealProgress { resealed: 1, left: 0, is_done: true });
}

#[tokio::test]
async fn a_key_service_that_hangs_holds_up_no_secret_of_a_file() {
    let (world, _server, _vault) = start().await;
    let [first, second] = world.tenants;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    // It has as many connections to Postgres as changes that hang.
    let vault = world.vault([key(&url, &token_file(&world)), world.key("key")]);
    let hang = async { tokio::join!(put(&vault, first, "B", "two"), put(&vault, second, "B", "two")) };
    let open = async {
        let connections = [listener.accept().await.unwrap(), listener.accept().await.unwrap()];
        let value = take(&vault, first, "A").await.unwrap();
        drop(connections);
        value
    };
    tokio::select! {
        ended = hang => panic!("the key service does not answer: {ended:?}"),
        value = open => assert_eq!(value, "one"),
    }
}

#[tokio::test]
async fn a_secret_that_the_key_service_refuses_does_not_end_a_pass() {
    let (world, server, vault) = start().await;
    let tenant = world.tenants[0];
    put(&vault, tenant, "B", "two").await.unwrap();
    put(&vault, tenant, "C", "three").await.unwrap();
    let back = world.vault([world.key("key"), key(&server.url, &token_file(&world))]);
    assert!(back.check_keys().await.unwrap());
    server.set_token("another");
    assert_eq!(refusal(reseal::pass(&back).await).0, "kms_refused", "no further one would open");
    server.set_token(TOKEN);
    // The canary, and B.
    server.refuse_first(2);
    let left = ResealProgress { resealed: 1, left: 1, is_done: false };
    assert_eq!(reseal::pass(&back).await.unwrap(), left);
    assert!(back.check_keys().await.unwrap(), "an old canary stops no start");
    server.refuse_first(0);
    let done = ResealProgress { resealed: 1, left: 0, is_done: true };
    assert_eq!(reseal::pass(&back).await.unwrap(), done);
    assert_eq!(take(&back, tenant, "B").await.unwrap(), "two");
}

#[tokio::test]
async fn each_call_has_the_newest_token_and_a_wrong_one_is_refused() {
    let (world, server, vault) = start().await;
    let tenant = world.tenants[0];
    let token_file = world.directory.path().join("token");
    put(&vault, tenant, "B", "two").await.unwrap();
    let before = server.operations().len();
    server.set_token("hvs.renewed");
    let (code, text) = refusal(take(&vault, tenant, "B").await);
    assert!(code == "kms_refused" && text.contains("(403)"), "{text}");
    assert_eq!(server.operations().len(), before + 1, "a refusal is not repeated");
    assert_eq!(refusal(put(&vault, tenant, "B", "4711").await).0, "kms_refused");
    fs::write(&token_file, "hvs.renewed").unwrap();
    assert_eq!(take(&vault, tenant, "B").await.unwrap(), "two");
    fs::set_permissions(&token_file, fs::Permissions::from_mode(0o640)).unwrap();
    let (code, text) = refusal(take(&vault, tenant, "B").await);
    assert!(code == "kms_refused" && text.contains("chmod 600"), "{text}");
    fs::set_permissions(&token_file, fs::Permissions::from_mode(0o600)).unwrap();
    for broken in [String::new(), "two\nlines".to_owned(), "4711".repeat(5_000)] {
        fs::write(&token_file, broken).unwrap();
        assert_eq!(refusal(take(&vault, tenant, "B").await).0, "kms_unavailable");
    }
    fs::remove_file(&token_file).unwrap();
    assert_eq!(refusal(take(&vault, tenant, "B").await).0, "kms_unavailable");
}

#[tokio::test]
async fn a_key_that_was_changed_or_moved_does_not_open_and_a_setting_is_no_damage() {
    let (world, server, vault) = start().await;
    let tenant = world.tenants[0];
    put(&vault, tenant, "B", "two").await.unwrap();
    put(&vault, tenant, "C", "three").await.unwrap();
    for change in [
        "sealed_key = (select sealed_key from secret where name = 'C')",
        "sealed_key = 'vault:v1:99'",
        "sealed_key = 'no ciphertext'",
        "sealed_key = '\\xff'",
        "ciphertext = set_byte(ciphertext, 20, 255 - get_byte(ciphertext, 20))",
    ] {
        put(&vault, tenant, "B", "two").await.unwrap();
        world.sql(&format!("update secret set {change} where name = 'B'")).await;
        assert!(is_damaged(&take(&vault, tenant, "B").await), "{change}");
    }
    put(&vault, tenant, "B", "two").await.unwrap();
    for reason in ["ciphertext or signature version is disallowed by policy (too old)", "unknown reason"] {
        server.fail(400, reason);
        assert_eq!(refusal(take(&vault, tenant, "B").await).0, "kms_refused", "{reason}");
    }
    server.fail(400, "invalid ciphertext: version is too new");
    assert_eq!(refusal(take(&vault, tenant, "B").await).0, "secret_damaged");
    server.fail(400, &format!("cipher: message authentication failed {TOKEN}"));
    assert_eq!(refusal(take(&vault, tenant, "B").await).0, "secret_damaged");
    server.fail(200, "no data");
    assert_eq!(refusal(take(&vault, tenant, "B").await).0, "kms_unavailable");
    server.fail(200, &"long".repeat(10_000));
    assert_eq!(refusal(take(&vault, tenant, "B").await).0, "kms_unavailable");
    server.heal();
    assert_eq!(take(&vault, tenant, "B").await.unwrap(), "two");
}

#[test]
fn an_address_that_others_can_read_or_a_wrong_name_is_refused() {
    let new = |url: &str, key: &str| {
        let token_file = Path::new("token");
        TransitKey::new(TransitSettings { url, key, token_file, authorities: vec![] }).map(drop)
    };
    for url in
        ["https://vault.acme.dev:8200", "https://acme.dev/vault/", "http://127.0.0.1:8200", "http://[::1]:1"]
    {
        new(url, KEY).unwrap();
    }
    for url in [
        "",
        "vault.acme.dev",
        "http://vault.acme.dev",
        "http://127.0.0.1.acme.dev",
        "https://ann:4711@vault.acme.dev",
        "https://vault.acme.dev?a=b",
        "ftp://localhost",
    ] {
        let error = format!("{:#}", new(url, KEY).unwrap_err());
        assert!(!error.contains("4711"), "{error}");
    }
    for key in ["", "a/b", "..", "a b", "a?b", &"a".repeat(101)] {
        new("https://vault.acme.dev", key).unwrap_err();
    }
}
