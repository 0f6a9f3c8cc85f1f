//! The keys of the deployment that a broker has.

use super::deployment_key::DeploymentKey;

/// The keys. All open what they have sealed.
#[derive(Debug)]
pub struct Keyring {
    newest: DeploymentKey,
    further: Vec<DeploymentKey>,
}

impl Keyring {
    /// The keys of a broker that asks for `newest` to seal from its start on.
    pub fn new(newest: DeploymentKey, further: Vec<DeploymentKey>) -> Self {
        Self { newest, further }
    }

    pub(super) fn newest(&self) -> &DeploymentKey {
        &self.newest
    }

    /// The identities of the other keys.
    pub(super) fn further_ids(&self) -> Vec<String> {
        self.further.iter().map(|key| key.id().to_owned()).collect()
    }

    pub(super) fn further(&self) -> &[DeploymentKey] {
        &self.further
    }

    pub(super) fn find(&self, id: &str) -> Option<&DeploymentKey> {
        std::iter::once(&self.newest).chain(&self.further).find(|key| key.id() == id)
    }
}
