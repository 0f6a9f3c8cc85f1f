//! The operator's view and actions across all tenants: the queue, the workers, and sessions that need intervention.

use super::{
    gateway::Gateway,
    page::{List, PageRequest, is_full, is_text},
};
use crate::{
    auth::principal::Principal,
    backends::sandbox::own_fence,
    errors::{entity::Entity, error::Error, invalid::Invalid},
    scope::Scope,
    state::{State, now},
};
use bus::queue::QueueEntry;
use domain::{
    ids::{EventId, SessionId, TenantId},
    limits,
    session::{Class, Phase},
    text::{head, without_nul},
};
use rpc::v1;
use store::{
    control::operator::{Control, QueueLine, Worker},
    session::quarantine::{Notice, QuarantineRule},
};

/// Lists the queue. Pages count tenants; each tenant has up to three lines.
///
/// # Errors
/// `operator_only`, `page_too_large`, `cursor_invalid`, `store_unavailable`.
pub(crate) async fn list_queue(
    gateway: &Gateway,
    principal: &Principal,
    page: PageRequest,
) -> Result<List<QueueLine>, Error> {
    principal.require(Scope::Operate)?;
    let page = page.check(is_text)?;
    let entries = gateway.state.store.list_queue(&page).await?;
    let mut names: Vec<&str> = entries.iter().map(|line| line.name.as_str()).collect();
    names.dedup();
    let next = names.last().filter(|_| is_full(&page, names.len())).map(|name| (*name).to_owned());
    Ok(List { entries, next })
}

/// Lists the workers that are alive.
///
/// # Errors
/// `operator_only`, `page_too_large`, `cursor_invalid`, `store_unavailable`.
pub(crate) async fn list_workers(
    gateway: &Gateway,
    principal: &Principal,
    page: PageRequest,
) -> Result<Vec<Worker>, Error> {
    principal.require(Scope::Operate)?;
    Ok(gateway.state.store.list_workers(&page.check(|_| false)?).await?)
}

/// Lists the sessions in a phase, longest first.
///
/// # Errors
/// `operator_only`, `page_too_large`, `cursor_invalid`, `store_unavailable`.
pub(crate) async fn list_control(
    gateway: &Gateway,
    principal: &Principal,
    phase: Phase,
    page: PageRequest,
) -> Result<Vec<Control>, Error> {
    principal.require(Scope::Operate)?;
    Ok(gateway.state.store.list_control(phase, &page.check(|_| false)?).await?)
}

/// Whether a worker accepts sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Draining {
    Start,
    Stop,
}

/// Asks the workers with a name to drain, or to take sessions again. Returns their number.
///
/// # Errors
/// `operator_only`, `worker_not_found`, `store_unavailable`.
pub(crate) async fn drain_worker(
    gateway: &Gateway,
    principal: &Principal,
    name: &str,
    draining: Draining,
) -> Result<u32, Error> {
    principal.require(Scope::Operate)?;
    if !is_text(name) {
        return Err(Error::NotFound(Entity::Worker));
    }
    match principal.acting(&gateway.state.store).ask_drain(name, draining == Draining::Start).await? {
        0 => Err(Error::NotFound(Entity::Worker)),
        workers => Ok(u32::try_from(workers).unwrap_or(u32::MAX)),
    }
}

/// The tenant of a session; without a name, the only one with a session of this id.
///
/// # Errors
/// `session_not_found`, `session_ambiguous`, `tenant_invalid`, `store_unavailable`.
async fn tenant_of(state: &State, session: &SessionId, named: &str) -> Result<TenantId, Error> {
    if !named.is_empty() {
        let tenant = named.parse().map_err(|_| Invalid::Tenant.because("the tenant's id must be a UUID"))?;
        state.store.get_session(tenant, session).await?;
        return Ok(tenant);
    }
    let owners = state.store.list_owners(session).await?;
    match owners.as_slice() {
        [] => Err(Error::NotFound(Entity::Session)),
        [owner] => Ok(owner.tenant),
        several => {
            let names: Vec<_> =
                several.iter().map(|owner| format!("{} ({})", owner.name, owner.tenant.0)).collect();
            let message =
                format!("several tenants have a session with this id: {}; name one", names.join(", "));
            Err(Invalid::SessionAmbiguous.because(message))
        }
    }
}

