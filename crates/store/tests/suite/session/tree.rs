//! Many connections work on one tree of sessions. No concurrent operation ends in a deadlock, and every call of the
//! tree is answered once.

use crate::{
    family::{Actor, finished, waiting},
    world::World,
};
use domain::{
    event::{Event, Status},
    ids::{PartId, SessionId, TenantId, Timestamp},
    limits,
    wait::Reason,
};
use futures::future::{BoxFuture, FutureExt as _, join_all};
use serde_json::json;
use sqlx::Executor as _;
use std::collections::BTreeMap;
use store::{
    Store,
    error::Error,
    log::{
        change::{Change, ChangeBody},
        record::Progress,
    },
    rows::session_row::ParentCall,
    session::{
        park::ParkOutcome,
        quarantine::{Notice, QuarantineRule},
        tree::children::{Dispatch, DispatchOutcome, NewChild},
    },
};
use testkit::sample::{NOW, Sample};

/// Number of rounds, each with a new tree.
const ROUNDS: u8 = 8;

/// Returns whether a write succeeded. Losing to another writer is fine; every other error fails the test.
fn settled<T>(what: &str, result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(done) => Some(done),
        Err(Error::Fenced | Error::NotFound(_) | Error::Quarantined) => None,
        Err(error) => panic!("{what}: {error:?}"),
    }
}

/// Runs a loop: it writes, creates a child if it has one to create, reports, and parks with its answer.
async fn run(
    store: &Store,
    mut actor: Actor,
    call: Option<ParentCall>,
    child: Option<(NewChild, Vec<Change>)>,
) {
    let (tenant, session) = (actor.fence.tenant, actor.session().clone());
    let mut sample = Sample::new(session.as_str().bytes().fold(7, u8::wrapping_add));
    for _ in 0..3 {
        let change =
            Change { id: sample.event(), body: ChangeBody::Event(Event::SessionStatus(Status::Busy)) };
        if settled("append", store.append(&actor.next(), &[change], 0, Progress::None, NOW).await).is_none() {
            return;
        }
        if let Some(call) = &call {
            let event = sample.event();
            settled("report", store.report_child(&actor.fence, call, &json!([]), &event, NOW).await);
        }
    }
    if let Some((child, changes)) = child {
        let dispatch = store.dispatch_child(&actor.next(), &changes, &child, Dispatch::New, NOW).await;
        match settled("dispatch", dispatch) {
            Some(DispatchOutcome::Dispatched { .. }) => {}
            None => return,
            Some(refused) => panic!("{refused:?}"),
        }
    }
    let end = match &call {
        Some(call) => finished(&session, call, "done"),
        // The timer has already expired, so the next scan wakes it.
        None => waiting(Reason::Children, Some(Timestamp(0))),
    };
    let fence = actor.next();
    for _ in 0..100 {
        let inputs = settled("inputs", store.list_inputs(tenant, &session, 0).await).unwrap();
        let read_input = inputs.last().map_or(0, |input| input.seq);
        match settled("park", store.park(&fence, &[], read_input, &end, NOW).await) {
            Some(ParkOutcome::NewInput) => {}
            Some(ParkOutcome::Parked(_)) | None => return,
        }
    }
    panic!("it never parked");
}

/// Runs several queries, more in each round, so that later operations meet the others at different points.
async fn pause(store: &Store, tenant: TenantId, session: &SessionId, round: u8) {
    for _ in 0..4 * round {
        settled("head", store.get_head(tenant, session).await);
    }
}

/// Creates three levels: a root, two children of it, and two of each of those; all of them run.
struct Tree {
    root: Actor,
    children: Vec<(ParentCall, Actor)>,
    leaves: Vec<(ParentCall, Actor)>,
}

async fn grow(world: &mut World) -> Tree {
    let mut root = world.actor().await;
    let (mut children, mut leaves) = (vec![], vec![]);
    for _ in 0..2 {
        let (call, mut child) = world.child(&mut root).await;
        for _ in 0..2 {
            leaves.push(world.child(&mut child).await);
        }
        children.push((call, child));
    }
    Tree { root, children, leaves }
}

