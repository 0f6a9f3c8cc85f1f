//! The frames of event streams. Those of `/global/event` name the directory of an event.

use crate::streams::{
    notices::DISPOSED,
    update::{Content, Directory, Update, UpdateScope},
};
use bytes::Bytes;
use domain::ids::ProjectId;
use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};

/// Names the directory of an event that concerns clients in all directories.
const GLOBAL: &str = "global";

/// A comment, which clients skip: the stream is alive.
pub(super) const HEARTBEAT: Bytes = Bytes::from_static(b": heartbeat\n\n");

/// A frame of Server-Sent Events.
pub(super) fn sse_frame(id: &str, data: &str) -> Bytes {
    let mut frame = String::with_capacity("id: \ndata: \n\n".len() + id.len() + data.len());
    frame.extend(["id: ", id, "\n"]);
    // JSON may have line breaks between its members. A client joins the lines again.
    for line in data.split(['\n', '\r']) {
        frame.extend(["data: ", line, "\n"]);
    }
    frame.push('\n');
    frame.into()
}

/// The directory that a frame names.
#[derive(Debug, Clone, Copy)]
pub(super) enum FrameScope<'a> {
    /// None: the event is about the stream itself.
    Stream,
    /// All of them; with the project of the event, if it has one.
    Global(Option<&'a ProjectId>),
    Directory(&'a Directory),
    /// A directory without a project.
    Named(&'a str),
}

/// The members of an event.
#[derive(Deserialize)]
struct Payload<'a> {
    id: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(borrow)]
    properties: &'a RawValue,
}

impl<'a> FrameScope<'a> {
    pub(super) fn of(update: &'a Update) -> Self {
        match (&update.scope, &update.content) {
            (UpdateScope::Tenant, _) => Self::Global(None),
            (UpdateScope::Project(directory), Content::Notice(notice))
                if notice.kind == "project.updated" =>
            {
                Self::Global(Some(&directory.project))
            }
            (
                UpdateScope::Session(_, directory)
                | UpdateScope::Project(directory)
                | UpdateScope::ProjectDirectory(directory)
                | UpdateScope::Directory(directory),
                _,
            ) => Self::Directory(directory),
        }
    }

    /// The data of a frame of `/global/event`.
    ///
    /// ```json
    /// {"directory":"/home/me/app","project":"prj_…","payload":{…}}
    /// ```
    pub(super) fn wrap(self, payload: &str) -> String {
        let scope = match self {
            Self::Stream => json!({}),
            Self::Global(None) => json!({"directory": GLOBAL}),
            Self::Named(name) => json!({"directory": name}),
            Self::Global(Some(project)) => json!({"directory": GLOBAL, "project": project}),
            Self::Directory(Directory { project, name }) => json!({"directory": name, "project": project}),
        };
        let members = scope.as_object().into_iter().flat_map(Map::iter);
        let members: String =
            members.map(|(name, value): (&String, &Value)| format!("\"{name}\":{value},")).collect();
        format!("{{{members}\"payload\":{payload}}}")
    }

    /// The data of a frame of `/api/event`; `None`: the newer API has no such event.
    ///
    /// ```json
    /// {"id":"evt_…","type":"session.idle","data":{…},"location":{"directory":"/home/me/app"}}
    /// ```
    pub(super) fn native(self, payload: &str) -> serde_json::Result<Option<String>> {
        let Payload { id, kind, properties } = serde_json::from_str(payload)?;
        if kind == DISPOSED {
            return Ok(None);
        }
        let named = match self {
            Self::Stream | Self::Global(_) => None,
            Self::Directory(Directory { name, .. }) => Some(name.as_str()),
            Self::Named(name) => Some(name),
        };
        let location = named.map(|name| format!(",\"location\":{}", json!({"directory": name})));
        let location = location.unwrap_or_default();
        Ok(Some(format!("{{\"id\":{},\"type\":{},\"data\":{properties}{location}}}", json!(id), json!(kind))))
    }
}
