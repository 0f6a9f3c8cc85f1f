//! Another key of the deployment: nothing is lost on the way to it, and operators learn when the older one may go.

use super::vault::{World, is_damaged, put, take};
use broker::secrets::{
    reseal::{self, ResealProgress},
    vault::{Vault, VaultError},
};
use domain::ids::TenantId;
use sqlx::Connection as _;

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
    assert_eq!(done, ResealProgress { resealed: 2, left: 0, is_done: true });
    assert_eq!(world.key_ids().await, [&new_id; 4].map(Clone::clone));
    let only_new = world.vault([world.key("new")]);
    assert!(!only_new.check_keys().await.unwrap());
    assert_opens(&only_new, first, &[("A", "one"), ("B", "newer"), ("D", "four")]).await;
    assert_opens(&only_new, second, &[("C", "three")]).await;
    assert!(take(&only_new, second, "A").await.is_err(), "of another tenant");
    let again = reseal::pass(&changed).await.unwrap();
    assert_eq!(again, ResealProgress { resealed: 0, left: 0, is_done: true });
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
    let left = ResealProgress { resealed: 1, left: 1, is_done: false };
    assert_eq!(reseal::pass(&changed).await.unwrap(), left);
    assert!(lacks_key(&world.vault([world.key("new")]).check_keys().await), "the older file must not go");
    assert!(is_damaged(&take(&changed, tenant, "A").await));
    put(&changed, tenant, "A", "again").await.unwrap();
    let done = ResealProgress { resealed: 0, left: 0, is_done: true };
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
    let done = Some(ResealProgress { resealed: 1, left: 0, is_done: true });
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

/// A write of a pass, as a trigger sees it.
struct PassWrite {
    event: &'static str,
    table: &'static str,
    row: &'static str,
}

/// All writes of a pass over the secrets A, B and C, in their order. The last two are one transaction.
const PASS_WRITES: [PassWrite; 5] = [
    PassWrite { event: "update", table: "secret", row: "new.name = 'A'" },
    PassWrite { event: "update", table: "secret", row: "new.name = 'B'" },
    PassWrite { event: "update", table: "secret", row: "new.name = 'C'" },
    PassWrite { event: "update", table: "secret_key", row: "true" },
    PassWrite { event: "delete", table: "key_canary", row: "true" },
];

/// When a trigger holds a write: in its statement, which Postgres undoes without the broker, and in the commit, which Postgres finishes without it.
const HOLDS: [&str; 2] = ["not deferrable", "deferrable initially deferred"];

/// Ends a pass in one of its writes, as a crash would. Returns when Postgres has ended the transaction of that write.
async fn end_pass_in(world: &World, vault: &Vault, write: &PassWrite, hold: &str) {
    let PassWrite { event, table, row } = write;
    let trigger = format!(
        "create constraint trigger hold after {event} on {table} {hold}
            for each row when ({row}) execute function hold_write()"
    );
    world.sql(&trigger).await;
    let lock = world.take_write_lock().await;
    let mut pass = Box::pin(reseal::pass(vault));
    tokio::select! {
        ended = &mut pass => panic!("the pass ended before the {event} of {table}: {ended:?}"),
        () = testkit::eventually("the pass is in this write", async || world.is_write_held().await) => {}
    }
    drop(pass);
    lock.close().await.unwrap();
    // Waits for the transaction that has written to the table.
    world.sql(&format!("drop trigger hold on {table}")).await;
}

#[tokio::test]
async fn a_broker_that_ends_anywhere_in_a_pass_loses_nothing() {
    let world = World::new().await;
    let [first, second] = world.tenants;
    world.put("A", "one").await;
    world.put("B", "two").await;
    put(&world.vault, second, "C", "three").await.unwrap();
    world.make_hold_write().await;
    let assert_all_open = async |vault: &Vault| {
        assert_opens(vault, first, &[("A", "one"), ("B", "two")]).await;
        assert_opens(vault, second, &[("C", "three")]).await;
    };
    let mut names = ["key", "new"];
    for (writes_before, write) in PASS_WRITES.iter().enumerate() {
        for (writes_stored, hold) in HOLDS.iter().enumerate() {
            // The keys change their roles each time, so that every pass has all secrets to seal.
            names.reverse();
            let both = || world.vault(names.map(|name| world.key(name)));
            let (vault, only_newest) = (both(), world.vault([world.key(names[0])]));
            assert!(vault.check_keys().await.unwrap());
            end_pass_in(&world, &vault, write, hold).await;
            let is_resealed = |id: &String| id == world.key(names[0]).id();
            let resealed = world.key_ids().await.into_iter().filter(is_resealed).count();
            assert_eq!(resealed, (writes_before + writes_stored).min(3));
            assert_all_open(&vault).await;
            // Without the older key, a broker starts only if no secret needs that key.
            let is_older_forgotten = only_newest.check_keys().await.is_ok();
            assert_eq!(is_older_forgotten, writes_before >= 3 && writes_stored == 1);

            let next = both();
            assert_eq!(next.check_keys().await.unwrap(), !is_older_forgotten);
            let done = reseal::pass(&next).await.unwrap();
            assert!(done.is_done && done.left == 0, "{done:?}");
            only_newest.check_keys().await.unwrap();
            assert_all_open(&only_newest).await;
            for ended in [vault, only_newest, next] {
                ended.close().await;
            }
        }
    }
}
