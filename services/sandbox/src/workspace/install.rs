//! Installs: a script of the settings (`environment.install`) adds files to those of a repository, such as packages. `listing` reads a tree before the script
//! runs, `key` names everything that its result depends on, `copy` copies trees, and
//! `take` copies the files that it added into a new workspace. The run itself is in `install_run`, because it opens a clone first.

pub(super) mod copy;
pub mod key;
pub(super) mod listing;
pub(super) mod take;
