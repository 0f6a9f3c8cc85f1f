//! The door of a session to the servers of git, as helpers use it: what they see of it, and what git tells them when the broker refuses.

use crate::{
    error::Error,
    isolation::launch::{INIT_INSIDE, Mount},
    session::state::Session,
};
use rpc::v1::ErrorCode;

/// What git writes before each line of a refusal.
const REMOTE: &str = "remote: ";

/// What a helper must see to reach the door.
///
/// # Errors
/// `git_unavailable`: this machine has no doors; those of the file system.
pub(super) fn mounts(session: &Session) -> Result<[Mount; 2], Error> {
    let shared = &session.shared;
    let door = shared.doors.mount(&session.key).map_err(Error::io("make the directory of a door"))?;
    let door = door.ok_or_else(|| {
        let text = "the settings name a credential for this repository, and this machine has no broker that could use it; see \
                    FLOTILLA_SANDBOX_EGRESS";
        Error::refused(ErrorCode::GitUnavailable, text)
    })?;
    Ok([door, init(session)])
}

/// The program that helpers use for the door, and for files of Git LFS without one.
pub(super) fn init(session: &Session) -> Mount {
    Mount::read(session.shared.launcher.facts().init.as_path(), INIT_INSIDE)
}

/// The refusal of the broker in what git printed: one line with the code at its end.
pub(super) fn find_refusal(stderr: &str) -> Option<Error> {
    let lines = stderr.lines().filter_map(|line| line.strip_prefix(REMOTE));
    let refusals = lines.filter_map(|line| line.trim_end().strip_suffix(')')?.rsplit_once(" ("));
    let (text, code) = refusals.filter_map(|(text, code)| Some((text, code_of(code)?))).next()?;
    Some(Error::refused(code, text))
}

/// The code of this service for one of the broker.
fn code_of(name: &str) -> Option<ErrorCode> {
    match ErrorCode::parse(name) {
        Some(ErrorCode::GitSecretMissing) => Some(ErrorCode::SecretNotFound),
        Some(ErrorCode::GitSecretInvalid | ErrorCode::GitSecretNotForServer | ErrorCode::GitUnauthorized) => {
            Some(ErrorCode::RepositoryUnauthorized)
        }
        Some(ErrorCode::GitNotFound) => Some(ErrorCode::RepositoryNotFound),
        Some(ErrorCode::GitUnavailable) => Some(ErrorCode::GitUnavailable),
        Some(ErrorCode::GitLfsObjectInvalid) => Some(ErrorCode::LfsObjectInvalid),
        // A newer broker may have further ones.
        _ if name.starts_with("git_") || name.starts_with("egress_") => {
            Some(ErrorCode::RepositoryUnreachable)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn the_refusal_of_the_broker_is_found_by_its_code() {
        let stderr = "remote: Counting (objects)\nremote: h.org refuses the secret TOKEN (really) (git_unauthorized)\n\
                      fatal: unable to access 'http://127.0.0.1:3129/h.org/a/': The requested URL returned error: 403\n";
        let error = find_refusal(stderr).unwrap();
        assert_eq!(
            (error.code(), error.to_string().as_str()),
            (ErrorCode::RepositoryUnauthorized, "h.org refuses the secret TOKEN (really)")
        );
        for (code, want) in [
            ("git_secret_missing", ErrorCode::SecretNotFound),
            ("git_secret_not_for_server", ErrorCode::RepositoryUnauthorized),
            ("git_not_found", ErrorCode::RepositoryNotFound),
            ("git_unavailable", ErrorCode::GitUnavailable),
            ("git_lfs_object_invalid", ErrorCode::LfsObjectInvalid),
            ("git_busy", ErrorCode::RepositoryUnreachable),
            ("egress_quota_used_up", ErrorCode::RepositoryUnreachable),
        ] {
            assert_eq!(find_refusal(&format!("remote: x ({code})")).unwrap().code(), want, "{code}");
        }
        for other in ["", "remote: x", "remote: x (y)", "fatal: x (git_busy)"] {
            assert!(find_refusal(other).is_none(), "{other}");
        }
    }
}
