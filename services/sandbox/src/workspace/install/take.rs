//! Fills a new workspace with what was installed for it. Git then takes these files for ignored ones: in snapshots, diffs and checkouts, and for the agent.

use super::{
    copy::{Copied, TreeCopy},
    key::{Install, name},
    listing,
};
use crate::{
    error::Error,
    image::{layer::EnvironmentLayerName, manifest::Manifest},
    isolation::{facts::Facts, launch::give_to, policy::User},
    session::state::Session,
    tree::track::{DIRECTORY, EXCLUDED},
};
use rpc::v1::ErrorCode;
use std::{
    collections::HashSet,
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Places among the files of a repository in which an install may leave something; git reads all of them. Beyond it: `install_failed`.
const INSTALL_PLACES_MAX: usize = 10_000;

pub(in crate::workspace) struct NewWorkspace<'a> {
    pub(in crate::workspace) session: &'a Session,
    pub(in crate::workspace) image: &'a Manifest,
    pub(in crate::workspace) env: &'a [String],
    /// Where its files are.
    pub(in crate::workspace) build: &'a Path,
    pub(in crate::workspace) uid: u32,
}

/// Fills a new workspace, and gives the name of what it has now.
///
/// # Errors
/// `install_missing`, `install_failed`, `disk_full`; those of the file system.
pub(in crate::workspace) async fn run(
    new: NewWorkspace<'_>,
    install: &Install,
) -> Result<EnvironmentLayerName, Error> {
    let NewWorkspace { session, image, env, build, uid } = new;
    let shared = &session.shared;
    let name = match install {
        Install::Script(spec) => name(session.key.tenant, image, env, spec, &listing::read(build).await?)?,
        Install::Copied(name) => name.clone(),
    };
    let missing = || {
        Error::refused(ErrorCode::InstallMissing, "the machine has not installed what the workspace needs")
    };
    // Kept until the copy is whole.
    let (_pin, from) = shared.images.hold(&name).ok_or_else(missing)?;
    let facts = shared.launcher.facts();
    let fill = Fill {
        from,
        build: build.to_owned(),
        snapshots: shared.layout.workspace(&session.key).join(DIRECTORY),
        owner: (facts.user == User::PerSession).then_some(uid),
        facts: facts.clone(),
        uid,
    };
    let images = Arc::clone(&shared.images);
    let filled = tokio::task::spawn_blocking(move || fill.run(&|| images.check_host())).await;
    filled.map_err(|error| Error::io("copy what was installed")(io::Error::other(error)))??;
    Ok(name)
}

struct Fill {
    from: PathBuf,
    build: PathBuf,
    snapshots: PathBuf,
    owner: Option<u32>,
    facts: Facts,
    uid: u32,
}

impl Fill {
    fn run(self, check: &dyn Fn() -> Result<(), Error>) -> Result<(), Error> {
        let copy = TreeCopy { owner: self.owner, without: &HashSet::new(), bytes_max: u64::MAX, check };
        let Copied { places, .. } = copy.run(&self.from, &self.build)?;
        if places.len() > INSTALL_PLACES_MAX {
            let text = format!(
                "the install left files in more than {INSTALL_PLACES_MAX} places among those of the repository; let it write into directories of its own"
            );
            return Err(Error::refused(ErrorCode::InstallFailed, text));
        }
        self.exclude(&places).map_err(Error::io("note what was installed"))
    }

    /// Notes what git ignores, for the agent's git and for that of the service.
    fn exclude(&self, places: &[Vec<u8>]) -> io::Result<()> {
        let patterns: Vec<u8> = places.iter().flat_map(|place| pattern(place)).collect();
        let info = self.build.join(".git/info");
        if !info.is_dir() {
            fs::create_dir(&info)?;
            give_to(&self.facts, self.uid, &info)?;
        }
        let exclude = info.join("exclude");
        fs::write(&exclude, &patterns)?;
        give_to(&self.facts, self.uid, &exclude)?;
        if !self.snapshots.is_dir() {
            return Err(io::Error::other("the workspace has no place for snapshots"));
        }
        let excluded = self.snapshots.join(EXCLUDED);
        fs::write(&excluded, &patterns)?;
        fs::set_permissions(excluded, Permissions::from_mode(0o644))
    }
}

/// A line of git's list of ignored files that means this path alone.
fn pattern(place: &[u8]) -> Vec<u8> {
    let mut line = vec![b'/'];
    for byte in place {
        match byte {
            // The end of a line cannot be written, so any character stands for it.
            b'\n' => line.push(b'?'),
            b'\\' | b'*' | b'?' | b'[' | b' ' => line.extend([b'\\', *byte]),
            byte => line.push(*byte),
        }
    }
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_means_one_path() {
        assert_eq!(pattern(b"node_modules/"), b"/node_modules/\n");
        assert_eq!(pattern(b"a [b]*\\c\nd "), b"/a\\ \\[b]\\*\\\\c?d\\ \n");
    }
}
