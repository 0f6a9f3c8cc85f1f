//! Another key of the deployment: nothing is lost on the way to it, and operators learn when the older one may go.

use super::vault::{World, is_damaged, put, take};
use broker::secrets::{
    reseal::{self, Progress},
    vault::{Vault, VaultError},
};
use domain::ids::TenantId;
use std::{future::poll_fn, task::Poll};

fn lacks_key<T: std::fmt::Debug>(result: &Result<T, VaultError>) -> bool {
    matches!(result, Err(VaultError::OtherKey { .. }))
}

async fn assert_opens(vault: &Vault, tenant: TenantId, secrets: &[(&str, &str)]) {
    for (name, value) in secrets {
        assert_eq!(take(vault, tenant, name).await.unwrap(), *value, "{name}");
    }
}

#[tokio::test]
async fn another_key_seals_and_older_secrets_are_sealed_again() {
    let world = World::new().await;
    let [first, second] = world.tenants;
    world.put("A", "one").await;
    world.put("B", "two").await;
    put(&world.vault, second, "C", "three").await.unwrap();
    let (old, new) = (world.key("key"), world.key("new"));
    let (old_id, new_id) = (old.id().to_owned(), new.id().to_owned());

    // Every broker gets the new file first. It seals nothing yet.
    let prepared = world.vault([old, new]);
    assert!(!prepared.check_keys().await.unwrap());
    let changed = world.vault([world.key("new"), world.key("key")]);
    assert!(changed.check_keys().await.unwrap(), "secrets may need the older key");
    assert_opens(&changed, first, &[("A", "one"), ("B", "two")]).await;
    // What one broker notes counts at all of them.
    put(&prepared, first, "D", "four").await.unwrap();
    put(&changed, first, "B", "newer").await.unwrap();
    assert_eq!(world.key_ids().await, [&old_id, &new_id, &new_id, &old_id].map(Clone::clone));
    // A broker that lacks the new key stores nothing, and one that lacks the older key does not start.
    assert!(lacks_key(&put(&world.vault, first, "E", "five").await));
    for lacking in [world.vault([world.key("key")]), world.vault([world.key("new")])] {
        assert!(lacks_key(&lacking.check_keys().await));
    }

    let done = reseal::pass(&changed).await.unwrap();
    assert_eq!(done, Progress { resealed: 2, left: 0, is_done: true });
    assert_eq!(world.key_ids().await, [&new_id; 4].map(Clone::clone));
    let only_new = world.vault([world.key("new")]);
    assert!(!only_new.check_keys().await.unwrap());
    assert_opens(&only_new, first, &[("A", "one"), ("B", "newer"), ("D", "four")]).await;
    assert_opens(&only_new, second, &[("C", "three")]).await;
    assert!(take(&only_new, second, "A").await.is_err(), "of another tenant");
    let again = reseal::pass(&changed).await.unwrap();
    assert_eq!(again, Progress { resealed: 0, left: 0, is_done: true });
    assert!(lacks_key(&world.vault([world.key("key")]).check_keys().await), "an old key file alone");
}

#[tokio::test]
async fn a_change_during_which_another_key_begins_to_seal_each_time_is_refused_by_name() {
    let world = World::new().await;
    let tenant = world.tenants[0];
    world.put("A", "one").await;
    let changed = world.vault([world.key("new"), world.key("key")]);
    assert!(changed.check_keys().await.unwrap());
    // The trigger acts at the end of the statements that begin a change, after they have read the key.
    world
        .sql(
            "create function swap_keys() returns trigger language plpgsql as $$ begin
                update secret_key set key_id = older_key_ids[1], older_key_ids = array[key_id];
                return null;
             end $$;
             create constraint trigger swap_keys after update on secret_counter
                deferrable initially deferred for each row execute function swap_keys()",
        )
        .await;
    let refused = put(&changed, tenant, "A", "two").await;
    assert!(matches!(refused, Err(VaultError::KeyChanged)), "{refused:?}");
    assert_eq!(take(&changed, tenant, "A").await.unwrap(), "one");
    world.sql("drop trigger swap_keys on secret_counter").await;
    put(&changed, tenant, "A", "two").await.unwrap();
    assert_eq!(take(&changed, tenant, "A").await.unwrap(), "two");
}

