//! A key of the deployment in a key service, which a scripted transit engine plays.

use super::vault::{World, is_damaged, put, take};
use broker::secrets::{
    deployment_key::DeploymentKey,
    reseal::{self, Progress},
    transit::{TransitKey, TransitSettings},
    vault::{Vault, VaultError},
};
use std::{fs, path::Path};
use testkit::transit::{KEY, TransitServer};

const TOKEN: &str = "hvs.token-4711";

fn key(url: &str, token_file: &Path) -> DeploymentKey {
    let settings = TransitSettings { url, key: KEY, token_file, authorities: vec![] };
    DeploymentKey::Transit(Box::new(TransitKey::new(settings).unwrap()))
}

/// A vault that seals with a key service and opens what its file sealed. The secret A is from before.
async fn start() -> (World, TransitServer, Vault) {
    let (world, server) = (World::new().await, TransitServer::start(TOKEN).await);
    world.put("A", "one").await;
    let token_file = world.directory.path().join("token");
    fs::write(&token_file, format!("{TOKEN}\n")).unwrap();
    let vault = world.vault([key(&server.url, &token_file), world.key("key")]);
    vault.check_seal().await.unwrap();
    assert!(vault.check_keys().await.unwrap());
    (world, server, vault)
}

/// The code and the text of a refusal, which show no secret.
fn refusal<T: std::fmt::Debug>(result: Result<T, VaultError>) -> (&'static str, String) {
    let Err(VaultError::Envelope(error)) = result else { panic!("{result:?}") };
    let text = format!("{error} {error:?}");
    assert!(!text.contains(TOKEN) && !text.contains("4711"), "{text}");
    (error.code(), text)
}

#[tokio::test]
async fn secrets_move_from_the_file_to_the_key_service_and_back() {
    let (world, server, vault) = start().await;
    let tenant = world.tenants[0];
    assert_eq!(take(&vault, tenant, "A").await.unwrap(), "one");
    assert_eq!(server.operations(), ["encrypt", "decrypt"], "only the check of the start");
    put(&vault, tenant, "B", "two").await.unwrap();
    assert_eq!(take(&vault, tenant, "B").await.unwrap(), "two");
    assert_eq!(take(&vault, tenant, "B").await.unwrap(), "two");
    let operations = ["encrypt", "decrypt", "encrypt", "decrypt", "decrypt"];
    assert_eq!(server.operations(), operations, "no opened key is kept");

    let done = Progress { resealed: 1, left: 0, is_done: true };
    assert_eq!(reseal::pass(&vault).await.unwrap(), done);
    let token_file = world.directory.path().join("token");
    let only_service = world.vault([key(&server.url, &token_file)]);
    assert!(!only_service.check_keys().await.unwrap());
    assert_eq!(take(&only_service, tenant, "A").await.unwrap(), "one");
    assert_eq!(world.key_ids().await, ["transit:flotilla", "transit:flotilla"]);

    let back = world.vault([world.key("key"), key(&server.url, &token_file)]);
    assert!(back.check_keys().await.unwrap());
    let done = Progress { resealed: 2, left: 0, is_done: true };
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
    server.fail(400, "ciphertext or signature version is disallowed by policy (too old)");
    assert_eq!(refusal(take(&vault, tenant, "B").await).0, "kms_refused");
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
