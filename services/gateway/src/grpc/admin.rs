//! `AdminService`: what an operator sees and does, across all tenants.

use super::{Service, from_store, is_text, next_cursor, page, session_id, to_wire};
use crate::state::now;
use bus::queue::QueueEntry;
use domain::{
    ids::{EventId, SessionId, TenantId, Timestamp},
    limits,
    session::{Class, Phase},
};
use rpc::{
    status::{invalid, not_found, precondition},
    v1::{self, admin_service_server::AdminService},
};
use store::{
    control::operator::{Control, QueueLine, Worker},
    session::quarantine::{Notice, QuarantineRule},
};
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl AdminService for Service {
    async fn list_queue(
        &self,
        request: Request<v1::ListQueueRequest>,
    ) -> Result<Response<v1::ListQueueResponse>, Status> {
        self.0.operator(&request)?;
        let page = page(request.into_inner().page, is_text)?;
        let lines = self.0.store.list_queue(&page).await.map_err(from_store)?;
        // A page counts tenants, each with up to three lines.
        let mut names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
        names.dedup();
        let next_cursor = next_cursor(&page, &names, |name| (*name).to_owned());
        let lines = lines.into_iter().map(line).collect();
        Ok(Response::new(v1::ListQueueResponse { lines, next_cursor }))
    }

    async fn list_workers(
        &self,
        request: Request<v1::ListWorkersRequest>,
    ) -> Result<Response<v1::ListWorkersResponse>, Status> {
        self.0.operator(&request)?;
        let page = page(request.into_inner().page, |_| false)?;
        let workers = self.0.store.list_workers(&page).await.map_err(from_store)?;
        let workers = workers.into_iter().map(worker).collect();
        Ok(Response::new(v1::ListWorkersResponse { workers }))
    }

    async fn list_control(
        &self,
        request: Request<v1::ListControlRequest>,
    ) -> Result<Response<v1::ListControlResponse>, Status> {
        self.0.operator(&request)?;
        let phase = match request.get_ref().state() {
            v1::SessionState::Queued => Phase::Runnable,
            v1::SessionState::Running => Phase::Running,
            v1::SessionState::Waiting => Phase::Waiting,
            v1::SessionState::Quarantined => Phase::Quarantined,
            v1::SessionState::Idle | v1::SessionState::Unspecified => {
                return Err(invalid(
                    "state_invalid",
                    "ask for QUEUED, RUNNING, WAITING or QUARANTINED sessions",
                ));
            }
        };
        let page = page(request.into_inner().page, |_| false)?;
        let sessions = self.0.store.list_control(phase, &page).await.map_err(from_store)?;
        let sessions = sessions.into_iter().map(control).collect();
        Ok(Response::new(v1::ListControlResponse { sessions }))
    }

    async fn drain_worker(
        &self,
        request: Request<v1::DrainWorkerRequest>,
    ) -> Result<Response<v1::DrainWorkerResponse>, Status> {
        self.0.operator(&request)?;
        let name = &request.get_ref().worker;
        let unknown = || not_found("worker_not_found", "no living worker has this name");
        let name = Some(name).filter(|name| is_text(name)).ok_or_else(unknown)?;
        match self.0.store.ask_drain(name, !request.get_ref().undo).await.map_err(from_store)? {
            0 => Err(unknown()),
            asked => {
                Ok(Response::new(v1::DrainWorkerResponse { asked: u32::try_from(asked).unwrap_or(u32::MAX) }))
            }
        }
    }

    async fn release_session(
        &self,
        request: Request<v1::ReleaseSessionRequest>,
    ) -> Result<Response<v1::ReleaseSessionResponse>, Status> {
        self.0.operator(&request)?;
        let session = session_id(&request.get_ref().session_id)?;
        let tenant = self.0.store.get_tenant_of(&session).await.map_err(from_store)?;
        let event = self.0.id(EventId::make);
        let released = self.0.store.release(tenant, &session, event, now()).await.map_err(from_store)?;
        let (events, class) =
            released.ok_or_else(|| precondition("not_quarantined", "the session is not quarantined"))?;
        self.0.publisher.publish_events(tenant, &session, &events);
        self.announce(tenant, &session, class).await;
        Ok(Response::new(v1::ReleaseSessionResponse {}))
    }

    async fn kill_session(
        &self,
        request: Request<v1::KillSessionRequest>,
    ) -> Result<Response<v1::KillSessionResponse>, Status> {
        self.0.operator(&request)?;
        let request = request.into_inner();
        let session = session_id(&request.session_id)?;
        let why = domain::text::without_nul(domain::text::head(&request.reason, limits::NAME_BYTES_MAX))
            .into_owned();
        let reason = if why.is_empty() {
            "an operator stopped it".to_owned()
        } else {
            format!("an operator stopped it: {why}")
        };
        let tenant = self.0.store.get_tenant_of(&session).await.map_err(from_store)?;
        let ids = [(); 3].map(|()| self.0.id(EventId::make));
        let notice = Notice { reason: &reason, event_ids: ids, at: now() };
        let killed = self.0.store.quarantine(tenant, &session, QuarantineRule::Any, notice).await;
        let killed = killed.map_err(from_store)?;
        if let Some(killed) = &killed {
            self.0.publisher.publish_events(tenant, &session, &killed.events);
            // Its worker, if it has one, is refused from now on; a nudge lets it notice at once.
            self.0.bus.nudge(tenant, &session);
            if let Some(parent) = &killed.parent {
                self.0.bus.nudge(tenant, parent);
                self.announce(tenant, parent, killed.class).await;
            }
            self.end_processes(tenant, &session, killed.epoch).await;
        }
        // Also when it was stopped before: whoever did that may not have come as far as its subtasks.
        let below = self.abort_below(tenant, &session).await?;
        if killed.is_none() && below == 0 {
            return Err(precondition("not_active", "the session is idle, or quarantined already"));
        }
        Ok(Response::new(v1::KillSessionResponse { subtasks: below }))
    }
}

