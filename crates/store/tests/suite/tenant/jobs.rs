//! Jobs: claimed fairly, fenced, and awake whenever there is something to look at.

use crate::world::World;
use domain::session::Class;
use store::{
    control::jobs::ClaimedJob,
    error::Error,
    log::record::Fence,
    tenant::jobs::{JobFence, JobRest, NewJob},
};
use testkit::sample::NOW;
use uuid::Uuid;

const RESTS: JobRest = JobRest { seen_signals: 0, wake_after_ms: None };

async fn send(world: &World, id: &str, dedupe: &str) {
    let new = NewJob { id, kind: "pull_request", state: "{\"a\":1}" };
    world.store.send_to_job(world.tenant, new, dedupe, &format!("\"{dedupe}\"")).await.unwrap();
}

async fn claim(world: &World, worker: Uuid) -> Vec<ClaimedJob> {
    world.store.claim_jobs(worker, 10).await.unwrap()
}

#[tokio::test]
async fn a_job_takes_each_input_once_and_rests_until_the_next_one() {
    let world = World::new().await;
    let (store, worker) = (&world.store, world.worker().await);
    for dedupe in ["one", "two", "one"] {
        send(&world, "ses_1", dedupe).await;
    }
    let [job] = claim(&world, worker).await.try_into().unwrap();
    assert_eq!((job.kind.as_str(), job.state.as_str(), job.attempts), ("pull_request", "{\"a\":1}", 0));
    assert_eq!(claim(&world, worker).await, [], "it is performed");
    let inputs = store.list_job_inputs(&job.fence, job.input_ack).await.unwrap();
    let bodies: Vec<_> = inputs.iter().map(|input| (input.seq, input.body.as_str())).collect();
    assert_eq!(bodies, [(1, "\"one\""), (2, "\"two\"")]);
    store.save_job(&job.fence, "{\"a\":2}", 2).await.unwrap();
    store.rest_job(&job.fence, RESTS).await.unwrap();
    assert_eq!(claim(&world, worker).await, [], "it rests");
    send(&world, "ses_1", "two").await;
    assert_eq!(claim(&world, worker).await, [], "it knows this input");
    send(&world, "ses_1", "three").await;
    let [again] = claim(&world, worker).await.try_into().unwrap();
    assert_eq!(
        (again.state.as_str(), again.input_ack, again.fence.epoch),
        ("{\"a\":2}", 2, job.fence.epoch + 1)
    );
    // What the earlier owner writes is refused.
    for refused in [
        store.save_job(&job.fence, "{}", 3).await,
        store.rest_job(&job.fence, RESTS).await,
        store.fail_job(&job.fence, "why", 1).await,
    ] {
        assert!(matches!(refused, Err(Error::Fenced)), "{refused:?}");
    }
    // An input that came meanwhile wakes it at once.
    store.rest_job(&again.fence, RESTS).await.unwrap();
    assert_eq!(claim(&world, worker).await.len(), 1);
}

#[tokio::test]
async fn a_failure_waits_and_counts_until_there_is_progress() {
    let world = World::new().await;
    let (store, worker) = (&world.store, world.worker().await);
    send(&world, "ses_1", "one").await;
    let [job] = claim(&world, worker).await.try_into().unwrap();
    store.fail_job(&job.fence, "it is away", 3_600_000).await.unwrap();
    assert_eq!(claim(&world, worker).await, [], "it waits");
    world.sql("update job set wake_at = now()").await;
    let [again] = claim(&world, worker).await.try_into().unwrap();
    assert_eq!(again.attempts, 1);
    store.save_job(&again.fence, "{}", 1).await.unwrap();
    store.rest_job(&again.fence, JobRest { wake_after_ms: Some(0), ..RESTS }).await.unwrap();
    let [last] = claim(&world, worker).await.try_into().unwrap();
    assert_eq!(last.attempts, 0);
}

#[tokio::test]
async fn one_tenant_with_many_jobs_delays_no_other_one() {
    let mut world = World::new().await;
    let worker = world.worker().await;
    for number in 0..50 {
        send(&world, &format!("ses_{number}"), "one").await;
    }
    let (first, second) = (world.tenant, world.sample.tenant());
    world.store.create_tenant(second, "second").await.unwrap();
    world.tenant = second;
    send(&world, "ses_1", "one").await;
    let claimed = world.store.claim_jobs(worker, 2).await.unwrap();
    let mut tenants: Vec<_> = claimed.iter().map(|job| job.fence.tenant).collect();
    tenants.sort_by_key(|tenant| *tenant != first);
    assert_eq!(tenants, [first, second]);
}

#[tokio::test]
async fn jobs_of_dead_workers_and_lost_claims_are_performed_again() {
    let world = World::new().await;
    let (store, dead, alive) = (&world.store, world.worker().await, world.worker().await);
    send(&world, "ses_1", "one").await;
    send(&world, "ses_2", "one").await;
    let claimed = claim(&world, dead).await;
    assert_eq!((claimed.len(), claim(&world, alive).await.len()), (2, 0));
    // The worker lives, and knows of one alone.
    let performed: Vec<JobFence> = vec![claimed[0].fence.clone()];
    assert_eq!(store.release_jobs(dead, &performed).await.unwrap(), 1);
    let [released] = claim(&world, alive).await.try_into().unwrap();
    assert_eq!(released.fence.id, claimed[1].fence.id);
    world.sql("update worker set lease_until = now() - interval '1 minute' where incarnation = (select owner from job order by epoch limit 1)").await;
    let [orphan] = claim(&world, alive).await.try_into().unwrap();
    assert_eq!(orphan.fence.id, claimed[0].fence.id);
}

#[tokio::test]
async fn a_session_of_a_pull_request_wakes_its_job_and_others_do_not() {
    let mut world = World::new().await;
    let worker = world.worker().await;
    for class in [Class::Pr, Class::Interactive] {
        let new = store::session::creation::NewSession { class, ..world.new_session() };
        let event = world.sample.event();
        world.store.create_session(world.tenant, &new, &event, NOW).await.unwrap();
        let id = new.id.as_str();
        send(&world, id, "one").await;
        let [job] = claim(&world, worker).await.try_into().unwrap();
        world.store.save_job(&job.fence, "{}", 1).await.unwrap();
        world
            .store
            .rest_job(&job.fence, JobRest { seen_signals: job.signals, wake_after_ms: None })
            .await
            .unwrap();
        world.accept(&new.id, "hello").await;
        let woken = claim(&world, worker).await;
        assert_eq!(woken.len(), usize::from(class == Class::Pr), "{class:?}");
        let Some(woken) = woken.first() else { continue };
        // It begins and ends while the job looks.
        let taken = world.take(&new.id, worker).await.unwrap();
        let signals = world.number(&format!("select signals from job where id = '{id}'")).await;
        assert_eq!(signals, 2, "it has begun");
        assert!(world.park(&Fence { write_seq: 1, ..taken.fence }).await.is_some());
        world
            .store
            .rest_job(&woken.fence, JobRest { seen_signals: woken.signals, wake_after_ms: None })
            .await
            .unwrap();
        let [again] = claim(&world, worker).await.try_into().unwrap();
        assert_eq!(again.signals, woken.signals + 2);
        world
            .store
            .rest_job(&again.fence, JobRest { seen_signals: again.signals, wake_after_ms: None })
            .await
            .unwrap();
        assert_eq!(claim(&world, worker).await, []);
        world.store.delete_session(world.tenant, &new.id).await.unwrap();
        assert_eq!(claim(&world, worker).await.len(), 1, "its session is gone");
    }
}
