//! The real clients, as installed by `./dev test`.

use e2e::opencode::{OpenCode, find_package};
use std::path::PathBuf;

/// Returns the directory of a package. If it is not installed, records that the test is skipped.
pub(super) fn find(package: &str) -> Option<PathBuf> {
    noted(package, find_package(package))
}

/// Returns OpenCode's program. If it is not installed, records that the test is skipped.
pub(super) fn find_opencode() -> Option<OpenCode> {
    noted("opencode-ai", OpenCode::find())
}

fn noted<T>(package: &str, found: Option<T>) -> Option<T> {
    if found.is_none() {
        e2e::left_out::skip(&format!("{package} is not installed; `./dev test` installs it with npm"));
    }
    found
}
