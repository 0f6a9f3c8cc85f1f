//! Searches what a script leaves for the values of secrets: the content and the names of files, and the targets of links. The search finds accidents, such
//! as a token in `.npmrc`. It does not find a value that the script encodes.

use super::needles::Needles;
use std::{
    fs::{self, File, Permissions},
    io,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// How much earlier than the clock a kernel may date a change.
const CLOCK_MARGIN: Duration = Duration::from_secs(1);
const GIT: &str = ".git";
/// The tree of a setup, which keeps directories of git. An install keeps none.
const ROOT: &str = "/";
/// The right to read a file, or to enter a directory and list it.
const READ: u32 = 0o400;
const ENTER: u32 = 0o500;

/// Checks the files in `tree` that were changed since `begun_at`.
///
/// # Errors
/// A sentence that names the variable and the file.
pub(super) fn check(tree: &Path, begun_at: SystemTime, needles: &Needles) -> Result<(), String> {
    let search = Search {
        needles,
        since: begun_at.duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(CLOCK_MARGIN).as_secs(),
        device: fs::metadata(tree).map_err(unreadable(tree))?.dev(),
    };
    let mut todo = vec![tree.to_owned()];
    while let Some(directory) = todo.pop() {
        for path in search.list(&directory).map_err(unreadable(&directory))? {
            if path.file_name() != Some(GIT.as_ref()) || tree == Path::new(ROOT) {
                todo.extend(search.look_at(path)?);
            }
        }
    }
    Ok(())
}

fn unreadable(path: &Path) -> impl Fn(io::Error) -> String {
    move |error| format!("{} cannot be searched for secrets: {error}", path.display())
}

struct Search<'a> {
    needles: &'a Needles,
    /// Seconds since 1970.
    since: u64,
    /// The file system of the tree: what is mounted in it belongs to the sandbox.
    device: u64,
}

impl Search<'_> {
    /// What a directory has; nothing, if a process that the script left removes it at this moment.
    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        match open_readable(directory, ENTER, || fs::read_dir(directory)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(vec![]),
            entries => entries?.map(|entry| Ok(entry?.path())).collect(),
        }
    }

    /// Checks a file; gives a directory back that must be searched.
    fn look_at(&self, path: PathBuf) -> Result<Option<PathBuf>, String> {
        let found = match fs::symlink_metadata(&path) {
            // A process that the script left still works.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            found => found.map_err(unreadable(&path))?,
        };
        let is_changed = u64::try_from(found.ctime()).unwrap_or(0) >= self.since;
        if found.is_dir() {
            if is_changed {
                self.refuse_name(&path)?;
            }
            return Ok((found.dev() == self.device).then_some(path));
        }
        if !is_changed {
            return Ok(None);
        }
        self.refuse_name(&path)?;
        if found.is_symlink() {
            let target = fs::read_link(&path).map_err(unreadable(&path))?;
            return self.refuse(&path, self.needles.find_in(target.as_os_str().as_bytes())).map(|()| None);
        }
        if !found.is_file() {
            return Ok(None);
        }
        let open =
            || File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(&path);
        let file = match open_readable(&path, READ, open) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(unreadable(&path))?,
        };
        self.refuse(&path, self.needles.find_in(file)).map(|()| None)
    }

    fn refuse_name(&self, path: &Path) -> Result<(), String> {
        let name = path.file_name().unwrap_or_default();
        self.refuse(path, self.needles.find_in(name.as_bytes()))
    }

    /// Fails if a value was found at a path.
    fn refuse(&self, path: &Path, found: io::Result<Option<&str>>) -> Result<(), String> {
        match found.map_err(unreadable(path))? {
            None => Ok(()),
            Some(variable) => Err(format!(
                "the script left the value of {variable} in {}, where sessions could read it; remove it at the end of the script, or let the \
                 file refer to the variable (secret_left)",
                path.display()
            )),
        }
    }
}

/// Opens a path. One that its owner may not open gets this right and keeps it: in what is kept, the owner may read everything.
fn open_readable<T>(path: &Path, right: u32, open: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match open() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let mode = fs::symlink_metadata(path)?.permissions().mode();
            fs::set_permissions(path, Permissions::from_mode(mode | right))?;
            open()
        }
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const VALUE: &str = "npm_s3cr3t_value";

    fn needles() -> Needles {
        Needles::of_files(&[("NPM_TOKEN".to_owned(), VALUE.to_owned())]).unwrap()
    }

    #[test]
    fn a_value_in_a_new_file_is_found_whatever_its_mode() {
        let tree = tempfile::tempdir().unwrap();
        let (needles, begun_at) = (needles(), SystemTime::now());
        let deep = tree.path().join("a/b");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("package.json"), "{}").unwrap();
        // Longer than the buffer of a search, with the value across its end.
        let long = ["x".repeat(64 * 1024 - 5).as_str(), VALUE, "y"].concat();
        for (name, content, mode) in [(".npmrc", VALUE, 0o600), ("shut", VALUE, 0), ("long", &long, 0o644)] {
            let file = deep.join(name);
            fs::write(&file, content).unwrap();
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            let found = check(tree.path(), begun_at, &needles).unwrap_err();
            assert!(found.contains("NPM_TOKEN") && found.contains(&format!("a/b/{name}")), "{found}");
            assert!(!found.contains(VALUE));
            fs::remove_file(&file).unwrap();
        }
        fs::write(deep.join(format!("of-{VALUE}")), "").unwrap();
        assert!(check(tree.path(), begun_at, &needles).unwrap_err().contains("NPM_TOKEN"), "in a name");
        fs::remove_file(deep.join(format!("of-{VALUE}"))).unwrap();
        std::os::unix::fs::symlink(format!("https://{VALUE}@npm.dev"), deep.join("link")).unwrap();
        assert!(check(tree.path(), begun_at, &needles).unwrap_err().contains("a/b/link"), "in a target");
        fs::remove_file(deep.join("link")).unwrap();
        check(tree.path(), begun_at, &needles).unwrap();
    }

    #[test]
    fn what_no_session_sees_may_have_it() {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir_all(tree.path().join("dep/.git")).unwrap();
        fs::write(tree.path().join("dep/.git/config"), VALUE).unwrap();
        std::os::unix::fs::symlink("/proc/self/environ", tree.path().join("link")).unwrap();
        nix::unistd::mkfifo(&tree.path().join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        check(tree.path(), SystemTime::now(), &needles()).unwrap();
        // The script made none of these, so the search skips them.
        fs::write(tree.path().join("old"), VALUE).unwrap();
        fs::create_dir(tree.path().join(VALUE)).unwrap();
        check(tree.path(), SystemTime::now() + Duration::from_secs(10), &needles()).unwrap();
    }
}