/// Releases a quarantined session. `tenant` may be empty if only one tenant has a session with this id.
///
/// # Errors
/// `operator_only`, `not_quarantined`, `store_unavailable`; those of [`tenant_of`].
pub(crate) async fn release_session(
    gateway: &Gateway,
    principal: &Principal,
    tenant: &str,
    session: &SessionId,
) -> Result<(), Error> {
    principal.require(Scope::Operate)?;
    let state = &gateway.state;
    let tenant = tenant_of(state, session, tenant).await?;
    let event = state.id(EventId::make);
    let released = principal.acting(&state.store).release(tenant, session, event, now()).await?;
    let (events, class) = released.ok_or(Error::NotQuarantined)?;
    state.publisher.publish_events(tenant, session, &events);
    announce(state, tenant, session, class).await;
    Ok(())
}

/// Quarantines a session, ends its processes and aborts its subtasks. Returns the number of aborted subtasks. `tenant` may be empty if
/// only one tenant has a session with this id.
///
/// # Errors
/// `operator_only`, `not_active`, `store_unavailable`; those of [`tenant_of`].
pub(crate) async fn kill_session(
    gateway: &Gateway,
    principal: &Principal,
    tenant: &str,
    session: &SessionId,
    reason: &str,
) -> Result<u32, Error> {
    principal.require(Scope::Operate)?;
    let state = &gateway.state;
    let reason = match without_nul(head(reason, limits::NAME_BYTES_MAX)).as_ref() {
        "" => "an operator stopped it".to_owned(),
        reason => format!("an operator stopped it: {reason}"),
    };
    let tenant = tenant_of(state, session, tenant).await?;
    let event_ids = [(); 3].map(|()| state.id(EventId::make));
    let notice = Notice { reason: &reason, event_ids, at: now() };
    let killed =
        principal.acting(&state.store).quarantine(tenant, session, QuarantineRule::Any, notice).await?;
    if let Some(killed) = &killed {
        state.publisher.publish_events(tenant, session, &killed.events);
        // The worker's next write fails anyway; the nudge lets it notice at once.
        state.bus.nudge(tenant, session);
        if let Some(parent) = &killed.parent {
            state.bus.nudge(tenant, parent);
            announce(state, tenant, parent, killed.class).await;
        }
        end_processes(state, tenant, session, killed.epoch).await;
    }
    // Repeat this even if the session was already stopped: the first call may have failed before it reached the subtasks.
    let subtasks = abort_subtasks(state, tenant, session).await?;
    if killed.is_none() && subtasks == 0 {
        return Err(Error::NotActive);
    }
    Ok(subtasks)
}

async fn announce(state: &State, tenant: TenantId, session: &SessionId, class: Class) {
    state.announce(QueueEntry { tenant, session, class, share: None }).await;
}

/// Aborts the subtasks of a stopped session, because no session would read their answers.
async fn abort_subtasks(state: &State, tenant: TenantId, session: &SessionId) -> Result<u32, Error> {
    let key = format!("kill:{}", state.id(EventId::make));
    let below = state.store.abort_below(tenant, session, &key).await?;
    let entries: Vec<_> = below
        .iter()
        .map(|at| QueueEntry { tenant, session: &at.session, class: at.class, share: None })
        .collect();
    state.bus.interrupt(&entries).await;
    Ok(u32::try_from(below.len()).unwrap_or(u32::MAX))
}

/// Ends the processes of a session. Best effort: the sandbox refuses the old epoch from its next call on, and each command has a time
/// limit.
async fn end_processes(state: &State, tenant: TenantId, session: &SessionId, epoch: u64) {
    let request = v1::KillExecsRequest { fence: Some(own_fence(tenant, session, epoch)) };
    if let Err(status) = state.sandbox.files().kill_execs(request).await {
        tracing::warn!(session.id = %session, "cannot end the processes: {}", status.message());
    }
}
