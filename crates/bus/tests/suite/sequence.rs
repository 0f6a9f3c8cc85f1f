//! Any order of calls: a session is held by one living worker at most, caps hold, and nothing queued is lost.

use crate::world::World;
use bus::queue::{Enqueued, Mode, Then};
use domain::ids::{SessionId, TenantId};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use std::collections::{BTreeMap, BTreeSet};

const SESSIONS: usize = 24;
const WORKERS: usize = 4;
const STEPS: usize = 300;
/// Loops that each tenant may run.
const CAPS: [u32; 3] = [2, 3, 50];

/// What must be true of the queue.
struct Model {
    tenants: [TenantId; CAPS.len()],
    sessions: Vec<SessionId>,
    ready: BTreeSet<usize>,
    held: BTreeMap<usize, usize>,
    dirty: BTreeSet<usize>,
    living: [bool; WORKERS],
}

impl Model {
    fn tenant(&self, session: usize) -> usize {
        session % self.tenants.len()
    }

    fn end(&mut self, session: usize, again: bool) {
        self.held.remove(&session);
        if self.dirty.remove(&session) || again {
            self.ready.insert(session);
        }
    }
}

fn name(worker: usize) -> String {
    format!("w{worker}")
}

async fn enqueue(world: &World, model: &mut Model, session: usize) {
    let tenant = model.tenant(session);
    let answer = world
        .bus
        .enqueue(model.tenants[tenant], &model.sessions[session], CAPS[tenant], Mode::Normal)
        .await
        .unwrap();
    if model.held.get(&session).is_some_and(|worker| model.living[*worker]) {
        model.dirty.insert(session);
        assert_eq!(answer, Enqueued::Held);
    } else {
        model.end(session, true);
        assert_eq!(answer, Enqueued::Queued);
    }
}

async fn claim(world: &World, model: &mut Model, worker: usize, count: usize) {
    for claimed in world.claim(&name(worker), count).await {
        let session = model.sessions.iter().position(|session| *session == claimed.session).unwrap();
        let tenant = model.tenant(session);
        assert_eq!(claimed.tenant, model.tenants[tenant]);
        assert!(model.ready.remove(&session), "{session} was not ready");
        assert_eq!(model.held.insert(session, worker), None, "{session} has a holder");
        let running = model.held.keys().filter(|session| **session % CAPS.len() == tenant).count();
        assert!(running <= CAPS[tenant] as usize, "{running} of tenant {tenant} run");
    }
}

async fn release(world: &World, model: &mut Model, (session, worker): (usize, usize), then: Then) {
    let again = world.bus.release(&model.sessions[session], &name(worker), then).await.unwrap();
    if model.held.get(&session) == Some(&worker) {
        assert_eq!(again, model.dirty.contains(&session));
        model.end(session, then == Then::Front);
    } else {
        assert!(!again, "a stranger's word");
    }
}

async fn reap(world: &World, model: &mut Model) {
    let dead = |worker: &usize| !model.living[*worker];
    let orphans: Vec<_> =
        model.held.iter().filter(|(_, worker)| dead(worker)).map(|(session, _)| *session).collect();
    assert_eq!(world.bus.reap().await.unwrap(), orphans.len() as u64);
    orphans.into_iter().for_each(|session| model.end(session, true));
}

async fn check(seed: u64) {
    let (mut world, mut rng) = (World::new().await, StdRng::seed_from_u64(seed));
    let mut model = Model {
        tenants: CAPS.map(|_| world.sample.tenant()),
        sessions: (0..SESSIONS).map(|_| world.sample.session()).collect(),
        ready: BTreeSet::new(),
        held: BTreeMap::new(),
        dirty: BTreeSet::new(),
        living: [true; WORKERS],
    };
    for worker in 0..WORKERS {
        world.live(&name(worker)).await;
    }
    for _ in 0..STEPS {
        let (session, worker) = (rng.random_range(0..SESSIONS), rng.random_range(0..WORKERS));
        match rng.random_range(0..20) {
            0..8 => enqueue(&world, &mut model, session).await,
            8..13 if model.living[worker] => claim(&world, &mut model, worker, rng.random_range(1..4)).await,
            8..17 => {
                let then = if rng.random_bool(0.3) { Then::Front } else { Then::Rest };
                let holder = model.held.get(&session).copied().filter(|_| rng.random_bool(0.9));
                release(&world, &mut model, (session, holder.unwrap_or(worker)), then).await;
            }
            17 => {
                world.kill(&name(worker)).await;
                model.living[worker] = false;
            }
            18 => reap(&world, &mut model).await,
            _ => {
                // Who comes back before it was reaped still holds what it held.
                world.live(&name(worker)).await;
                model.living[worker] = true;
            }
        }
    }
    drain(&world, &mut model).await;
}

/// Everybody dies; one worker then gets exactly what was ready or held.
async fn drain(world: &World, model: &mut Model) {
    for worker in 0..WORKERS {
        world.kill(&name(worker)).await;
        model.living[worker] = false;
    }
    reap(world, model).await;
    world.live("last").await;
    let mut drained = BTreeSet::new();
    loop {
        let claimed = world.claim_sessions("last", 1).await;
        let Some(session) = claimed.first() else { break };
        assert!(
            drained.insert(model.sessions.iter().position(|other| other == session).unwrap()),
            "claimed twice"
        );
        world.bus.release(session, "last", Then::Rest).await.unwrap();
    }
    assert_eq!(drained, model.ready);
}

#[tokio::test]
async fn any_sequence_keeps_one_holder_and_loses_nothing() {
    futures::future::join_all((0..16).map(check)).await;
}
