//! The home directory of clients that open projects by browsing folders, such as OpenCode's web app. Its folders lead to the projects and worktrees of
//! the tenant: one named by an absolute path is there, any other one is at `/NAME`.

use super::{manage, place};
use crate::{
    app::{gateway::Gateway, page::PageRequest},
    auth::principal::Principal,
    errors::error::Error,
};
use std::collections::BTreeSet;

/// Pages of projects that are read for one list. Further projects are left out: people open them by their name.
const PAGES_MAX: usize = 10;

/// The paths of the projects and worktrees below a folder, relative to it, sorted. Empty if `folder` is no absolute path.
///
/// # Errors
/// `scope_missing`, `store_unavailable`.
pub(crate) async fn paths_below(
    gateway: &Gateway,
    principal: &Principal,
    folder: &str,
) -> Result<BTreeSet<String>, Error> {
    let mut paths = BTreeSet::new();
    let mut page = PageRequest::FIRST;
    for _ in 0..PAGES_MAX {
        let list = manage::list(gateway, principal, page).await?;
        let names =
            list.entries.into_iter().flat_map(|project| [vec![project.name], project.worktrees].concat());
        paths.extend(names.filter_map(|name| below(&place::listed(&name), folder)));
        let Some(next) = list.next else { break };
        page = PageRequest { cursor: Some(next), ..PageRequest::FIRST };
    }
    Ok(paths)
}

/// The rest of a path below a folder; `None`: it is not below it.
fn below(path: &str, folder: &str) -> Option<String> {
    let rest = path.strip_prefix(folder.trim_end_matches('/'))?.strip_prefix('/')?;
    (!rest.is_empty() && folder.starts_with('/')).then(|| rest.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_below_the_folders_above_it() {
        for (path, folder, want) in [
            ("/app", "/", Some("app")),
            ("/home/me/app", "/", Some("home/me/app")),
            ("/home/me/app", "/home/", Some("me/app")),
            ("/home/me/app", "/home/me", Some("app")),
            ("/home/me/app", "/home/m", None),
            ("/home/me/app", "/home/me/app", None),
            ("/app", "", None),
        ] {
            assert_eq!(below(path, folder).as_deref(), want, "{path} below {folder}");
        }
    }
}
