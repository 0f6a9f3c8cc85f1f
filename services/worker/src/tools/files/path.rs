//! Paths as tools and rules of permission write them.

use domain::session::WORKSPACE;

/// Gives a path from the root in its shortest form. A relative path is taken from the workspace.
pub(crate) fn absolute(path: &str) -> String {
    if path.starts_with('/') { normal(path) } else { normal(&format!("{WORKSPACE}/{path}")) }
}

/// Gives a path without `.`, `..` and doubled slashes, as far as its text tells. Links are resolved by the sandbox.
pub(crate) fn normal(path: &str) -> String {
    let mut kept: Vec<&str> = vec![];
    for piece in path.split('/') {
        match piece {
            "" | "." => {}
            ".." if kept.last().is_some_and(|last| *last != "..") => drop(kept.pop()),
            ".." if path.starts_with('/') => {}
            piece => kept.push(piece),
        }
    }
    let joined = kept.join("/");
    if path.starts_with('/') { format!("/{joined}") } else { joined }
}
