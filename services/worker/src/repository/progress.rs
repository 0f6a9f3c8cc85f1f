//! What the opening of a workspace does, for subscribers of the session: it may take minutes. The notices are hints: they may be lost, and no row is written.

use crate::process::{
    deps::Deps,
    sandbox::{Identity, is_stale},
};
use bus::feed::{Notice, Subject};
use domain::{event::WORKSPACE_PROGRESS, ids::EventId, opening::Stage};
use rpc::v1;
use serde_json::{json, value::to_raw_value};
use std::{
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;
use tonic::Status;

/// Time before the first notice: most openings are over then.
const NOTICE_DELAY: Duration = Duration::from_secs(2);
/// Time between two notices, and longest wait for the sandbox machine to say how far it is.
const NOTICE_INTERVAL: Duration = Duration::from_secs(1);

/// How much of a stage is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Amount {
    done: u64,
    /// `None`: not known.
    total: Option<u64>,
    unit: &'static str,
}

/// How far an opening is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StageProgress {
    stage: Stage,
    /// `None`: not known.
    amount: Option<Amount>,
}

/// The progress of the opening of a workspace. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct OpeningProgress(Arc<Mutex<StageProgress>>);

impl Default for OpeningProgress {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(StageProgress { stage: Stage::Files, amount: None })))
    }
}

impl OpeningProgress {
    /// Enters a stage.
    pub(super) fn enter(&self, stage: Stage) {
        self.change(|progress| *progress = StageProgress { stage, amount: None });
    }

    /// Says how many layers must come.
    pub(super) fn expect_layers(&self, count: usize) {
        let total = u64::try_from(count).ok().filter(|total| *total > 0);
        self.change(|progress| progress.amount = total.map(|_| Amount { done: 0, total, unit: "layers" }));
    }

    /// Notes that another layer is there.
    pub(super) fn note_layer(&self) {
        self.change(|progress| {
            if let Some(layers) = &mut progress.amount {
                layers.done += 1;
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut StageProgress)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Does `work`, which opens or reads files, and notifies the subscribers of the session of its progress if it takes long. The last notice
    /// says that it is over.
    pub(super) async fn notify_while<T>(
        &self,
        deps: &Deps,
        identity: &Identity,
        work: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        let begun_at = Instant::now();
        // An earlier attempt may have ended in another stage.
        self.enter(Stage::Files);
        let mut work = pin!(work);
        tokio::select! {
            biased;
            opened = &mut work => {
                let elapsed = begun_at.elapsed();
                if elapsed >= NOTICE_DELAY && !opened.as_ref().is_err_and(is_stale) {
                    let ready = StageProgress { stage: Stage::Ready, amount: None };
                    send_notice(deps, identity, ready, elapsed);
                }
                opened
            }
            // Another loop opens the workspace, so this one may not say that it is open.
            () = self.send_notices(deps, identity, begun_at) => work.await,
        }
    }

    /// Sends notices until another loop has taken over the session. Cancel-safe.
    async fn send_notices(&self, deps: &Deps, identity: &Identity, begun_at: Instant) {
        tokio::time::sleep(NOTICE_DELAY).await;
        while let Some(progress) = self.find(deps, identity).await {
            send_notice(deps, identity, progress, begun_at.elapsed());
            tokio::time::sleep(NOTICE_INTERVAL).await;
        }
    }

    /// The progress at this moment; `None`: another loop has taken over the session.
    async fn find(&self, deps: &Deps, identity: &Identity) -> Option<StageProgress> {
        let known = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut client, request) =
            (deps.sandbox.client(), v1::GetOpeningRequest { fence: identity.fence() });
        match tokio::time::timeout(NOTICE_INTERVAL, client.get_opening(request)).await {
            Ok(answer) => with_answer(known, answer.map(tonic::Response::into_inner)),
            Err(_) => Some(known),
        }
    }
}

/// What is known with the answer of the machine, which knows more; `None`: another loop has taken over the session.
fn with_answer(
    known: StageProgress,
    answer: Result<v1::GetOpeningResponse, Status>,
) -> Option<StageProgress> {
    match answer {
        Ok(response) => Some(of_machine(response).unwrap_or(known)),
        Err(status) if is_stale(&status) => None,
        // It may be of an earlier version. People read the stage alone.
        Err(_) => Some(known),
    }
}

/// What the machine brings; `None`: nothing.
fn of_machine(response: v1::GetOpeningResponse) -> Option<StageProgress> {
    let stage = match response.step() {
        v1::OpeningStep::Clone => Stage::Clone,
        v1::OpeningStep::Lfs => Stage::Lfs,
        v1::OpeningStep::Submodules => Stage::Submodules,
        v1::OpeningStep::Unspecified => return None,
    };
    let total = Some(response.total_bytes).filter(|bytes| *bytes > 0);
    Some(StageProgress { stage, amount: Some(Amount { done: response.done_bytes, total, unit: "bytes" }) })
}

fn send_notice(deps: &Deps, identity: &Identity, progress: StageProgress, elapsed: Duration) {
    let mut properties = json!({
        "sessionID": identity.session,
        "stage": progress.stage.as_str(),
        "elapsedMs": u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
    });
    if let Some(Amount { done, total, unit }) = progress.amount {
        properties["done"] = json!(done);
        properties["unit"] = json!(unit);
        if let Some(total) = total {
            properties["total"] = json!(total);
        }
    }
    // JSON is always a raw value.
    let Ok(properties) = to_raw_value(&properties) else { return };
    let notice = Notice {
        id: deps.id(EventId::make).to_string(),
        kind: WORKSPACE_PROGRESS.to_owned(),
        properties,
        directory: String::new(),
        reader: String::new(),
    };
    deps.publisher.notify(identity.tenant, &Subject::Session(identity.session.clone()), &notice);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_knows_more_and_a_stale_loop_knows_nothing() {
        let known = StageProgress { stage: Stage::Install, amount: None };
        let response = |step: v1::OpeningStep, total_bytes| v1::GetOpeningResponse {
            step: step.into(),
            done_bytes: 3,
            total_bytes,
        };
        let bytes = |stage, total| {
            Some(StageProgress { stage, amount: Some(Amount { done: 3, total, unit: "bytes" }) })
        };
        let refusal = |code| rpc::status::error(code, "refused");
        for (answer, want) in [
            (Ok(response(v1::OpeningStep::Clone, 0)), bytes(Stage::Clone, None)),
            (Ok(response(v1::OpeningStep::Lfs, 9)), bytes(Stage::Lfs, Some(9))),
            (Ok(response(v1::OpeningStep::Submodules, 0)), bytes(Stage::Submodules, None)),
            (Ok(response(v1::OpeningStep::Unspecified, 0)), Some(known)),
            (Err(Status::unimplemented("an earlier version")), Some(known)),
            (Err(refusal(v1::ErrorCode::TenantClosed)), Some(known)),
            (Err(refusal(v1::ErrorCode::EpochStale)), None),
        ] {
            assert_eq!(with_answer(known, answer.clone()), want, "{answer:?}");
        }
    }
}
