//! What the opening of a workspace does, for subscribers of the session: it may take minutes. The notices are hints: they may be lost, and no row is written.

use crate::process::{deps::Deps, sandbox::Identity};
use bus::feed::{Notice, Subject};
use domain::{event::WORKSPACE_PROGRESS, ids::EventId};
use rpc::v1;
use serde_json::{json, value::to_raw_value};
use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// Time before the first notice: most openings are over then.
const NOTICE_DELAY: Duration = Duration::from_secs(2);
/// Time between two notices, and longest wait for the sandbox machine to say how far it is.
const NOTICE_INTERVAL: Duration = Duration::from_secs(1);

/// What an opening does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpeningStage {
    /// The machine clones the repository.
    Clone,
    /// The machine brings the objects of Git LFS.
    Lfs,
    /// Layers of the image come to the machine.
    Image,
    /// The script of the setup runs.
    Setup,
    /// The script of the install runs.
    Install,
    /// The checkout becomes the workspace.
    Files,
    /// It is over.
    Ready,
}

impl OpeningStage {
    fn as_str(self) -> &'static str {
        match self {
            Self::Clone => "clone",
            Self::Lfs => "lfs",
            Self::Image => "image",
            Self::Setup => "setup",
            Self::Install => "install",
            Self::Files => "files",
            Self::Ready => "ready",
        }
    }

    /// Whether the sandbox machine may clone in this stage, and then knows more about it.
    fn may_clone(self) -> bool {
        match self {
            Self::Clone | Self::Lfs | Self::Install | Self::Files => true,
            Self::Image | Self::Setup | Self::Ready => false,
        }
    }
}

/// How much of a stage is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Amount {
    done: u64,
    /// `None`: not known.
    total: Option<u64>,
    unit: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Progress {
    stage: OpeningStage,
    /// `None`: not known.
    amount: Option<Amount>,
}

/// The opening of a workspace. Clones share the progress.
#[derive(Debug, Clone)]
pub(super) struct Opening(Arc<Mutex<Progress>>);

impl Default for Opening {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Progress { stage: OpeningStage::Files, amount: None })))
    }
}

impl Opening {
    /// Enters a stage.
    pub(super) fn enter(&self, stage: OpeningStage) {
        self.change(|progress| *progress = Progress { stage, amount: None });
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

    fn change(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Does `work`, which opens a workspace, and tells the subscribers of the session what it does if it takes long.
    pub(super) async fn follow<T>(
        &self,
        deps: &Deps,
        identity: &Identity,
        work: impl Future<Output = T>,
    ) -> T {
        let begun_at = Instant::now();
        let opened = tokio::select! {
            biased;
            opened = work => opened,
            never = self.tell(deps, identity, begun_at) => match never {},
        };
        let elapsed = begun_at.elapsed();
        if elapsed >= NOTICE_DELAY {
            let progress = Progress { stage: OpeningStage::Ready, amount: None };
            notify(deps, identity, progress, elapsed);
        }
        opened
    }

    /// Tells subscribers until it is dropped. Cancel-safe.
    async fn tell(&self, deps: &Deps, identity: &Identity, begun_at: Instant) -> Infallible {
        tokio::time::sleep(NOTICE_DELAY).await;
        loop {
            let progress = self.look(deps, identity).await;
            notify(deps, identity, progress, begun_at.elapsed());
            tokio::time::sleep(NOTICE_INTERVAL).await;
        }
    }

    /// What the opening does at this moment.
    async fn look(&self, deps: &Deps, identity: &Identity) -> Progress {
        let progress = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !progress.stage.may_clone() {
            return progress;
        }
        let (mut client, request) =
            (deps.sandbox.client(), v1::GetOpeningRequest { fence: identity.fence() });
        match tokio::time::timeout(NOTICE_INTERVAL, client.get_opening(request)).await {
            Ok(Ok(response)) => of_machine(response.into_inner()).unwrap_or(progress),
            // It may be of an earlier version. People read the stage alone.
            Ok(Err(_)) | Err(_) => progress,
        }
    }
}

/// What the machine brings; `None`: nothing.
fn of_machine(response: v1::GetOpeningResponse) -> Option<Progress> {
    let stage = match response.step() {
        v1::OpeningStep::Clone => OpeningStage::Clone,
        v1::OpeningStep::Lfs => OpeningStage::Lfs,
        v1::OpeningStep::Unspecified => return None,
    };
    let total = Some(response.total_bytes).filter(|bytes| *bytes > 0);
    Some(Progress { stage, amount: Some(Amount { done: response.done_bytes, total, unit: "bytes" }) })
}

fn notify(deps: &Deps, identity: &Identity, progress: Progress, elapsed: Duration) {
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
