//! The host of a session's terminals. The sandbox runs them; the gateway checks their owner and notifies clients of changes.

use super::terminal::{Terminal, TerminalChange, TerminalItem, TerminalRequest};
use crate::{
    app::{files::workspace, gateway::Gateway},
    auth::principal::Principal,
    backends::sandbox::fence,
    errors::{entity::Entity, error::Error, refusal::Refusal},
    scope::Scope,
    state::State,
    streams::notices::{TERMINAL_CREATED, notify_session},
};
use domain::{
    ids::{ProjectId, SessionId, TenantId, pty::PtyId},
    session::WORKSPACE,
};
use rpc::v1::{self, AttachTerminalResponse, ErrorCode};
use serde_json::{Value, json};
use tonic::{Status, Streaming};

/// A session whose terminals a client may use.
#[derive(Clone)]
pub(crate) struct TerminalHost {
    state: State,
    tenant: TenantId,
    session: store::rows::session_row::Session,
}

/// The output of a terminal from now on.
pub(crate) struct TerminalOutput(Streaming<AttachTerminalResponse>);

impl TerminalOutput {
    /// Waits for the next item; `None` at the end. Cancel-safe.
    ///
    /// # Errors
    /// The error that ends the stream early: `sandbox_unavailable`, or a refusal of the sandbox.
    pub(crate) async fn next(&mut self) -> Result<Option<TerminalItem>, Error> {
        Ok(self.0.message().await?.and_then(|response| response.item).map(Into::into))
    }
}

impl TerminalHost {
    /// The host of a session's terminals.
    ///
    /// # Errors
    /// `session_not_found`, `store_unavailable`.
    pub(crate) async fn of_session(
        gateway: &Gateway,
        principal: &Principal,
        session: &SessionId,
    ) -> Result<Self, Error> {
        Self::open(&gateway.state, principal.tenant(Scope::Write)?, session).await
    }

    /// The host of a terminal, and the terminal's id.
    ///
    /// # Errors
    /// `pty_not_found`, `store_unavailable`.
    pub(crate) async fn of_terminal(
        gateway: &Gateway,
        principal: &Principal,
        terminal: &str,
    ) -> Result<(Self, PtyId), Error> {
        Self::find(&gateway.state, principal.tenant(Scope::Write)?, terminal).await
    }

    pub(super) async fn find(
        state: &State,
        tenant: TenantId,
        terminal: &str,
    ) -> Result<(Self, PtyId), Error> {
        let id: PtyId = terminal.parse().map_err(|_| Error::NotFound(Entity::Terminal))?;
        let host = Self::open(state, tenant, id.session()).await.map_err(|error| match error {
            Error::NotFound(_) => Error::NotFound(Entity::Terminal),
            other => other,
        })?;
        Ok((host, id))
    }

    async fn open(state: &State, tenant: TenantId, session: &SessionId) -> Result<Self, Error> {
        let session = state.store.get_session(tenant, session).await?;
        Ok(Self { state: state.clone(), tenant, session })
    }

    /// The project of the session.
    pub(crate) fn project(&self) -> &ProjectId {
        &self.session.info.project_id
    }

    /// The directory of the session.
    pub(crate) fn directory(&self) -> &str {
        &self.session.directory
    }

    fn fence(&self) -> Option<v1::Fence> {
        Some(fence(self.tenant, &self.session))
    }

    /// Starts a program in a new terminal. Opens the workspace if no loop has done so yet.
    ///
    /// # Errors
    /// `terminals_too_many`, `argument_invalid`, `path_outside_workspace`, `file_not_found`; `workspace_missing` if a loop had
    /// the files and they were lost; refusals to open a workspace; `sandbox_unavailable`, `store_unavailable`.
    pub(crate) async fn create(&self, request: TerminalRequest) -> Result<Terminal, Error> {
        let session = &self.session.info.id;
        let id = self.state.id(|ids, now| PtyId::make(session, ids, now));
        let TerminalRequest { command, args, directory, env, title, size } = request;
        let (fence, terminal_id, size) = (self.fence(), id.to_string(), size.map(Into::into));
        let request =
            v1::CreateTerminalRequest { fence, terminal_id, command, args, directory, env, title, size };
        let create = || {
            let (mut terminals, request) = (self.state.sandbox.terminals(), request.clone());
            async move { terminals.create_terminal(request).await }
        };
        let response =
            workspace::with_files(&self.state, self.tenant, &self.session.workspace_id, create).await;
        let terminal =
            Terminal::from(response.map_err(of_refusal)?.into_inner().terminal.unwrap_or_default());
        // Feeds follow the program: those that hear the notice now, and later ones by what is noted here.
        if let Err(error) = self.state.bus.note_terminal(self.tenant, &id).await {
            tracing::debug!(error = &error as &dyn std::error::Error, "a terminal is not noted");
        }
        self.notify(TERMINAL_CREATED, &json!({"info": self.to_json(&terminal)}));
        Ok(terminal)
    }

    /// Lists the terminals of the session.
    ///
    /// # Errors
    /// `sandbox_unavailable`.
    pub(crate) async fn list(&self) -> Result<Vec<Terminal>, Error> {
        let request = v1::ListTerminalsRequest { fence: self.fence() };
        let response = self.state.sandbox.terminals().list_terminals(request).await.map_err(of_status)?;
        Ok(response.into_inner().terminals.into_iter().map(Into::into).collect())
    }