impl Service {
    async fn announce(&self, tenant: TenantId, session: &SessionId, class: Class) {
        self.0.announce(QueueEntry { tenant, session, class, share: None }).await;
    }

    /// Aborts what works below a session that was stopped: nobody would take its answers. Gives how many that are.
    async fn abort_below(&self, tenant: TenantId, session: &SessionId) -> Result<u32, Status> {
        let key = format!("kill:{}", self.0.id(EventId::make));
        let below = self.0.store.abort_below(tenant, session, &key).await.map_err(from_store)?;
        let entries: Vec<_> = below
            .iter()
            .map(|at| QueueEntry { tenant, session: &at.session, class: at.class, share: None })
            .collect();
        self.0.bus.interrupt(&entries).await;
        Ok(u32::try_from(below.len()).unwrap_or(u32::MAX))
    }

    /// Ends what a session runs in the sandbox. Best effort: the sandbox refuses the old epoch from the next call on, and
    /// each command has a time limit.
    async fn end_processes(&self, tenant: TenantId, session: &SessionId, epoch: u64) {
        let fence = v1::Fence {
            tenant_id: tenant.to_string(),
            session_id: session.to_string(),
            epoch,
            workspace_session_id: String::new(),
        };
        let request = v1::KillExecsRequest { fence: Some(fence) };
        if let Err(status) = self.0.sandbox.clone().kill_execs(request).await {
            tracing::warn!(session.id = %session, "its processes were not ended: {}", status.message());
        }
    }
}

fn ms(at: Option<Timestamp>) -> i64 {
    at.map_or(0, |at| at.0)
}

fn line(line: QueueLine) -> v1::QueueLine {
    v1::QueueLine {
        tenant_id: line.tenant.0.to_string(),
        tenant_name: line.name,
        class: to_wire::class(line.class).into(),
        queued: line.runnable,
        oldest_ms: line.oldest_queued_at.map_or(0, |at| now().0.saturating_sub(at.0).max(0)),
        running: line.running,
        waiting: line.waiting,
        quarantined: line.quarantined,
        running_max: line.running_max,
        weight: line.weight,
    }
}

fn worker(worker: Worker) -> v1::Worker {
    v1::Worker {
        incarnation: worker.incarnation.to_string(),
        name: worker.name,
        version: worker.version,
        started_at_ms: worker.started_at.0,
        lease_ms: worker.lease_ms,
        draining: worker.draining,
        slots: worker.slots,
        running: worker.running,
    }
}

fn control(control: Control) -> v1::Control {
    v1::Control {
        tenant_id: control.tenant.0.to_string(),
        session_id: control.session.to_string(),
        state: to_wire::state(control.phase).into(),
        class: to_wire::class(control.class).into(),
        owner: control.owner.unwrap_or_default(),
        owned_at_ms: ms(control.owned_at),
        queued_at_ms: ms(control.queued_at),
        epoch: control.epoch,
        attempts: u32::from(control.attempts.unsigned_abs()),
        waiting_reason: control.waiting_reason.unwrap_or_default(),
        waiting_detail: control.waiting_detail.unwrap_or_default(),
        waiting_at_ms: ms(control.waiting_at),
    }
}
