//! Live-only notices. They are not stored; only clients that are subscribed at that moment receive them.

use crate::state::State;
use bus::feed::{Notice, Subject};
use domain::ids::{EventId, SessionId, TenantId};
use serde_json::{Value, json, value::to_raw_value};
use store::tenant::{projects::Project, worktrees::Worktree};

/// Clients must read everything of the tenant again.
pub(crate) const ALL_DISPOSED: &str = "global.disposed";
/// Clients must read everything of a directory again.
pub(crate) const DISPOSED: &str = "server.instance.disposed";
/// Sessions can begin in a worktree.
pub(crate) const WORKTREE_READY: &str = "worktree.ready";

/// A program starts in a terminal.
pub(crate) const TERMINAL_CREATED: &str = "pty.created";

/// How long terminal clients show a warning. They draw the text of another toast wrong while one is shown.
const TOAST_MS: u32 = 6_000;

/// The reader of a notice for everyone.
pub(crate) const EVERY_READER: &str = "";

/// A notice for all subscribers, under the name that OpenCode's clients know.
pub(crate) fn notice(state: &State, kind: &str, properties: &Value) -> Option<Notice> {
    Some(Notice {
        id: state.id(EventId::make).to_string(),
        kind: kind.to_owned(),
        properties: to_raw_value(properties).ok()?,
        directory: String::new(),
        reader: String::new(),
    })
}

/// Notifies the subscribers of a session's directory.
pub(crate) fn notify_session(
    state: &State,
    tenant: TenantId,
    session: &SessionId,
    kind: &str,
    properties: &Value,
) {
    if let Some(notice) = notice(state, kind, properties) {
        state.publisher.notify(tenant, &Subject::Session(session.clone()), &notice);
    }
}

/// Says that a project was created or that its display settings changed.
pub(crate) fn notify_project_updated(state: &State, tenant: TenantId, project: &Project) {
    let notice = notice(state, "project.updated", &project_json(project));
    notify_project(state, tenant, project, notice);
}

/// Says that the settings of a project changed, so clients in its directories read its agents, commands and models again.
pub(crate) fn notify_disposed(state: &State, tenant: TenantId, project: &Project) {
    let notice = notice(state, DISPOSED, &json!({"directory": project.name}));
    notify_project(state, tenant, project, notice);
    for directory in &project.worktrees {
        notify_directory_disposed(state, tenant, directory);
    }
}

/// Says that sessions can begin in a worktree: it is new, or it begins anew.
///
/// ```json
/// {"name":"fix-login","branch":"opencode/fix-login"}
/// ```
pub(crate) fn notify_worktree_ready(state: &State, tenant: TenantId, worktree: &Worktree) {
    let properties = json!({"name": worktree.name, "branch": worktree.branch});
    let notice = notice(state, WORKTREE_READY, &properties);
    notify_subject(state, tenant, &Subject::Project(worktree.project.clone()), &worktree.directory, notice);
}

/// Says that the sessions of a worktree have left it, so its clients read everything again.
pub(crate) fn notify_worktree_disposed(state: &State, tenant: TenantId, worktree: &Worktree) {
    notify_directory_disposed(state, tenant, &worktree.directory);
}

fn notify_directory_disposed(state: &State, tenant: TenantId, directory: &str) {
    let notice = notice(state, DISPOSED, &json!({"directory": directory}));
    notify_subject(state, tenant, &Subject::Tenant, directory, notice);
}

/// Like [`notify_disposed`], for all projects.
pub(crate) fn notify_all_disposed(state: &State, tenant: TenantId) {
    if let Some(notice) = notice(state, ALL_DISPOSED, &json!({})) {
        state.publisher.notify(tenant, &Subject::Tenant, &notice);
    }
}

/// A command for the terminal clients in a directory.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ClientCommand {
    /// The value of `type`.
    pub(crate) kind: &'static str,
    pub(crate) properties: Value,
}

impl ClientCommand {
    /// A warning that is shown for a few seconds.
    pub(crate) fn warning(title: &str, message: &str) -> Self {
        let properties =
            json!({"title": title, "message": message, "variant": "warning", "duration": TOAST_MS});
        Self { kind: "tui.toast.show", properties }
    }
}

/// Sends a command to the clients in a directory that use a key named `reader`. A client executes commands in the name of
/// its key, so a command reaches only clients with its sender's key.
pub(crate) fn notify_clients(
    state: &State,
    tenant: TenantId,
    project: &Project,
    reader: &str,
    command: &ClientCommand,
) {
    let notice = notice(state, command.kind, &command.properties);
    let notice = notice.map(|notice| Notice { reader: reader.to_owned(), ..notice });
    notify_project(state, tenant, project, notice);
}

/// As [`notify_clients`], in a worktree or in a directory that has no project yet.
pub(crate) fn notify_directory(
    state: &State,
    tenant: TenantId,
    directory: &str,
    reader: &str,
    command: &ClientCommand,
) {
    let notice = notice(state, command.kind, &command.properties);
    let notice = notice.map(|notice| Notice { reader: reader.to_owned(), ..notice });
    notify_subject(state, tenant, &Subject::Tenant, directory, notice);
}

fn notify_project(state: &State, tenant: TenantId, project: &Project, notice: Option<Notice>) {
    notify_subject(state, tenant, &Subject::Project(project.id.clone()), &project.name, notice);
}

/// Sends a notice that names a directory.
fn notify_subject(
    state: &State,
    tenant: TenantId,
    subject: &Subject,
    directory: &str,
    notice: Option<Notice>,
) {
    if let Some(notice) = notice {
        let notice = Notice { directory: directory.to_owned(), ..notice };
        state.publisher.notify(tenant, subject, &notice);
    }
}

/// A project in the form that OpenCode's clients know.
///
/// ```json
/// {"id":"prj_…","name":"/home/me/app","worktree":"/home/me/app","vcs":"git","time":{"created":1795292980519,
///  "updated":1795292980519},"sandboxes":["/home/me/app.worktrees/fix-login"]}
/// ```
pub(crate) fn project_json(project: &Project) -> Value {
    let name = project.display.name.as_ref().filter(|name| !name.is_empty());
    let mut json = json!({
        "id": project.id, "name": name.unwrap_or(&project.name), "worktree": project.name, "vcs": "git",
        "time": {"created": project.created_at, "updated": project.updated_at},
        "sandboxes": project.worktrees,
    });
    if let Some(icon) = &project.display.icon {
        json["icon"] = json!(icon);
    }
    if let Some(commands) = &project.display.commands {
        json["commands"] = json!(commands);
    }
    json
}