/// Counts the answers of each call of a session.
async fn answers(world: &World, session: &SessionId, calls: &[&PartId]) -> BTreeMap<PartId, usize> {
    let mut counts = BTreeMap::new();
    for answer in world.store.list_answers(world.tenant, session, calls).await.unwrap() {
        *counts.entry(answer.part_id).or_default() += 1;
    }
    counts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_tree_changes_do_not_deadlock_and_every_call_is_answered_once() {
    let mut world = World::new().await;
    let many = Store::connect(&world.database.app_url, &world.database.system_url, 24).unwrap();
    for round in 0..ROUNDS {
        let tree = grow(&mut world).await;
        let tenant = world.tenant;
        let session = |(_, actor): &(ParentCall, Actor)| actor.session().clone();
        let (root, ids) =
            (tree.root.session().clone(), tree.children.iter().map(session).collect::<Vec<_>>());
        let leaves: Vec<_> = tree.leaves.iter().map(session).collect();
        let calls_of_root: Vec<_> = tree.children.iter().map(|(call, _)| call.part_id.clone()).collect();
        let calls_of_first: Vec<_> = tree.leaves[..2].iter().map(|(call, _)| call.part_id.clone()).collect();
        let mut jobs: Vec<BoxFuture<'_, ()>> = vec![];
        let store = &many;
        // The first leaf is deleted, an operator stops the second, and the second child is deleted with all below it.
        for gone in [&leaves[0], &ids[1], &leaves[2]] {
            let delete = async move {
                pause(store, tenant, gone, round).await;
                settled("delete", store.delete_session(tenant, gone).await);
            };
            jobs.push(delete.boxed());
        }
        let (events, stopped) = (std::array::from_fn(|_| world.sample.event()), &leaves[1]);
        let kill = async move {
            pause(store, tenant, stopped, round).await;
            let notice = Notice { reason: "an operator stopped it", event_ids: events, at: NOW };
            settled("quarantine", store.quarantine(tenant, stopped, QuarantineRule::Any, notice).await);
        };
        jobs.push(kill.boxed());
        for target in ids.iter().chain(&leaves).chain([&root]) {
            for key in ["a1", "a2"] {
                let abort = async move {
                    let _ = settled("abort", store.accept_abort(tenant, target, key).await);
                };
                jobs.push(abort.boxed());
            }
            let wake = async {
                let _ = settled("wake", store.wake_due(limits::SWEEP_MAX).await);
            };
            jobs.push(wake.boxed());
        }
        let below = async { drop(settled("descendants", store.list_descendants(tenant, &root).await)) };
        jobs.push(below.boxed());
        let (call, changes) = world.call(&root);
        let new = (world.new_child(&call), changes);
        jobs.push(run(store, tree.root, None, Some(new)).boxed());
        for (call, actor) in tree.children.into_iter().chain(tree.leaves) {
            let (own, changes) = world.call(actor.session());
            let new = (world.new_child(&own), changes);
            jobs.push(run(store, actor, Some(call), Some(new)).boxed());
        }
        join_all(jobs).await;

        let (first, second): (Vec<_>, Vec<_>) =
            (calls_of_root.iter().collect(), calls_of_first.iter().collect());
        let once = |calls: &[PartId]| calls.iter().map(|part| (part.clone(), 1)).collect::<BTreeMap<_, _>>();
        assert_eq!(answers(&world, &root, &first).await, once(&calls_of_root), "round {round}");
        assert_eq!(answers(&world, &ids[0], &second).await, once(&calls_of_first), "round {round}");
        for left in [&root, &ids[0], &leaves[1]] {
            world.gap_free(left).await;
        }
        let gone = format!(
            "select count(*) from session_run where session_id in ('{}', '{}', '{}', '{}')",
            ids[1], leaves[0], leaves[2], leaves[3]
        );
        assert_eq!(world.number(&gone).await, 0, "round {round}");
        world.store.delete_session(tenant, &root).await.unwrap();
        assert_eq!(world.number("select count(*) from session").await, 0, "round {round}");
    }
    assert_eq!(
        world.number("select deadlocks from pg_stat_database where datname = current_database()").await,
        0
    );
}

/// An operation that ends a child waits for the parent before it locks the child, so no transaction waits for the child
/// meanwhile.
#[tokio::test]
async fn a_child_is_free_while_its_end_waits_for_its_parent() {
    let mut world = World::new().await;
    for way in ["park", "quarantine", "delete"] {
        let mut parent = world.actor().await;
        let (call, mut child) = world.child(&mut parent).await;
        let mut held = world.hold(parent.session()).await;
        let (id, fence) = (child.session().clone(), child.next());
        let events = std::array::from_fn(|_| world.sample.event());
        let (store, tenant) = (&world.store, world.tenant);
        let end = async {
            match way {
                "park" => drop(store.park(&fence, &[], 1, &finished(&id, &call, "done"), NOW).await.unwrap()),
                "quarantine" => {
                    let notice = Notice { reason: "by hand", event_ids: events, at: NOW };
                    store.quarantine(tenant, &id, QuarantineRule::Any, notice).await.unwrap().unwrap();
                }
                _ => drop(store.delete_session(tenant, &id).await.unwrap()),
            }
        };
        let others = async {
            world.blocked(1).await;
            testkit::within(way, world.hold(&id)).await.execute("commit").await.unwrap();
            held.execute("commit").await.unwrap();
        };
        tokio::join!(end, others);
        let answer_counts = answers(&world, parent.session(), &[&call.part_id]).await;
        assert_eq!(answer_counts, BTreeMap::from([(call.part_id, 1)]), "{way}");
    }
}

/// A child may be created while a deletion waits for its parent. The deletion locks it too before it deletes anything.
#[tokio::test]
async fn a_deletion_locks_children_that_were_created_while_it_waited() {
    let mut world = World::new().await;
    let mut root = world.actor().await;
    let (_, mut middle) = world.child(&mut root).await;
    let (_, leaf) = world.dispatch(&mut middle).await;
    let mut dispatch = world.hold(middle.session()).await;
    let mut behind = world.hold(&leaf).await;
    let others = async {
        world.blocked(1).await;
        let (tenant, parent, top) = (world.tenant, middle.session(), root.session());
        let make = format!(
            "insert into session (tenant_id, id, project_id, parent_id, root_id, depth, title, agent, provider_id, model_id, source)
             select tenant_id, 'ses_late', project_id, id, '{top}', 2, '', 'general', '', '', source
               from session where id = '{parent}';
             insert into session_run (tenant_id, session_id) values ('{tenant}', 'ses_late'); commit"
        );
        dispatch.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(make))).await.unwrap();
        let mut writer = world.hold(&"ses_late".parse().unwrap()).await;
        behind.execute("commit").await.unwrap();
        // The deletion continues until the row that the writer holds.
        world.blocked(1).await;
        let write = format!(
            "insert into session_event (tenant_id, session_id, seq, epoch, id, kind, properties)
             values ('{tenant}', 'ses_late', 1, 1, 'evt_1', 'session.idle', '{{}}'); commit"
        );
        writer.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(write))).await.unwrap();
    };
    let (deleted, ()) = tokio::join!(world.store.delete_session(world.tenant, root.session()), others);
    assert_eq!(deleted.unwrap().parent, None);
    assert_eq!(world.number("select count(*) from session").await, 0);
}
