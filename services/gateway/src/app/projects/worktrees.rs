//! Worktrees: further directories of a project. Sessions that begin in one are listed there, and their files begin on its branch: on that of the
//! repository if it has one of this name, else on a new one at the source of the project. Every session still has files of its own.

use super::manage;
use crate::{
    app::gateway::Gateway,
    auth::principal::Principal,
    errors::{error::Error, invalid::Invalid},
    scope::Scope,
    state::State,
    streams::notices::{notify_project_updated, notify_worktree_disposed, notify_worktree_ready},
};
use domain::{
    ids::{ProjectId, TenantId, WorktreeId},
    session::Origin,
};
use store::tenant::{
    projects::Project,
    worktrees::{Worktree, WorktreeCreation},
};

/// Worktrees of one project: every answer about the project lists them all. Beyond it: `worktrees_too_many`.
const WORKTREES_MAX: u32 = 50;
/// Bytes of the name that a client gives to a worktree. Beyond it: `name_too_long`.
const WORKTREE_NAME_BYTES_MAX: usize = 64;
/// What the names of branches begin with, as in OpenCode.
const BRANCH_PREFIX: &str = "opencode/";
/// A reset or a removal that meets another reset tries again.
const CHANGE_TRIES: u32 = 2;
/// Letters and digits of an id that distinguish worktrees of the same name.
const TAIL_CHARS: usize = 8;

/// A client's request for a worktree. An empty text leaves the choice to the gateway.
#[derive(Debug, Clone, Default)]
pub(crate) struct WorktreeRequest {
    pub(crate) name: String,
    pub(crate) start_command: String,
}

/// Finds the project of a client's directory.
///
/// # Errors
/// `scope_missing`, `directory_invalid`, `directory_unknown`, `store_unavailable`.
pub(crate) async fn get_project(
    gateway: &Gateway,
    principal: &Principal,
    directory: &str,
) -> Result<Project, Error> {
    let missing = || {
        let message = format!(
            "there is no project for the directory {directory}; `flotilla project create --repo PATH` makes one"
        );
        Invalid::DirectoryUnknown.because(message)
    };
    manage::find_by_directory(gateway, principal, directory).await?.ok_or_else(missing)
}

/// Lists the worktrees of a project, the oldest first.
///
/// # Errors
/// `scope_missing`, `store_unavailable`.
pub(crate) async fn list(
    gateway: &Gateway,
    principal: &Principal,
    project: &Project,
) -> Result<Vec<Worktree>, Error> {
    let tenant = principal.tenant(Scope::Read)?;
    Ok(gateway.state.store.list_worktrees(tenant, &project.id, WORKTREES_MAX).await?)
}

/// Returns the worktree of a project with a directory, to begin a session in it or to change it.
///
/// # Errors
/// `scope_missing`, `directory_invalid`, `worktree_unknown`, `store_unavailable`.
pub(crate) async fn get(
    gateway: &Gateway,
    principal: &Principal,
    project: &ProjectId,
    directory: &str,
) -> Result<Worktree, Error> {
    manage::check_directory(directory)?;
    let found = gateway.state.store.find_worktree(principal.tenant(Scope::Write)?, directory).await?;
    found.filter(|found| found.project == *project).ok_or_else(|| unknown(directory))
}

/// Creates a worktree of a project. If the name is taken, it gets another one that begins with it.
///
/// # Errors
/// `scope_missing`, `start_command_unsupported`, `name_too_long`, `directory_invalid`, `worktree_source_missing`, `worktrees_too_many`,
/// `name_invalid`, `store_unavailable`.
pub(crate) async fn create(
    gateway: &Gateway,
    principal: &Principal,
    project: &Project,
    request: &WorktreeRequest,
) -> Result<Worktree, Error> {
    let (state, tenant) = (&gateway.state, principal.tenant(Scope::Write)?);
    if !request.start_command.trim().is_empty() {
        let message = "a worktree has no files before a session begins in it, so no command can start there; `environment.install` or \
             `environment.start` in the settings prepares the files of each session";
        return Err(Invalid::StartCommand.because(message));
    }
    let wanted = slug(&request.name);
    if wanted.len() > WORKTREE_NAME_BYTES_MAX {
        let message = format!("the name of a worktree may have {WORKTREE_NAME_BYTES_MAX} bytes");
        return Err(Invalid::NameTooLong.because(message));
    }
    if project.source.origin == Origin::Empty {
        let message = format!(
            "the project {0} has no repository, so it has no branches; `flotilla project update {0} --repo PATH` gives it one",
            project.name
        );
        return Err(Invalid::WorktreeSource.because(message));
    }
    let id = state.id(WorktreeId::make);
    let first_word = if wanted.is_empty() { "worktree" } else { wanted.as_str() };
    let other = format!("{first_word}-{}", tail(&id));
    for name in [wanted, other].into_iter().filter(|name| !name.is_empty()) {
        let worktree = Worktree {
            id: id.clone(),
            project: project.id.clone(),
            directory: format!("{}.worktrees/{name}", project.name),
            branch: format!("{BRANCH_PREFIX}{name}"),
            name,
        };
        manage::check_directory(&worktree.directory)?;
        match state.store.create_worktree(tenant, &worktree, WORKTREES_MAX).await? {
            WorktreeCreation::Created => {
                notify_updated(state, tenant, &worktree).await;
                notify_worktree_ready(state, tenant, &worktree);
                return Ok(worktree);
            }
            WorktreeCreation::DirectoryTaken => {}
            WorktreeCreation::TooMany => {
                let message = format!(
                    "the project {} has {WORKTREES_MAX} worktrees, the limit; remove those that are not needed",
                    project.name
                );
                return Err(Invalid::WorktreesTooMany.because(message));
            }
        }
    }
    Err(Invalid::Name.because("the name of the worktree is taken; choose another one"))
}

