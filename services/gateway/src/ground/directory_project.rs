//! The id of a project that a directory will have. Clients of OpenCode read the id of their project once, when they start, and ignore
//! events of other projects: the id must not change when the first session of a directory creates its project.

use domain::ids::{ProjectId, TenantId};
use sha2::{Digest as _, Sha256};

/// Hexadecimal digits of the hash in an id: as many characters as other ids have.
const DIGITS: usize = 26;

/// The id of the project that a first session in this directory creates.
pub(crate) fn id_of(tenant: TenantId, directory: &str) -> Option<ProjectId> {
    let mut hash = Sha256::new();
    hash.update(tenant.0.as_bytes());
    hash.update(directory.as_bytes());
    let digits: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    // Never `None`: hexadecimal digits are the characters of an id.
    format!("prj_{}", &digits[..DIGITS]).parse().ok()
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
        assert!(id.is_some() && id == id_of(one, "/home/me/app"));
        assert!(id != id_of(other, "/home/me/app") && id != id_of(one, "/home/me/other"));
    }
}
