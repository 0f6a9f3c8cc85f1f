//! The id of a project that a directory will have. Clients of OpenCode read the id of their project once, when they start, and ignore
//! events of other projects: the id must not change when the first session of a directory creates its project.

use domain::ids::{ProjectId, TenantId};
use sha2::{Digest as _, Sha256};

/// The id of the project that a first session in this directory creates.
pub(crate) fn id_of(tenant: TenantId, directory: &str) -> ProjectId {
    let mut hash = Sha256::new();
    hash.update(tenant.0.as_bytes());
    hash.update(directory.as_bytes());
    ProjectId::of_sha256(hash.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_a_tenant_has_one_id() {
        let tenant = |text: &str| text.parse::<TenantId>().expect("a tenant");
        let (one, other) =
            (tenant("01a209a3b0dc741a8a25c2fb1f510a37"), tenant("01a209a3b06470a691ce5f2bb259f5d1"));
        let id = id_of(one, "/home/me/app");
        assert_eq!(id, id_of(one, "/home/me/app"));
        assert_eq!(id.as_str().parse(), Ok(id.clone()), "clients can name it");
        assert!(id != id_of(other, "/home/me/app") && id != id_of(one, "/home/me/other"));
    }
}