    /// Returns one terminal.
    ///
    /// # Errors
    /// `pty_not_found`, `sandbox_unavailable`.
    pub(crate) async fn get(&self, id: &PtyId) -> Result<Terminal, Error> {
        let request = v1::GetTerminalRequest { fence: self.fence(), terminal_id: id.to_string() };
        let response = self.state.sandbox.terminals().get_terminal(request).await.map_err(of_status)?;
        Ok(response.into_inner().terminal.unwrap_or_default().into())
    }

    /// Changes the title or the size.
    ///
    /// # Errors
    /// `pty_not_found`, `argument_invalid`, `sandbox_unavailable`.
    pub(crate) async fn update(&self, id: &PtyId, change: TerminalChange) -> Result<Terminal, Error> {
        let (fence, terminal_id) = (self.fence(), id.to_string());
        let (title, size) = (change.title, change.size.map(Into::into));
        let request = v1::UpdateTerminalRequest { fence, terminal_id, title, size };
        let response = self.state.sandbox.terminals().update_terminal(request).await.map_err(of_status)?;
        let terminal = Terminal::from(response.into_inner().terminal.unwrap_or_default());
        self.notify("pty.updated", &json!({"info": self.to_json(&terminal)}));
        Ok(terminal)
    }

    /// Ends the program and removes the terminal.
    ///
    /// # Errors
    /// `pty_not_found`, `sandbox_unavailable`.
    pub(crate) async fn delete(&self, id: &PtyId) -> Result<(), Error> {
        let request = v1::DeleteTerminalRequest { fence: self.fence(), terminal_id: id.to_string() };
        self.state.sandbox.terminals().delete_terminal(request).await.map_err(of_status)?;
        if let Err(error) = self.state.bus.forget_terminal(self.tenant, id).await {
            tracing::debug!(error = &error as &dyn std::error::Error, "cannot forget a terminal");
        }
        self.notify("pty.deleted", &json!({"id": id.as_str()}));
        Ok(())
    }

    /// Writes to the program's input.
    ///
    /// # Errors
    /// `pty_not_found`, also if the program has ended; `terminal_input_full`, `argument_invalid`, `sandbox_unavailable`.
    pub(crate) async fn write(&self, id: &PtyId, data: Vec<u8>) -> Result<(), Error> {
        let request = v1::WriteTerminalRequest { fence: self.fence(), terminal_id: id.to_string(), data };
        self.state.sandbox.terminals().write_terminal(request).await.map(drop).map_err(of_status)
    }

    /// Attaches to a terminal from a byte offset on; `None`: from now on.
    ///
    /// # Errors
    /// `pty_not_found`, `terminals_too_many`, `sandbox_unavailable`.
    pub(crate) async fn attach(
        &self,
        id: &PtyId,
        from_offset_bytes: Option<u64>,
    ) -> Result<TerminalOutput, Error> {
        let (fence, terminal_id) = (self.fence(), id.to_string());
        let request = v1::AttachTerminalRequest { fence, terminal_id, from_offset_bytes, exit_only: false };
        let response = self.state.sandbox.terminals().attach_terminal(request).await.map_err(of_status)?;
        Ok(TerminalOutput(response.into_inner()))
    }

    fn notify(&self, kind: &str, properties: &Value) {
        notify_session(&self.state, self.tenant, &self.session.info.id, kind, properties);
    }

    /// A terminal in the form that OpenCode's clients know.
    ///
    /// ```json
    /// {"id":"pty_…","title":"Terminal 7Ab9","command":"/bin/bash","args":["-l"],"cwd":"/home/me/project","status":"running",
    ///  "pid":12}
    /// ```
    pub(crate) fn to_json(&self, terminal: &Terminal) -> Value {
        let mut json = json!({
            "id": terminal.id, "title": terminal.title, "command": terminal.command, "args": terminal.args,
            "cwd": self.outside(&terminal.directory), "pid": terminal.pid,
            "status": if terminal.exit_code.is_some() { "exited" } else { "running" },
        });
        if let (Some(code), Some(members)) = (terminal.exit_code, json.as_object_mut()) {
            members.insert("exitCode".to_owned(), code.into());
        }
        json
    }

    /// Converts a path of the sandbox for a client whose directory is a path on its own machine.
    fn outside(&self, inside: &str) -> String {
        match inside.strip_prefix(WORKSPACE) {
            Some(rest) if self.directory().starts_with('/') => format!("{}{rest}", self.directory()),
            Some(_) | None => inside.to_owned(),
        }
    }

    /// Converts a client's path to a path in the sandbox. The sandbox refuses paths outside the directory.
    pub(crate) fn inside(&self, outside: &str) -> String {
        match outside.strip_prefix(self.directory()) {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{WORKSPACE}{rest}"),
            Some(_) | None => outside.to_owned(),
        }
    }
}

fn of_status(status: Status) -> Error {
    of_refusal(Error::from(status))
}

/// Converts the sandbox's error for an unknown terminal to "not found".
fn of_refusal(error: Error) -> Error {
    match error {
        Error::Sandbox(Refusal { code: Some(ErrorCode::TerminalUnknown), .. }) => {
            Error::NotFound(Entity::Terminal)
        }
        other => other,
    }
}