/// Removes a worktree of a project. Its sessions stay, with their files: they are listed in the directory of the project.
///
/// # Errors
/// `scope_missing`, `directory_invalid`, `worktree_unknown`, `store_unavailable`.
pub(crate) async fn remove(
    gateway: &Gateway,
    principal: &Principal,
    project: &Project,
    directory: &str,
) -> Result<(), Error> {
    let (state, tenant) = (&gateway.state, principal.tenant(Scope::Write)?);
    for _ in 0..CHANGE_TRIES {
        let worktree = get(gateway, principal, &project.id, directory).await?;
        if state.store.delete_worktree(tenant, &worktree).await? {
            notify_updated(state, tenant, &worktree).await;
            notify_worktree_disposed(state, tenant, &worktree);
            return Ok(());
        }
    }
    Err(unknown(directory))
}

/// Lets a worktree of a project begin anew, and returns it as it is then: the files of its next session begin at the source of the project, on a branch that the
/// repository does not have. Its sessions stay as in [`remove`].
///
/// # Errors
/// `scope_missing`, `directory_invalid`, `worktree_unknown`, `store_unavailable`.
pub(crate) async fn reset(
    gateway: &Gateway,
    principal: &Principal,
    project: &Project,
    directory: &str,
) -> Result<Worktree, Error> {
    let (state, tenant) = (&gateway.state, principal.tenant(Scope::Write)?);
    for _ in 0..CHANGE_TRIES {
        let before = get(gateway, principal, &project.id, directory).await?;
        let id = state.id(WorktreeId::make);
        // Nothing takes a branch back that was pushed, so the old name would bring its commits again.
        let branch = format!("{BRANCH_PREFIX}{}-{}", before.name, tail(&id));
        let after = Worktree { id, branch, ..before.clone() };
        if state.store.reset_worktree(tenant, &before.id, &after).await? {
            notify_updated(state, tenant, &after).await;
            notify_worktree_disposed(state, tenant, &after);
            notify_worktree_ready(state, tenant, &after);
            return Ok(after);
        }
    }
    Err(unknown(directory))
}

/// Tells clients that the worktrees of a project have changed. The change is stored, so a failure here is none of the call.
async fn notify_updated(state: &State, tenant: TenantId, worktree: &Worktree) {
    match state.store.get_project(tenant, &worktree.project).await {
        Ok(project) => notify_project_updated(state, tenant, &project),
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "cannot tell clients of a change of worktrees");
        }
    }
}

fn unknown(worktree: &str) -> Error {
    Invalid::WorktreeUnknown.because(format!("the project has no worktree {}", worktree.escape_debug()))
}

/// The words of a name in small letters, with hyphens between them: a part of a path and of the name of a branch.
fn slug(name: &str) -> String {
    let words = name.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
}

/// The random end of an id.
fn tail(id: &WorktreeId) -> String {
    let text = id.as_str();
    text[text.len().saturating_sub(TAIL_CHARS)..].to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use domain::egress::push::branch::BranchName;

    #[test]
    fn a_name_becomes_a_part_of_a_path_and_of_a_branch() {
        for (name, want) in [
            ("Fix the Login!", "fix-the-login"),
            ("../../etc/passwd", "etc-passwd"),
            ("-x.lock", "x-lock"),
            ("späte Arbeit", "sp-te-arbeit"),
            ("\0 /", ""),
        ] {
            assert_eq!(slug(name), want);
            assert!(want.is_empty() || format!("{BRANCH_PREFIX}{want}").parse::<BranchName>().is_ok());
        }
        let id: WorktreeId = "wtr_1ffcce3d00015Oy45kUL559D5O".parse().unwrap();
        assert_eq!(tail(&id), "ul559d5o");
    }
}
