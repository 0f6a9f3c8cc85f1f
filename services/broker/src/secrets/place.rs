//! Where a value belongs. A sealed value opens only in its own place: a row that is copied to another tenant, name or version is nothing.

use domain::secret::SecretAddress;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretPlace<'a> {
    /// The id of the tenant.
    pub tenant: &'a str,
    /// The id of the project; empty: a secret of the whole tenant.
    pub project: &'a str,
    /// Its name in settings.
    pub name: &'a str,
    /// Counted up by each change.
    pub version: u64,
}

impl<'a> SecretPlace<'a> {
    /// The place of a version of a secret. `tenant` is the text of the tenant's id.
    pub fn of(tenant: &'a str, address: &'a SecretAddress, version: u64) -> Self {
        Self { tenant, project: address.scope(), name: address.name.as_str(), version }
    }

    /// Bytes that are different for every place: each text stands behind its length.
    pub(super) fn context(&self) -> Vec<u8> {
        let mut context = self.version.to_be_bytes().to_vec();
        for text in [self.tenant, self.project, self.name] {
            context.extend((text.len() as u64).to_be_bytes());
            context.extend(text.as_bytes());
        }
        context
    }
}
