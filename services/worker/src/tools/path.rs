//! Paths in the form that tools and permission rules use.

use domain::session::WORKSPACE;

/// Returns an absolute path in its shortest form. A relative path starts at the workspace.
pub(crate) fn absolute(path: &str) -> String {
    if path.starts_with('/') { normal(path) } else { normal(&format!("{WORKSPACE}/{path}")) }
}

/// Returns a path as people and permission rules name it: relative to the workspace if it is inside.
pub(crate) fn relative(path: &str) -> String {
    let plain = normal(path);
    match plain.strip_prefix(WORKSPACE) {
        Some("") => ".".to_owned(),
        Some(rest) if rest.starts_with('/') => rest.trim_start_matches('/').to_owned(),
        Some(_) | None => plain,
    }
}

/// Returns a path without `.`, `..` and double slashes, based on its text only. The sandbox resolves links.
pub(crate) fn normal(path: &str) -> String {
    let mut pieces: Vec<&str> = vec![];
    for piece in path.split('/') {
        match piece {
            "" | "." => {}
            ".." if pieces.last().is_some_and(|last| *last != "..") => drop(pieces.pop()),
            ".." if path.starts_with('/') => {}
            piece => pieces.push(piece),
        }
    }
    let joined = pieces.join("/");
    if path.starts_with('/') { format!("/{joined}") } else { joined }
}
