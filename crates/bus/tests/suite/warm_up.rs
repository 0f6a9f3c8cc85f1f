//! Hints that a session may soon be prompted: each reaches one worker.

use crate::world::World;
use bus::{Bus, warm_up::WarmUpHints};
use domain::ids::{SessionId, TenantId};
use std::{collections::BTreeSet, time::Duration};
use testkit::within;

const PAUSE: Duration = Duration::from_millis(100);

/// Hints at a session until a worker hears it: from then on the server knows its subscription.
async fn until_heard(bus: &Bus, hints: &mut WarmUpHints, tenant: TenantId, session: &SessionId) {
    within("a hint is heard", async {
        loop {
            bus.hint_warm_up(tenant, session);
            if tokio::time::timeout(PAUSE, hints.next_hint()).await.is_ok() {
                return;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_hint_reaches_one_of_the_workers() {
    let mut world = World::new().await;
    let (tenant, first) = (world.sample.tenant(), world.sample.session());
    let (mut one, mut other) = (world.bus.warm_up_hints(), world.bus.warm_up_hints());
    until_heard(&world.bus, &mut one, tenant, &first).await;
    until_heard(&world.bus, &mut other, tenant, &first).await;
    let sessions: BTreeSet<SessionId> = (0..20).map(|_| world.sample.session()).collect();
    for session in &sessions {
        world.bus.hint_warm_up(tenant, session);
    }
    let mut heard = BTreeSet::new();
    within("all hints are heard", async {
        while heard.len() < sessions.len() {
            let (of, session) = tokio::select! {
                hint = one.next_hint() => hint,
                hint = other.next_hint() => hint,
            };
            assert_eq!(of, tenant);
            // More hints at the first session may still arrive.
            assert!(session == first || heard.insert(session), "two workers got one hint");
        }
    })
    .await;
    assert_eq!(heard, sessions);
}
