//! The settings above the repository of a session.

use settings::{Settings, document::Document, merge::merge, problem::Problems, standing};
use std::sync::Arc;
use store::tenant::settings::StoredSettings;

/// The settings above a repository: those of the platform, the tenant and the project.
#[derive(Debug, Clone)]
pub(crate) struct SettingsAbove {
    pub(super) documents: Arc<[Document]>,
    /// The merged settings, used while no repository is read.
    pub(crate) settings: Arc<Settings>,
}

impl SettingsAbove {
    /// Merges the platform's settings with the stored ones of the tenant and the project.
    pub(crate) fn of(platform: &[Document], stored: &[StoredSettings]) -> Result<Self, Problems> {
        let stored = stored.iter().map(|stored| standing::stored(stored.level, &stored.document));
        let documents: Vec<_> = platform.iter().cloned().map(Ok).chain(stored).collect::<Result<_, _>>()?;
        let settings = Arc::new(merge(&documents)?.settings);
        Ok(Self { documents: documents.into(), settings })
    }

    /// The settings with an environment that an admin has allowed.
    pub(super) fn with(&self, environment: Option<Document>) -> Result<Arc<Settings>, Problems> {
        let Some(environment) = environment else { return Ok(Arc::clone(&self.settings)) };
        let documents: Vec<_> = self.documents.iter().cloned().chain([environment]).collect();
        Ok(Arc::new(merge(&documents)?.settings))
    }
}
