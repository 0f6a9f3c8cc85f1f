//! A server, a repository there, and the credential of one push.

use crate::egress::git::servers::GitServers;
use domain::{egress::git::GitAddress, ids::TenantId, secret::SecretName};
use reqwest::header::HeaderValue;

/// The far end of one push.
#[derive(Debug)]
pub(in crate::push) struct Server<'a> {
    pub(in crate::push) servers: &'a GitServers,
    pub(in crate::push) tenant: TenantId,
    pub(in crate::push) repository: &'a GitAddress,
    pub(in crate::push) secret: &'a SecretName,
    /// It does not print.
    pub(in crate::push) authorization: HeaderValue,
}

impl Server<'_> {
    /// Its name, for people.
    pub(in crate::push) fn host(&self) -> String {
        self.repository.authority()
    }
}
