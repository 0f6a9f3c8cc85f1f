//! `AdminService`: the operator's view and actions, across all tenants.

use super::{
    convert,
    service::{Service, principal},
    status::{id, respond, to_status},
};
use crate::{
    app::operator::{self, Draining},
    errors::{entity::Entity, invalid::Invalid},
    state::now,
};
use domain::{ids::Timestamp, session::Phase};
use rpc::v1::{self, admin_service_server::AdminService};
use store::control::operator::{Control, QueueLine, Worker};
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl AdminService for Service {
    async fn list_queue(
        &self,
        request: Request<v1::ListQueueRequest>,
    ) -> Result<Response<v1::ListQueueResponse>, Status> {
        let principal = principal(&request)?;
        let page = convert::page(request.into_inner().page);
        respond(operator::list_queue(&self.0, &principal, page).await, |list| v1::ListQueueResponse {
            lines: list.entries.into_iter().map(line).collect(),
            next_cursor: list.next.unwrap_or_default(),
        })
    }

    async fn list_workers(
        &self,
        request: Request<v1::ListWorkersRequest>,
    ) -> Result<Response<v1::ListWorkersResponse>, Status> {
        let principal = principal(&request)?;
        let page = convert::page(request.into_inner().page);
        respond(operator::list_workers(&self.0, &principal, page).await, |workers| v1::ListWorkersResponse {
            workers: workers.into_iter().map(worker).collect(),
        })
    }

    async fn list_control(
        &self,
        request: Request<v1::ListControlRequest>,
    ) -> Result<Response<v1::ListControlResponse>, Status> {
        let principal = principal(&request)?;
        let phase = match request.get_ref().state() {
            v1::SessionState::Queued => Phase::Runnable,
            v1::SessionState::Running => Phase::Running,
            v1::SessionState::Waiting => Phase::Waiting,
            v1::SessionState::Quarantined => Phase::Quarantined,
            v1::SessionState::Idle | v1::SessionState::Unspecified => {
                let message = "list QUEUED, RUNNING, WAITING or QUARANTINED sessions";
                return Err(to_status(Invalid::State.because(message)));
            }
        };
        let page = convert::page(request.into_inner().page);
        respond(operator::list_control(&self.0, &principal, phase, page).await, |sessions| {
            v1::ListControlResponse { sessions: sessions.into_iter().map(control).collect() }
        })
    }

    async fn drain_worker(
        &self,
        request: Request<v1::DrainWorkerRequest>,
    ) -> Result<Response<v1::DrainWorkerResponse>, Status> {
        let principal = principal(&request)?;
        let request = request.get_ref();
        let draining = if request.undo { Draining::Stop } else { Draining::Start };
        respond(operator::drain_worker(&self.0, &principal, &request.worker, draining).await, |count| {
            v1::DrainWorkerResponse { asked: count }
        })
    }

    async fn release_session(
        &self,
        request: Request<v1::ReleaseSessionRequest>,
    ) -> Result<Response<v1::ReleaseSessionResponse>, Status> {
        let principal = principal(&request)?;
        let request = request.into_inner();
        let session = id(&request.session_id, Entity::Session)?;
        respond(operator::release_session(&self.0, &principal, &request.tenant_id, &session).await, |()| {
            v1::ReleaseSessionResponse {}
        })
    }

    async fn kill_session(
        &self,
        request: Request<v1::KillSessionRequest>,
    ) -> Result<Response<v1::KillSessionResponse>, Status> {
        let principal = principal(&request)?;
        let request = request.into_inner();
        let session = id(&request.session_id, Entity::Session)?;
        let v1::KillSessionRequest { tenant_id, reason, .. } = request;
        let killed = operator::kill_session(&self.0, &principal, &tenant_id, &session, &reason).await;
        respond(killed, |subtasks| v1::KillSessionResponse { subtasks })
    }
}

fn ms(at: Option<Timestamp>) -> i64 {
    at.map_or(0, |at| at.0)
}

fn line(line: QueueLine) -> v1::QueueLine {
    v1::QueueLine {
        tenant_id: line.tenant.0.to_string(),
        tenant_name: line.name,
        class: convert::class(line.class).into(),
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
        state: convert::state(control.phase).into(),
        class: convert::class(control.class).into(),
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
