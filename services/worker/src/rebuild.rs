//! Keeps the ready queue in Redis in step with the column in Postgres that is the truth: queues what no message
//! announced, takes the sessions of dead workers, and fills an emptied Redis again.

use crate::{deps::Deps, lease::Lease, record::answered};
use bus::queue::{Mode, QueueEntry, Share};
use domain::{ids::SessionId, limits};
use std::collections::HashSet;
use store::{
    control::{
        aborts::OwnerFilter,
        candidate::{Candidate, SessionRef},
    },
    error::Error,
};

/// Renewals of one's own before one takes another worker's sessions.
const STREAK_MIN: u32 = 2;

/// Lists the sessions that need a worker: runnable ones, and those of dead workers once it is certain that it is not
/// Postgres that was away.
pub(crate) async fn claimable(deps: &Deps, lease: &Lease) -> Result<Vec<Candidate>, Error> {
    let woken = deps.store.wake_due(limits::SWEEP_MAX).await?;
    let mut claimable = deps.store.list_runnable(limits::SWEEP_MAX).await?;
    // Who was just woken is runnable, and is listed, unless its own tenant's backlog stands before it.
    let listed: HashSet<&SessionId> = claimable.iter().map(|session| &session.target.session).collect();
    let unlisted: Vec<Candidate> =
        woken.into_iter().filter(|session| !listed.contains(&session.target.session)).collect();
    claimable.extend(unlisted);
    claimable.extend(orphaned(deps, lease).await?);
    Ok(claimable)
}

/// Lists the sessions that this worker may take when Redis does not share them out. What lost its worker goes on first: it
/// counts as running of its tenant all the time.
pub(crate) async fn takeable(deps: &Deps, lease: &Lease) -> Result<Vec<Candidate>, Error> {
    let mut takeable = orphaned(deps, lease).await?;
    takeable.extend(deps.store.list_takeable(limits::SWEEP_MAX).await?);
    Ok(takeable)
}

/// Lists the sessions of dead workers.
async fn orphaned(deps: &Deps, lease: &Lease) -> Result<Vec<Candidate>, Error> {
    if may_judge(deps, lease).await? { deps.store.list_orphaned(limits::SWEEP_MAX).await } else { Ok(vec![]) }
}

/// Lists the aborted sessions that no loop has, those of dead workers among them.
pub(crate) async fn aborted(deps: &Deps, lease: &Lease) -> Result<Vec<SessionRef>, Error> {
    let owners =
        if may_judge(deps, lease).await? { OwnerFilter::UnownedOrDead } else { OwnerFilter::Unowned };
    let limit = i64::try_from(limits::ABORTS_PARALLEL_MAX).unwrap_or(1);
    deps.store.list_aborted(owners, limit).await
}

/// Whether a lease that looks ended has ended: it was not Postgres that was away.
async fn may_judge(deps: &Deps, lease: &Lease) -> Result<bool, Error> {
    Ok(*lease.streak.borrow() >= STREAK_MIN && deps.store.is_settled(limits::POSTGRES_GRACE_MS).await?)
}

/// Queues sessions in Redis, in their order. Gives false when Redis does not take them.
pub(crate) async fn enqueue(deps: &Deps, claimable: &[Candidate], mode: Mode) -> bool {
    for some in claimable.chunks(limits::SWEEP_ENQUEUES_PARALLEL_MAX) {
        let queued: Vec<_> = some.iter().map(|session| deps.bus.enqueue(entry(session), mode)).collect();
        if let Err(error) = futures::future::try_join_all(queued).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "Redis does not take sessions");
            return false;
        }
    }
    true
}

fn entry(session: &Candidate) -> QueueEntry<'_> {
    let share = Share { running_max: session.running_max, weight: session.weight };
    let place = &session.target;
    QueueEntry { tenant: place.tenant, session: &place.session, class: session.class, share: Some(share) }
}

/// Fills an emptied Redis: with what runs, with `claimable`, which knows also the sessions of dead workers, and with
/// everything else that waits. Each step may be repeated, and two workers may do it at once.
pub(crate) async fn refill(deps: &Deps, claimable: &[Candidate]) -> Result<(), Error> {
    if !adopt_owned(deps).await? || !enqueue(deps, claimable, Mode::Rebuild).await {
        return Ok(());
    }
    let Some(count) = enqueue_queued(deps).await? else { return Ok(()) };
    match deps.bus.complete_rebuild().await {
        Ok(()) => tracing::info!("Redis was empty and is filled again, with {count} sessions that wait"),
        Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "Redis is not filled"),
    }
    Ok(())
}

/// Tells Redis who owns what. Gives false when Redis does not take it.
async fn adopt_owned(deps: &Deps) -> Result<bool, Error> {
    let mut after = None;
    for _ in 0..limits::REBUILD_LOOKS_MAX {
        let mut page = answered(deps.store.list_owned(after.as_ref(), limits::SWEEP_MAX)).await?;
        for (session, owner) in &page {
            if let Err(error) = deps.bus.adopt(entry(session), &owner.to_string()).await {
                tracing::warn!(error = &error as &dyn std::error::Error, "Redis is not filled");
                return Ok(false);
            }
        }
        let Some((last, _)) = page.pop() else { return Ok(true) };
        after = Some(last.target);
    }
    tracing::warn!("more sessions run than Redis was told of; their tenants may run more than they should");
    Ok(true)
}

/// Queues everything that waits, in its order. Gives how much that is; `None` when Redis does not take it.
async fn enqueue_queued(deps: &Deps) -> Result<Option<usize>, Error> {
    let (mut after, mut count) = (None, 0);
    for _ in 0..limits::REBUILD_LOOKS_MAX {
        let (page, last) = answered(deps.store.list_queued(after.as_ref(), limits::SWEEP_MAX)).await?;
        if !enqueue(deps, &page, Mode::Rebuild).await {
            return Ok(None);
        }
        count += page.len();
        if last.is_none() {
            return Ok(Some(count));
        }
        after = last;
    }
    tracing::warn!(
        "more sessions wait than fill Redis at once; the sweeps queue the others as these are done"
    );
    Ok(Some(count))
}
