//! What stands in no log: told once, to whoever follows a project or a tenant just then.

use crate::{auth::Principal, state::State};
use bus::feed::{Notice, Subject};
use domain::ids::{EventId, TenantId};
use serde_json::{Value, json, value::to_raw_value};
use store::tenant::projects::Project;

/// Everything of a tenant is to be read anew.
pub(crate) const ALL_DISPOSED: &str = "global.disposed";
/// Everything of a directory is to be read anew.
pub(crate) const DISPOSED: &str = "server.instance.disposed";

impl State {
    /// Something to be told to all who follow, under the name that OpenCode's clients know it by.
    pub(crate) fn notice(&self, kind: &str, properties: &Value) -> Option<Notice> {
        Some(Notice {
            id: self.id(EventId::make).to_string(),
            kind: kind.to_owned(),
            properties: to_raw_value(properties).ok()?,
            project_name: String::new(),
            reader: String::new(),
        })
    }

    /// Tells that a project was made, or is to be shown in another way.
    pub(crate) fn tell_project(&self, tenant: TenantId, project: &Project) {
        self.tell_about(tenant, project, self.notice("project.updated", &project_json(project)));
    }

    /// Tells that the settings of a project changed, so that clients read anew what agents, commands and models there are.
    pub(crate) fn tell_disposed(&self, tenant: TenantId, project: &Project) {
        self.tell_about(tenant, project, self.notice(DISPOSED, &json!({"directory": project.name})));
    }

    /// As [`State::tell_disposed`], for all projects.
    pub(crate) fn tell_all_disposed(&self, tenant: TenantId) {
        if let Some(notice) = self.notice(ALL_DISPOSED, &json!({})) {
            self.publisher.notify(tenant, &Subject::Tenant, &notice);
        }
    }

    /// Tells clients in a directory what to do, those that came with the caller's own key: what somebody has typed is sent under
    /// their name.
    pub(crate) fn order(&self, caller: &Principal, project: &Project, (kind, properties): (&str, &Value)) {
        let notice = self.notice(kind, properties);
        let notice = notice.map(|notice| Notice { reader: caller.name.clone(), ..notice });
        self.tell_about(caller.tenant, project, notice);
    }

    fn tell_about(&self, tenant: TenantId, project: &Project, notice: Option<Notice>) {
        if let Some(notice) = notice {
            let notice = Notice { project_name: project.name.clone(), ..notice };
            self.publisher.notify(tenant, &Subject::Project(project.id.clone()), &notice);
        }
    }
}

/// A project as clients of OpenCode see it.
///
/// ```json
/// {"id":"prj_…","name":"/home/me/app","worktree":"/home/me/app","vcs":"git","time":{"created":1795292980519,
///  "updated":1795292980519},"sandboxes":[]}
/// ```
pub(crate) fn project_json(project: &Project) -> Value {
    let none: [&str; 0] = [];
    let chosen = project.display.name.as_ref().filter(|name| !name.is_empty());
    let mut json = json!({
        "id": project.id, "name": chosen.unwrap_or(&project.name), "worktree": project.name, "vcs": "git",
        "time": {"created": project.created_at, "updated": project.updated_at}, "sandboxes": none,
    });
    if let Some(icon) = &project.display.icon {
        json["icon"] = json!(icon);
    }
    if let Some(commands) = &project.display.commands {
        json["commands"] = json!(commands);
    }
    json
}
