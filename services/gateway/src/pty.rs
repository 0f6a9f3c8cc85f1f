//! Terminals of sessions: what both ways in do with them. The sandbox has them and knows their ids; here it is checked whose
//! they are, and told to clients what becomes of them.

use crate::{
    grpc::{from_sandbox, from_store},
    state::State,
    workspace,
};
use bus::feed::Subject;
use domain::{
    ids::{ProjectId, SessionId, TenantId, pty::PtyId},
    session::WORKSPACE,
};
use rpc::{
    status::not_found,
    v1::{self, attach_terminal_response::Item},
};
use serde_json::{Value, json};
use tonic::{Status, Streaming};

/// A session of a tenant, for its terminals.
#[derive(Clone)]
pub(crate) struct Place {
    state: State,
    tenant: TenantId,
    session: store::session::row::Session,
    /// The name of its project, which is a directory to clients of OpenCode.
    directory: String,
}

impl Place {
    /// A session for its terminals.
    ///
    /// # Errors
    /// `session_not_found`, `store_unavailable`.
    pub(crate) async fn of(state: &State, tenant: TenantId, session: &SessionId) -> Result<Self, Status> {
        let session = state.store.get_session(tenant, session).await.map_err(from_store)?;
        let project = state.store.get_project(tenant, &session.info.project_id).await.map_err(from_store)?;
        Ok(Self { state: state.clone(), tenant, session, directory: project.name })
    }

    /// The session of a terminal.
    ///
    /// # Errors
    /// `pty_not_found`, `store_unavailable`.
    pub(crate) async fn of_pty(state: &State, tenant: TenantId, pty: &str) -> Result<(Self, PtyId), Status> {
        let id: PtyId = pty.parse().map_err(|_| missing())?;
        let place = Self::of(state, tenant, id.session())
            .await
            .map_err(|status| if status.code() == tonic::Code::NotFound { missing() } else { status })?;
        Ok((place, id))
    }

    /// The project of the session.
    pub(crate) fn project(&self) -> &ProjectId {
        &self.session.info.project_id
    }

    /// Epoch 0: a person's terminal is no part of the loop.
    fn fence(&self) -> Option<v1::Fence> {
        Some(v1::Fence {
            tenant_id: self.tenant.to_string(),
            session_id: self.session.info.id.to_string(),
            epoch: 0,
            workspace_session_id: self.session.root_id.to_string(),
        })
    }

    /// Starts a program at a new terminal; the files are made first if they never were.
    ///
    /// # Errors
    /// `terminals_too_many`, `argument_invalid`, `path_outside_workspace`, `file_not_found`, `workspace_missing` when a loop had
    /// the files and lost them; what the making of a workspace refuses; `sandbox_unavailable`, `store_unavailable`.
    pub(crate) async fn create(&self, new: v1::CreatePtyRequest) -> Result<v1::Terminal, Status> {
        let session = &self.session.info.id;
        let id = self.state.id(|ids, now| PtyId::make(session, ids, now));
        let v1::CreatePtyRequest { session_id: _, command, args, directory, env, title, size } = new;
        let (fence, terminal_id) = (self.fence(), id.to_string());
        let request =
            v1::CreateTerminalRequest { fence, terminal_id, command, args, directory, env, title, size };
        let create = || {
            let (mut terminals, request) = (self.state.terminals.clone(), request.clone());
            async move { terminals.create_terminal(request).await }
        };
        let made = workspace::with_files(&self.state, (self.tenant, &self.session.root_id), create).await;
        let terminal = made.map_err(refused)?.into_inner().terminal.unwrap_or_default();
        self.tell("pty.created", &json!({"info": self.shown(&terminal)}));
        let place = self.clone();
        tokio::spawn(async move { place.tell_exit(&id).await });
        Ok(terminal)
    }

    /// The terminals of the session.
    ///
    /// # Errors
    /// `sandbox_unavailable`.
    pub(crate) async fn list(&self) -> Result<Vec<v1::Terminal>, Status> {
        let request = v1::ListTerminalsRequest { fence: self.fence() };
        let listed = self.state.terminals.clone().list_terminals(request).await.map_err(refused)?;
        Ok(listed.into_inner().terminals)
    }

    /// One terminal.
    ///
    /// # Errors
    /// `pty_not_found`, `sandbox_unavailable`.
    pub(crate) async fn get(&self, id: &PtyId) -> Result<v1::Terminal, Status> {
        let request = v1::GetTerminalRequest { fence: self.fence(), terminal_id: id.to_string() };
        let found = self.state.terminals.clone().get_terminal(request).await.map_err(refused)?;
        Ok(found.into_inner().terminal.unwrap_or_default())
    }

