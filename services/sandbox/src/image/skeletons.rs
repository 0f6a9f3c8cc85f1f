//! Makes the skeleton of an image: mount points, and the users of the image with the agent among them.

use crate::isolation::root::{accounts::Accounts, skeleton};
use rustix::{
    fs::{self, FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
};
use std::{
    fs::File,
    io::{self, Read as _},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

/// Bytes of /etc/passwd and of /etc/group that are read from an image. A larger file is replaced by ours.
const ACCOUNTS_BYTES_MAX: u64 = 1024 * 1024;
/// What hides everything below the same directory of lower layers.
const OPAQUE: &str = "user.overlay.opaque";

/// Writes the skeleton for `layers` (lowest first) into `directory`, which exists and is empty. It belongs to the owner of layers, as they do:
/// a build on top of it can change `/etc` and the like. Blocks.
pub(super) fn write(directory: &Path, layers: &[PathBuf], owner: Option<u32>) -> io::Result<()> {
    let passwd = find(layers, "passwd")?;
    let group = find(layers, "group")?;
    skeleton::write(directory, &Accounts::with_agent(passwd.as_deref(), group.as_deref()))?;
    owner.map_or(Ok(()), |owner| give(directory, owner))
}

/// Gives a path with everything below it to a user.
fn give(path: &Path, owner: u32) -> io::Result<()> {
    std::os::unix::fs::lchown(path, Some(owner), Some(owner))?;
    if path.symlink_metadata()?.is_dir() {
        for entry in std::fs::read_dir(path)? {
            give(&entry?.path(), owner)?;
        }
    }
    Ok(())
}

/// Reads a file of /etc as the image shows it. Links are not followed, and a file that is too large counts as missing.
fn find(layers: &[PathBuf], name: &str) -> io::Result<Option<String>> {
    for layer in layers.iter().rev() {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let layer = fs::openat(fs::CWD, layer, flags, Mode::empty())?;
        let etc = match open(&layer, "etc", OFlags::DIRECTORY) {
            Ok(etc) => etc,
            Err(Errno::NOENT) if !is_opaque(&layer)? => continue,
            // A link or a whiteout in place of the directory: nothing of lower layers is to be seen.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        match open(&etc, name, OFlags::NONBLOCK) {
            Ok(file) => return read(file),
            Err(Errno::NOENT) if !is_opaque(&etc)? && !is_opaque(&layer)? => {}
            // A link, or the device that stands for a whiteout.
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::NODEV | Errno::ACCESS) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

fn open(directory: &OwnedFd, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC;
    let below = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    fs::openat2(directory, name, flags, Mode::empty(), below)
}

fn read(file: OwnedFd) -> io::Result<Option<String>> {
    if FileType::from_raw_mode(fs::fstat(&file)?.st_mode) != FileType::RegularFile {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    File::from(file).take(ACCOUNTS_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    let fits = bytes.len() as u64 <= ACCOUNTS_BYTES_MAX;
    Ok(fits.then(|| String::from_utf8_lossy(&bytes).into_owned()))
}

fn is_opaque(directory: &OwnedFd) -> io::Result<bool> {
    let mut value = [0; 1];
    // A descriptor that only names a path has no attributes of its own.
    let readable = open(directory, ".", OFlags::DIRECTORY)?;
    match fs::fgetxattr(&readable, OPAQUE, &mut value) {
        Ok(_) => Ok(value == *b"y"),
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_users_are_those_that_the_highest_layer_shows() {
        let directory = tempfile::tempdir().unwrap();
        let layer = |name: &str| directory.path().join(name);
        for name in ["low", "other", "opaque", "link", "linked"] {
            std::fs::create_dir(layer(name)).unwrap();
        }
        for (name, content) in [("low", "low"), ("opaque", "")] {
            std::fs::create_dir(layer(name).join("etc")).unwrap();
            if !content.is_empty() {
                std::fs::write(layer(name).join("etc/passwd"), content).unwrap();
            }
        }
        std::fs::create_dir(layer("link").join("etc")).unwrap();
        symlink("/etc/passwd", layer("link").join("etc/passwd")).unwrap();
        symlink("/etc", layer("linked").join("etc")).unwrap();
        let opaque = layer("opaque").join("etc");
        fs::setxattr(&opaque, OPAQUE, b"y", fs::XattrFlags::empty()).unwrap();
        let found = |names: &[&str]| {
            let layers: Vec<_> = names.iter().map(|name| layer(name)).collect();
            find(&layers, "passwd").unwrap()
        };
        assert_eq!(found(&["low", "other"]).as_deref(), Some("low"));
        for hidden in [&["low", "opaque"][..], &["low", "link"], &["low", "linked"], &["other"]] {
            assert_eq!(found(hidden), None, "{hidden:?}");
        }
    }
}
