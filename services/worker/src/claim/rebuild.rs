//! Keeps the ready queue in Redis consistent with Postgres, which is the truth: queues sessions that no message announced,
//! takes those of dead workers, and refills a Redis that lost its data.

use super::lease::Lease;
use crate::process::{deps::Deps, store_timeout::with_store_timeout};
use bus::queue::{Mode, QueueEntry, TenantShare};
use domain::limits;
use std::collections::HashSet;
use store::{
    control::{
        aborts::OwnerFilter,
        candidate::{Candidate, SessionRef},
    },
    error::Error,
};

/// Reads of `SWEEP_MAX` sessions to refill an emptied Redis. A million sessions are beyond any backlog. Workers cannot claim
/// meanwhile, so the refill must end even if sessions arrive faster than it reads them. The sweeps queue the others.
const REBUILD_LOOKS_MAX: u32 = 1_000;
/// Time after a start of Postgres in which workers do not count as dead, because all of them look dead at first;
/// milliseconds.
const POSTGRES_GRACE_MS: u64 = 10_000;
/// Sessions that one sweep sends to Redis at the same time: sent one by one, they would mostly wait for the network. The others wait.
const SWEEP_ENQUEUES_PARALLEL_MAX: usize = 50;

/// The number of renewals that a worker needs before it takes the sessions of another worker.
const STREAK_MIN: u32 = 2;

/// Lists the sessions that need a worker: runnable ones and, once it is certain that Postgres was not down, those of dead
/// workers.
pub(crate) async fn claimable(deps: &Deps, lease: &Lease) -> Result<Vec<Candidate>, Error> {
    let woken = deps.store.wake_due(limits::SWEEP_MAX).await?;
    let mut claimable = deps.store.list_runnable(limits::SWEEP_MAX).await?;
    // A session that was just woken is runnable and in the list, unless the backlog of its tenant comes first.
    let listed: HashSet<&SessionRef> = claimable.iter().map(|session| &session.target).collect();
    let unlisted: Vec<Candidate> =
        woken.into_iter().filter(|session| !listed.contains(&session.target)).collect();
    claimable.extend(unlisted);
    claimable.extend(orphaned(deps, lease).await?);
    Ok(claimable)
}

/// Lists the sessions that this worker may take while Redis is down. Those of dead workers come first, because they already count
/// as running for their tenant.
pub(crate) async fn takeable(deps: &Deps, lease: &Lease) -> Result<Vec<Candidate>, Error> {
    let mut takeable = orphaned(deps, lease).await?;
    takeable.extend(deps.store.list_takeable(limits::SWEEP_MAX).await?);
    Ok(takeable)
}

/// Lists the sessions of dead workers.
async fn orphaned(deps: &Deps, lease: &Lease) -> Result<Vec<Candidate>, Error> {
    if may_judge(deps, lease).await? { deps.store.list_orphaned(limits::SWEEP_MAX).await } else { Ok(vec![]) }
}

/// Lists the aborted sessions without a loop, including those of dead workers.
pub(crate) async fn aborted(deps: &Deps, lease: &Lease) -> Result<Vec<SessionRef>, Error> {
    let owners =
        if may_judge(deps, lease).await? { OwnerFilter::UnownedOrDead } else { OwnerFilter::Unowned };
    let limit = i64::try_from(limits::ABORTS_PARALLEL_MAX).unwrap_or(1);
    deps.store.list_aborted(owners, limit).await
}

/// Whether a lease that looks expired really is. If Postgres was down, workers could not renew their leases.
async fn may_judge(deps: &Deps, lease: &Lease) -> Result<bool, Error> {
    Ok(*lease.streak.borrow() >= STREAK_MIN && deps.store.is_settled(POSTGRES_GRACE_MS).await?)
}

/// Queues sessions in Redis, in order. Returns false if Redis does not accept them.
pub(crate) async fn enqueue(deps: &Deps, claimable: &[Candidate], mode: Mode) -> bool {
    for some in claimable.chunks(SWEEP_ENQUEUES_PARALLEL_MAX) {
        let queued: Vec<_> = some.iter().map(|session| deps.bus.enqueue(entry(session), mode)).collect();
        if let Err(error) = futures::future::try_join_all(queued).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "cannot queue sessions in Redis");
            return false;
        }
    }
    true
}

fn entry(session: &Candidate) -> QueueEntry<'_> {
    let share = TenantShare { running_max: session.running_max, weight: session.weight };
    let place = &session.target;
    QueueEntry { tenant: place.tenant, session: &place.session, class: session.class, share: Some(share) }
}

/// Refills a Redis that lost its data: with the running sessions, with `claimable`, which includes those of dead workers, and with
/// every other waiting session. Each step may be repeated, and two workers may refill at once.
pub(crate) async fn refill(deps: &Deps, claimable: &[Candidate]) -> Result<(), Error> {
    if !adopt_owned(deps).await? || !enqueue(deps, claimable, Mode::Rebuild).await {
        return Ok(());
    }
    let Some(count) = enqueue_queued(deps).await? else { return Ok(()) };
    match deps.bus.complete_rebuild().await {
        Ok(()) => tracing::info!("Redis was empty; refilled it with {count} waiting sessions"),
        Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "cannot refill Redis"),
    }
    Ok(())
}

/// Tells Redis which worker owns which session. Returns false if Redis does not accept it.
async fn adopt_owned(deps: &Deps) -> Result<bool, Error> {
    let mut after = None;
    for _ in 0..REBUILD_LOOKS_MAX {
        let mut page = with_store_timeout(deps.store.list_owned(after.as_ref(), limits::SWEEP_MAX)).await?;
        for (session, owner) in &page {
            if let Err(error) = deps.bus.adopt(entry(session), &owner.to_string()).await {
                tracing::warn!(error = &error as &dyn std::error::Error, "cannot refill Redis");
                return Ok(false);
            }
        }
        let Some((last, _)) = page.pop() else { return Ok(true) };
        after = Some(last.target);
    }
    tracing::warn!(
        "Redis was told of only some of the running sessions; their tenants may exceed their limits"
    );
    Ok(true)
}

/// Queues every waiting session, in order, and returns their number; `None` if Redis does not accept them.
async fn enqueue_queued(deps: &Deps) -> Result<Option<usize>, Error> {
    let (mut after, mut count) = (None, 0);
    for _ in 0..REBUILD_LOOKS_MAX {
        let (page, last) =
            with_store_timeout(deps.store.list_queued(after.as_ref(), limits::SWEEP_MAX)).await?;
        if !enqueue(deps, &page, Mode::Rebuild).await {
            return Ok(None);
        }
        count += page.len();
        if last.is_none() {
            return Ok(Some(count));
        }
        after = last;
    }
    tracing::warn!("too many sessions wait to refill Redis at once; the sweeps will queue the others");
    Ok(Some(count))
}
