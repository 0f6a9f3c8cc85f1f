//! The seed of a workspace's snapshots: the objects and the index of its repository, copied after the clone and before
//! the first program of the tenant runs. So the first snapshot need not read every file, the files that the repository
//! tracks are tracked, and later changes of .git do not affect a snapshot.

use crate::{
    error::Error,
    isolation::launch::{Launcher, give_to},
    session::state::Session,
    tree::track::DIRECTORY,
};
use std::{fs, io, path::Path};

/// Makes the directory of the snapshots, unless it exists.
pub(in crate::workspace) fn make_directory(session: &Session, uid: u32) -> Result<(), Error> {
    let directory = session.shared.layout.workspace(&session.key).join(DIRECTORY);
    if directory.is_dir() {
        return Ok(());
    }
    fs::create_dir(&directory)
        .and_then(|()| give_to(session.shared.launcher.facts(), uid, &directory))
        .map_err(Error::io("make the directory of snapshots"))
}

/// Prepares the snapshots of a new workspace, whose files are in `build`. Without the seed the first snapshot takes
/// longer, so a failure is only logged.
pub(in crate::workspace) async fn prepare(session: &Session, uid: u32, build: &Path) {
    if let Err(error) = make_directory(session, uid) {
        tracing::warn!("a workspace has no place for snapshots yet: {error}");
        return;
    }
    let place = session.shared.layout.workspace(&session.key).join(DIRECTORY);
    let (launcher, git) = (session.shared.launcher.clone(), build.join(".git"));
    let filled = tokio::task::spawn_blocking(move || {
        let filled = fill(&launcher, uid, &git, &place);
        if filled.is_err() {
            // Without the index the objects are never read.
            drop(fs::remove_dir_all(place.join("base")));
        }
        filled
    });
    if let Err(error) = filled.await.unwrap_or_else(|error| Err(io::Error::other(error))) {
        tracing::warn!("the first snapshot of a workspace will read every file: {error}");
    }
}

/// The objects are linked, not copied: git never changes an object, and a tenant's program that does so damages only
/// its own history.
fn fill(launcher: &Launcher, uid: u32, git: &Path, place: &Path) -> io::Result<()> {
    let index = git.join("index");
    if !index.is_file() {
        // An empty workspace.
        return Ok(());
    }
    let base = place.join("base");
    fs::create_dir(&base)?;
    for entry in fs::read_dir(git.join("objects"))? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() || entry.file_name() == "info" {
            continue;
        }
        let into = base.join(entry.file_name());
        fs::create_dir(&into)?;
        for object in fs::read_dir(entry.path())? {
            let object = object?;
            if object.file_type()?.is_file() {
                fs::hard_link(object.path(), into.join(object.file_name()))?;
            }
        }
        give_to(launcher.facts(), uid, &into)?;
    }
    give_to(launcher.facts(), uid, &base)?;
    // Last: the objects count only with the index.
    let seed = place.join("seed");
    fs::copy(index, &seed)?;
    give_to(launcher.facts(), uid, &seed)
}