#[tokio::test]
async fn a_secret_that_does_not_open_keeps_the_older_key_until_it_is_set_again() {
    let world = World::new().await;
    let tenant = world.tenants[0];
    world.put("A", "one").await;
    world.put("B", "two").await;
    world.sql("update secret set sealed_key = set_byte(sealed_key, 20, 255 - get_byte(sealed_key, 20)) where name = 'A'").await;
    let changed = world.vault([world.key("new"), world.key("key")]);
    changed.check_keys().await.unwrap();
    let left = Progress { resealed: 1, left: 1, is_done: false };
    assert_eq!(reseal::pass(&changed).await.unwrap(), left);
    assert!(lacks_key(&world.vault([world.key("new")]).check_keys().await), "the older file must not go");
    assert!(is_damaged(&take(&changed, tenant, "A").await));
    put(&changed, tenant, "A", "again").await.unwrap();
    let done = Progress { resealed: 0, left: 0, is_done: true };
    assert_eq!(reseal::pass(&changed).await.unwrap(), done);
    let only_new = world.vault([world.key("new")]);
    only_new.check_keys().await.unwrap();
    assert_opens(&only_new, tenant, &[("A", "again"), ("B", "two")]).await;
}

#[tokio::test]
async fn one_broker_at_a_time_seals_secrets_again() {
    let world = World::new().await;
    world.put("A", "one").await;
    let older_id = world.key("key").id().to_owned();
    let changed = world.vault([world.key("new"), world.key("key")]);
    assert!(changed.check_keys().await.unwrap());
    let of_another = world.store().claim_reseal().await.unwrap();
    assert!(of_another.is_some());
    assert_eq!(reseal::claimed_pass(&changed).await.unwrap(), None);
    assert_eq!(world.key_ids().await, [older_id]);
    // As if the other broker was killed.
    drop(of_another);
    let done = Some(Progress { resealed: 1, left: 0, is_done: true });
    let goes_on = async || reseal::claimed_pass(&changed).await.unwrap() == done;
    testkit::eventually("this broker goes on", goes_on).await;
    assert_opens(&changed, world.tenants[0], &[("A", "one")]).await;
}

/// A claim ends with its connection, which its broker notices late.
#[tokio::test]
async fn two_passes_at_once_lose_nothing() {
    let world = World::new().await;
    let secrets = [("A", "one"), ("B", "two"), ("C", "three")];
    for (name, value) in secrets {
        world.put(name, value).await;
    }
    let [one, other] = [(); 2].map(|()| world.vault([world.key("new"), world.key("key")]));
    for vault in [&one, &other] {
        assert!(vault.check_keys().await.unwrap());
    }
    let (first, second) = tokio::join!(reseal::pass(&one), reseal::pass(&other));
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(first.resealed + second.resealed, 3, "each secret once: {first:?}, {second:?}");
    assert!(first.is_done && second.is_done, "{first:?}, {second:?}");
    let only_new = world.vault([world.key("new")]);
    assert!(!only_new.check_keys().await.unwrap());
    assert_opens(&only_new, world.tenants[0], &secrets).await;
}

/// Ends a pass after a number of steps, as a crash would. Returns whether it ended by itself before.
async fn pass_of(vault: &Vault, steps: usize) -> bool {
    let (mut pass, mut count) = (Box::pin(reseal::pass(vault)), 0);
    poll_fn(|context| {
        count += 1;
        if count > steps {
            return Poll::Ready(false);
        }
        pass.as_mut().poll(context).map(|ended| ended.unwrap().is_done)
    })
    .await
}

#[tokio::test]
async fn a_broker_that_ends_anywhere_in_a_pass_loses_nothing() {
    let world = World::new().await;
    let [first, second] = world.tenants;
    world.put("A", "one").await;
    world.put("B", "two").await;
    put(&world.vault, second, "C", "three").await.unwrap();
    // The keys change their roles each time, so that every pass has all secrets to seal.
    let orders = [["new", "key"], ["key", "new"]].into_iter().cycle();
    for (steps, order) in (0..).step_by(3).zip(orders) {
        let vault = world.vault(order.map(|name| world.key(name)));
        vault.check_keys().await.unwrap();
        let is_done = pass_of(&vault, steps).await;
        assert_opens(&vault, first, &[("A", "one"), ("B", "two")]).await;
        assert_opens(&vault, second, &[("C", "three")]).await;
        let only_newest = world.vault([world.key(order[0])]);
        // The last statement may have reached Postgres although nobody waited for its end.
        if only_newest.check_keys().await.is_ok() {
            assert_opens(&only_newest, first, &[("A", "one"), ("B", "two")]).await;
            assert_opens(&only_newest, second, &[("C", "three")]).await;
        } else {
            assert!(!is_done, "after {steps} steps");
        }
        vault.close().await;
        only_newest.close().await;
        if is_done {
            assert!(steps > 5, "a pass has many steps");
            return;
        }
    }
}