    /// Changes the title or the size.
    ///
    /// # Errors
    /// `pty_not_found`, `argument_invalid`, `sandbox_unavailable`.
    pub(crate) async fn update(
        &self,
        id: &PtyId,
        title: String,
        size: Option<v1::TerminalSize>,
    ) -> Result<v1::Terminal, Status> {
        let (fence, terminal_id) = (self.fence(), id.to_string());
        let request = v1::UpdateTerminalRequest { fence, terminal_id, title, size };
        let changed = self.state.terminals.clone().update_terminal(request).await.map_err(refused)?;
        let terminal = changed.into_inner().terminal.unwrap_or_default();
        self.tell("pty.updated", &json!({"info": self.shown(&terminal)}));
        Ok(terminal)
    }

    /// Ends the program and forgets the terminal.
    ///
    /// # Errors
    /// `pty_not_found`, `sandbox_unavailable`.
    pub(crate) async fn delete(&self, id: &PtyId) -> Result<(), Status> {
        let request = v1::DeleteTerminalRequest { fence: self.fence(), terminal_id: id.to_string() };
        self.state.terminals.clone().delete_terminal(request).await.map_err(refused)?;
        self.tell("pty.deleted", &json!({"id": id.as_str()}));
        Ok(())
    }

    /// Types.
    ///
    /// # Errors
    /// `pty_not_found`, also when the program has ended; `terminal_input_full`, `argument_invalid`, `sandbox_unavailable`.
    pub(crate) async fn write(&self, id: &PtyId, data: Vec<u8>) -> Result<(), Status> {
        let request = v1::WriteTerminalRequest { fence: self.fence(), terminal_id: id.to_string(), data };
        self.state.terminals.clone().write_terminal(request).await.map(drop).map_err(refused)
    }

    /// Follows a terminal, from now on or from a byte on.
    ///
    /// # Errors
    /// `pty_not_found`, `terminals_too_many`, `sandbox_unavailable`.
    pub(crate) async fn attach(
        &self,
        id: &PtyId,
        from_offset_bytes: Option<u64>,
    ) -> Result<Streaming<v1::AttachTerminalResponse>, Status> {
        self.follow(id, from_offset_bytes, false).await
    }

    async fn follow(
        &self,
        id: &PtyId,
        from_offset_bytes: Option<u64>,
        exit_only: bool,
    ) -> Result<Streaming<v1::AttachTerminalResponse>, Status> {
        let (fence, terminal_id) = (self.fence(), id.to_string());
        let request = v1::AttachTerminalRequest { fence, terminal_id, from_offset_bytes, exit_only };
        Ok(self.state.terminals.clone().attach_terminal(request).await.map_err(refused)?.into_inner())
    }

    /// Tells clients when the program ends. Best effort: a gateway that stops meanwhile tells nobody.
    async fn tell_exit(&self, id: &PtyId) {
        let Ok(mut items) = self.follow(id, None, true).await else { return };
        loop {
            let item = tokio::select! {
                () = self.state.shutdown.cancelled() => return,
                item = items.message() => item,
            };
            match item {
                Ok(Some(v1::AttachTerminalResponse { item: Some(Item::Exit(exit)) })) => {
                    return self.tell("pty.exited", &json!({"id": id.as_str(), "exitCode": exit.code}));
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Tells whoever follows the directory something that stands in no log.
    fn tell(&self, kind: &str, properties: &Value) {
        if let Some(notice) = self.state.notice(kind, properties) {
            let of = Subject::Session(self.session.info.id.clone());
            self.state.publisher.notify(self.tenant, &of, &notice);
        }
    }

    /// A terminal as clients of OpenCode see it.
    ///
    /// ```json
    /// {"id":"pty_…","title":"Terminal 7Ab9","command":"/bin/bash","args":["-l"],"cwd":"/home/me/project","status":"running",
    ///  "pid":12}
    /// ```
    pub(crate) fn shown(&self, terminal: &v1::Terminal) -> Value {
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

    /// Where a path of the sandbox is to a client whose directory is a path of its own machine.
    fn outside(&self, inside: &str) -> String {
        match inside.strip_prefix(WORKSPACE) {
            Some(rest) if self.directory.starts_with('/') => format!("{}{rest}", self.directory),
            _ => inside.to_owned(),
        }
    }

    /// The other way round; what is not below the directory is left to the sandbox to refuse.
    pub(crate) fn inside(&self, outside: &str) -> String {
        match outside.strip_prefix(self.directory.as_str()) {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                format!("{}{rest}", WORKSPACE)
            }
            _ => outside.to_owned(),
        }
    }
}

/// Whether a call was refused with this code.
pub(crate) fn is(status: &Status, code: &str) -> bool {
    rpc::status::code_of(status).is_some_and(|given| given == code)
}

fn missing() -> Status {
    not_found("pty_not_found", "there is no such terminal, or its program has ended")
}

/// What the sandbox's refusals mean to a caller.
fn refused(status: Status) -> Status {
    if is(&status, "terminal_unknown") { missing() } else { from_sandbox(status) }
}
