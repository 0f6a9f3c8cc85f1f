//! The queue's report, and how it forgets departed tenants and workers.

use crate::world::World;
use bus::queue::{Claim, ReleaseTo, report::Outlook};
use domain::{limits, session::Class};
use std::{collections::BTreeSet, time::Instant};

#[tokio::test]
async fn the_outlook_counts_waiting_and_running_sessions_and_the_claim_interval() {
    let mut world = World::new().await;
    let (tenant, stranger) = (world.sample.tenant(), world.sample.tenant());
    world.live("w1").await;
    let unknown = Outlook {
        running: 0,
        running_max: limits::TENANT_RUNNING_MAX,
        weight: limits::TENANT_WEIGHT_DEFAULT,
        ready: [0, 0, 0],
        interval_ms: None,
    };
    assert_eq!(world.bus.outlook(stranger).await.unwrap(), unknown);

    world.share(tenant, 2, 7).await;
    world.fill_class(tenant, Class::Pr, 1).await;
    let batch = world.fill_class(tenant, Class::Batch, 3).await;
    let known = Outlook { running_max: 2, weight: 7, ready: [1, 1, 3], ..unknown.clone() };
    assert_eq!(world.bus.outlook(tenant).await.unwrap(), known);
    let mut positions = vec![];
    for session in &batch {
        positions.push(world.position(tenant, session, Class::Batch).await.unwrap());
    }
    assert_eq!(positions.into_iter().collect::<BTreeSet<_>>(), BTreeSet::from([0, 1, 2]));
    assert_eq!(world.bus.outlook(stranger).await.unwrap(), unknown, "of one tenant only");

    let key = world.key(&format!("t:{tenant}"));
    let since = Instant::now();
    let mut expected = [0, 8_000, 9_000].into_iter();
    let mut check = async |world: &World| {
        let outlook = world.bus.outlook(tenant).await.unwrap();
        let (least, most) = (expected.next().unwrap(), since.elapsed().as_millis() as u64 + 1_000);
        let interval = outlook.interval_ms.unwrap_or(0);
        assert!((least..=least + most).contains(&interval), "{interval} is not {least}");
        outlook
    };
    assert_eq!(check(&world).await.running, 0);
    world.redis("HINCRBY", &[&key, "since", "-8000"]).await;
    assert_eq!(world.claim("w1", 1).await.len(), 1);
    assert_eq!(check(&world).await.running, 1);
    world.redis("HINCRBY", &[&key, "since", "-16000"]).await;
    assert_eq!(world.claim("w1", 1).await.len(), 1);
    assert_eq!(check(&world).await.running, 2);
    world.redis("HINCRBY", &[&key, "since", "-60000"]).await;
    let behind_a_long_turn = world.bus.outlook(tenant).await.unwrap().interval_ms.unwrap();
    assert!(behind_a_long_turn >= 60_000, "claims are not faster than that: {behind_a_long_turn}");
}

#[tokio::test]
async fn idle_tenants_are_forgotten() {
    let mut world = World::new().await;
    world.live("w1").await;
    let tenants: Vec<_> = (0..20).map(|_| world.sample.tenant()).collect();
    for (tenant, class) in tenants.iter().zip(Class::ALL.into_iter().cycle()) {
        world.share(*tenant, 1, 2).await;
        world.fill_class(*tenant, class, 2).await;
    }
    for _ in 0..3 {
        let claimed = world.claim("w1", 100).await;
        assert_eq!(claimed.len(), tenants.len());
        let sessions: Vec<_> = claimed.iter().map(|claimed| claimed.session.clone()).collect();
        world.pass("w1", &sessions, 9_000).await;
        for Claim { tenant, session } in claimed {
            world.bus.release(tenant, &session, "w1", ReleaseTo::Rest).await.unwrap();
        }
    }
    let keys: Vec<String> = redis::from_redis_value(world.redis("KEYS", &[&world.key("*")]).await).unwrap();
    let mut forgotten_later = 0;
    for key in keys {
        let ttl_ms = world.number("PTTL", &[&key]).await.unwrap();
        if tenants.iter().any(|tenant| key.contains(&tenant.to_string())) {
            assert!(key.contains(":t:") && ttl_ms > 0.0, "{key} stays for {ttl_ms}");
            forgotten_later += 1;
        } else {
            let of_all = ["gen", "gvt", "ws", "w:w1"].map(|name| world.key(name));
            assert!(of_all.contains(&key), "{key} is left");
        }
    }
    assert_eq!(forgotten_later, tenants.len());

    world.fill(tenants[0], 1).await;
    let ttl_ms = world.number("PTTL", &[&world.key(&format!("t:{}", tenants[0]))]).await.unwrap();
    assert!(ttl_ms < 0.0, "a returning tenant is remembered");
    assert_eq!(world.bus.outlook(tenants[0]).await.unwrap().weight, 2);
}
