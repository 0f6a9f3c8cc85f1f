//! The objects of Git LFS of another session of the tenant on this machine, for a session that begins with a copy of its files. Helpers of that session may have
//! written anything in their directory. So the service links only what has the name of an object, and the helper of the new session checks what it takes.

use crate::{
    error::{Error, blocking},
    layout::Key,
    session::state::Session,
    tree::track::{DIRECTORY, LFS_OBJECTS},
    workspace::scratch::Scratch,
};
use domain::{ids::SessionId, text::is_sha256};
use std::{
    fs::{self, File},
    io,
    os::{fd::AsRawFd as _, unix::fs::OpenOptionsExt as _},
    path::{Path, PathBuf},
};

/// Objects that are linked: as many as a session brings. The helper asks the server for the others.
const KEPT_OBJECTS_MAX: usize = 5_000;

/// Links the objects of a session into a directory that the user `uid` can read. `None`: it has none on this machine.
pub(super) async fn link(session: &Session, uid: u32, from: &SessionId) -> Option<Scratch> {
    let key = Key { tenant: session.key.tenant, session: from.clone() };
    let objects = session.shared.layout.workspace(&key).join(DIRECTORY).join(LFS_OBJECTS);
    if fs::symlink_metadata(&objects).is_err() {
        return None;
    }
    match try_link(session, uid, objects).await {
        Ok(scratch) => Some(scratch),
        Err(error) => {
            tracing::warn!("a session does not get the objects of Git LFS of another one: {error}");
            None
        }
    }
}

async fn try_link(session: &Session, uid: u32, objects: PathBuf) -> Result<Scratch, Error> {
    let scratch = Scratch::make(session, uid)?;
    let place = scratch.path().to_owned();
    blocking("link objects of Git LFS", move || link_all(&objects, &place)).await?;
    Ok(scratch)
}

fn link_all(objects: &Path, place: &Path) -> io::Result<()> {
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_DIRECTORY;
    let directory = File::options().read(true).custom_flags(flags).open(objects)?;
    // The path leads to the directory that is open, also if a link has taken its place.
    let opened = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    let names = fs::read_dir(&opened)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    for name in names.filter(|name| is_sha256(name)).take(KEPT_OBJECTS_MAX) {
        // What cannot be linked is asked for. The other session may be closing.
        drop(fs::hard_link(opened.join(&name), place.join(&name)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_what_has_the_name_of_an_object_is_linked_and_no_link_is_followed() {
        let directory = tempfile::tempdir().unwrap();
        let [objects, other, place] = ["objects", "other", "place"].map(|name| directory.path().join(name));
        for path in [&objects, &other, &place] {
            fs::create_dir(path).unwrap();
        }
        let (oid, part) = ("a".repeat(64), format!("{}.part", "b".repeat(64)));
        for path in
            [objects.join(&oid), objects.join(part), objects.join("files"), other.join("c".repeat(64))]
        {
            fs::write(path, "content").unwrap();
        }
        link_all(&objects, &place).unwrap();
        let names =
            || -> Vec<_> { fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name()).collect() };
        assert_eq!(names(), [oid.as_str()]);
        let link = directory.path().join("link");
        symlink(&other, &link).unwrap();
        assert!(link_all(&link, &place).is_err());
        assert_eq!(names(), [oid.as_str()]);
    }
}
