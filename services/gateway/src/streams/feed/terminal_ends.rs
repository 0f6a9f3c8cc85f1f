//! The ends of the programs in terminals. A feed follows the terminals of its tenant itself, so its subscribers hear of an end although the gateway
//! that started the terminal has died.

use crate::{
    backends::sandbox::fence,
    errors::refusal::Refusal,
    state::State,
    streams::notices::{TERMINAL_CREATED, notice},
};
use bus::feed::Notice;
use domain::ids::{SessionId, TenantId, pty::PtyId};
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use rpc::v1::{self, ErrorCode, attach_terminal_response::Item};
use serde::Deserialize;
use serde_json::json;
use std::{collections::HashSet, time::Duration};
use tokio::time::sleep;

/// Says that it has ended.
const TERMINAL_EXITED: &str = "pty.exited";
/// Terminals that a feed follows, each with a call to the sandbox: more than a tenant may have on two machines. Nothing tells the end of further ones.
const TERMINALS_MAX: usize = 128;
/// Times that a feed asks for the end of a terminal while the sandbox or Postgres does not answer.
const TRIES_MAX: u32 = 60;
/// Pause between two tries.
const TRY_PAUSE: Duration = Duration::from_secs(1);

/// The terminals that a feed follows.
pub(super) struct TerminalEnds {
    state: State,
    tenant: TenantId,
    followed: HashSet<PtyId>,
    following: FuturesUnordered<BoxFuture<'static, (PtyId, Option<u32>)>>,
    has_recalled: bool,
}

/// The members of [`TERMINAL_CREATED`] that tell which terminal it is.
#[derive(Deserialize)]
struct Created {
    info: CreatedInfo,
}

#[derive(Deserialize)]
struct CreatedInfo {
    id: String,
}

impl TerminalEnds {
    pub(super) fn new(state: State, tenant: TenantId) -> Self {
        Self {
            state,
            tenant,
            followed: HashSet::new(),
            following: FuturesUnordered::new(),
            has_recalled: false,
        }
    }

    /// Follows the terminals that earlier feeds or other gateways started, once Redis tells them.
    pub(super) async fn recall(&mut self) {
        if self.has_recalled {
            return;
        }
        match self.state.bus.list_terminals(self.tenant).await {
            Ok(terminals) => {
                self.has_recalled = true;
                terminals.into_iter().for_each(|terminal| self.follow(terminal));
            }
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "cannot read the terminals");
            }
        }
    }

    /// Follows the terminal of a notice, if it is about a new one.
    pub(super) fn observe(&mut self, notice: &Notice) {
        if notice.kind != TERMINAL_CREATED {
            return;
        }
        let created = serde_json::from_str::<Created>(notice.properties.get()).ok();
        if let Some(terminal) = created.and_then(|created| created.info.id.parse().ok()) {
            self.follow(terminal);
        }
    }

    fn follow(&mut self, terminal: PtyId) {
        if self.followed.len() >= TERMINALS_MAX || !self.followed.insert(terminal.clone()) {
            return;
        }
        let (state, tenant) = (self.state.clone(), self.tenant);
        let following = async move {
            let code = exit_code(&state, tenant, &terminal).await;
            if let Err(error) = state.bus.forget_terminal(tenant, &terminal).await {
                tracing::debug!(error = &error as &dyn std::error::Error, "cannot forget a terminal");
            }
            (terminal, code)
        };
        self.following.push(following.boxed());
    }

    /// Waits for the end of a program, and returns its session with a notice of it. Cancel-safe.
    pub(super) async fn next(&mut self) -> (SessionId, Notice) {
        loop {
            let Some((terminal, code)) = self.following.next().await else {
                return std::future::pending().await;
            };
            self.followed.remove(&terminal);
            let Some(code) = code else { continue };
            let properties = json!({"id": terminal.as_str(), "exitCode": code});
            if let Some(notice) = notice(&self.state, TERMINAL_EXITED, &properties) {
                return (terminal.session().clone(), notice);
            }
        }
    }
}

/// Waits for the end of a program; `None`: its terminal is gone, or nothing answers.
async fn exit_code(state: &State, tenant: TenantId, terminal: &PtyId) -> Option<u32> {
    for _ in 0..TRIES_MAX {
        match try_exit_code(state, tenant, terminal).await {
            Ok(code) => return code,
            Err(text) => tracing::debug!("cannot follow a terminal yet: {text}"),
        }
        sleep(TRY_PAUSE).await;
    }
    None
}

async fn try_exit_code(state: &State, tenant: TenantId, terminal: &PtyId) -> Result<Option<u32>, String> {
    let session = match state.store.get_session(tenant, terminal.session()).await {
        Ok(session) => session,
        Err(store::error::Error::NotFound(_)) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let request = v1::AttachTerminalRequest {
        fence: Some(fence(tenant, &session)),
        terminal_id: terminal.to_string(),
        from_offset_bytes: None,
        exit_only: true,
    };
    let is_gone = |refusal: &Refusal| {
        matches!(refusal.code, Some(ErrorCode::TerminalUnknown | ErrorCode::WorkspaceMissing))
    };
    let attached = state.sandbox.terminals().attach_terminal(request).await.map_err(Refusal::from);
    let mut output = match attached {
        Ok(response) => response.into_inner(),
        Err(refusal) if is_gone(&refusal) => return Ok(None),
        Err(refusal) => return Err(refusal.message),
    };
    loop {
        match output.message().await {
            Ok(Some(response)) => match response.item {
                Some(Item::Exit(exit)) => return Ok(Some(exit.code)),
                Some(Item::Replay(_) | Item::Output(_)) | None => {}
            },
            Ok(None) => return Err("the sandbox ended the stream".to_owned()),
            Err(status) => return Err(status.message().to_owned()),
        }
    }
}
