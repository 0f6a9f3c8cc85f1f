//! Settings with their origins, as text for people.

use crate::v1;
use settings::{
    node::{KeyPath, Origin},
    repository::RepositorySettings,
};

impl From<RepositorySettings> for v1::ExplainSettingsResponse {
    fn from(configured: RepositorySettings) -> Self {
        let rows = configured.merged.explain().into_iter();
        let ignored = configured.merged.ignored.iter();
        Self {
            settings: rows
                .map(|row| v1::Setting {
                    origin: Some(origin(&row.path, &row.origin)),
                    value: row.value.to_string(),
                })
                .collect(),
            ignored: ignored.map(|ignored| origin(&ignored.path, &ignored.origin)).collect(),
            problems: configured.problems.unwrap_or_default(),
            is_refused: false,
        }
    }
}

fn origin(path: &KeyPath, origin: &Origin) -> v1::SettingOrigin {
    v1::SettingOrigin {
        path: path.to_string(),
        level: origin.level.as_str().to_owned(),
        file: origin.file.to_string(),
        line: origin.line,
        column: origin.column,
    }
}
