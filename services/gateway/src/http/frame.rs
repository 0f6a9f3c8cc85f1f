//! The frames of event streams. Those of `/global/event` say where something happened, in OpenCode's way.

use crate::feed::told::{Directory, Place, Told, What};
use domain::ids::ProjectId;
use serde_json::{Map, Value, json};

/// What clients look for in a frame that concerns all of them, whichever directory they are in.
const GLOBAL: &str = "global";

/// Where a frame says that something happened.
#[derive(Debug, Clone, Copy)]
pub(super) enum Where<'a> {
    /// In the stream itself.
    Stream,
    /// Everywhere; the project that it is about, if it is about one.
    Global(Option<&'a ProjectId>),
    Directory(&'a Directory),
}

impl<'a> Where<'a> {
    pub(super) fn of(told: &'a Told) -> Self {
        match (&told.place, &told.what) {
            (Place::Tenant, _) => Self::Global(None),
            (Place::Project(directory), What::Notice(notice)) if notice.kind == "project.updated" => {
                Self::Global(Some(&directory.project))
            }
            (Place::Session(_, directory) | Place::Project(directory), _) => Self::Directory(directory),
        }
    }

    /// The data of a frame of `/global/event`.
    ///
    /// ```json
    /// {"directory":"/home/me/app","project":"prj_…","payload":{…}}
    /// ```
    pub(super) fn wrap(self, payload: &str) -> String {
        let place = match self {
            Self::Stream => json!({}),
            Self::Global(None) => json!({"directory": GLOBAL}),
            Self::Global(Some(project)) => json!({"directory": GLOBAL, "project": project}),
            Self::Directory(Directory { project, name }) => json!({"directory": name, "project": project}),
        };
        let members = place.as_object().into_iter().flat_map(Map::iter);
        let members: String =
            members.map(|(name, value): (&String, &Value)| format!("\"{name}\":{value},")).collect();
        format!("{{{members}\"payload\":{payload}}}")
    }
}
