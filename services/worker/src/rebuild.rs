//! Keeps the ready queue in Redis in step with the column in Postgres that is the truth: queues what no message
//! announced, takes the sessions of dead workers, and fills an emptied Redis again.

use crate::{deps::Deps, lease::Lease};
use bus::queue::{Entry, Mode, Share};
use domain::limits;
use store::{error::Error, system::Claimable};

/// After its start Postgres is given this long before workers count as dead: all of them look so at first.
const POSTGRES_GRACE_MS: u64 = 10_000;
/// Renewals of one's own before one takes another worker's sessions.
const STREAK_MIN: u32 = 2;

/// Lists the sessions that need a worker: runnable ones, and those of dead workers once it is certain that it is not
/// Postgres that was away.
pub(crate) async fn claimable(deps: &Deps, lease: &Lease) -> Result<Vec<Claimable>, Error> {
    deps.store.wake_due().await?;
    let mut claimable = deps.store.list_runnable(limits::SWEEP_MAX).await?;
    if *lease.streak.borrow() >= STREAK_MIN && deps.store.get_uptime_ms().await? > POSTGRES_GRACE_MS {
        claimable.extend(deps.store.list_orphaned(limits::SWEEP_MAX).await?);
    }
    Ok(claimable)
}

/// Queues sessions in Redis. Gives false when Redis does not take them.
pub(crate) async fn enqueue(deps: &Deps, claimable: &[Claimable], mode: Mode) -> bool {
    for session in claimable {
        if let Err(error) = deps.bus.enqueue(entry(session), mode).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "Redis does not take sessions");
            return false;
        }
    }
    true
}

fn entry(session: &Claimable) -> Entry<'_> {
    let share = Share { running_max: session.running_max, weight: session.weight };
    let place = &session.place;
    Entry { tenant: place.tenant, session: &place.session, class: session.class, share: Some(share) }
}

/// Fills an emptied Redis. Each step may be repeated, and two workers may do it at once.
pub(crate) async fn refill(deps: &Deps, claimable: &[Claimable]) -> Result<(), Error> {
    for (session, owner) in deps.store.list_owned(limits::SWEEP_MAX * 100).await? {
        if let Err(error) = deps.bus.adopt(entry(&session), &owner.to_string()).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "Redis is not filled");
            return Ok(());
        }
    }
    if enqueue(deps, claimable, Mode::Rebuild).await {
        match deps.bus.complete_rebuild().await {
            Ok(()) => tracing::info!(
                "Redis was empty and is filled again, with {} sessions that wait",
                claimable.len()
            ),
            Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "Redis is not filled"),
        }
    }
    Ok(())
}
