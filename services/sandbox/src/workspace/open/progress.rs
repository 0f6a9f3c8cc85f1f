//! Measures how far an opening is. The service reads only lengths and the list of objects, so it takes no lock of the session. What a helper writes meanwhile makes the
//! answer wrong at most.

use crate::{
    error::{Error, blocking},
    layout,
    session::{opening::OpeningStep, state::Session},
};
use domain::egress::lfs::{
    arrivals::{PART, WANTED},
    pointer::LfsPointer,
    report::LFS_REPORT_BYTES_MAX,
};
use rpc::v1;
use std::{
    fs::{self, DirEntry},
    io::{self, Read as _},
    os::fd::AsRawFd as _,
    path::Path,
};

/// The repository of a checkout.
const REPOSITORY: &str = ".git";
/// Where a clone keeps what arrives, in a repository.
const PACKS: &str = "objects/pack";
/// The repositories of submodules, in the repository that has them.
const MODULES: &str = "modules";
/// Files and directories that one call looks at. Callers repeat it each second, and so many take some hundredths of a second; a clone writes a few. If there are more, the
/// answer is an estimate.
const ENTRIES_MAX: usize = 20_000;

#[derive(Debug, Default, Clone, Copy)]
struct StepBytes {
    done: u64,
    /// 0: not known.
    total: u64,
}

/// Returns how far the opening of a session's workspace is.
///
/// # Errors
/// Those of the machine.
///
/// Cancel-safe.
pub async fn read(session: &Session) -> Result<v1::GetOpeningResponse, Error> {
    let Some(step) = session.progress.step() else { return Ok(v1::GetOpeningResponse::default()) };
    blocking("measure an opening", move || Ok(measure(&step))).await
}

fn measure(step: &OpeningStep) -> v1::GetOpeningResponse {
    let (kind, measured) = match step {
        OpeningStep::Clone(checkout) => (v1::OpeningStep::Clone, CheckoutReader::new(checkout).clone_bytes()),
        OpeningStep::Lfs(objects) => (v1::OpeningStep::Lfs, lfs_bytes(objects).unwrap_or_default()),
        OpeningStep::Submodules(checkout) => {
            (v1::OpeningStep::Submodules, CheckoutReader::new(checkout).submodule_bytes())
        }
    };
    let StepBytes { done, total } = measured;
    v1::GetOpeningResponse { step: kind.into(), done_bytes: done, total_bytes: total }
}

/// Reads directories of a checkout, and follows no link.
#[derive(Debug)]
struct CheckoutReader<'a> {
    checkout: &'a Path,
    /// Entries that it may still look at.
    left: usize,
}

impl<'a> CheckoutReader<'a> {
    fn new(checkout: &'a Path) -> Self {
        Self { checkout, left: ENTRIES_MAX }
    }

    /// The bytes that a clone has received. Git does not tell how many will come.
    fn clone_bytes(&mut self) -> StepBytes {
        // The directory may not be there yet, or be gone already.
        StepBytes { done: self.pack_bytes(REPOSITORY).unwrap_or(0), total: 0 }
    }

    /// The bytes that the clones of submodules have received, without those of Git LFS. Git does not tell how many will come.
    fn submodule_bytes(&mut self) -> StepBytes {
        let mut done = 0_u64;
        let mut directories = vec![format!("{REPOSITORY}/{MODULES}")];
        while let Some(directory) = directories.pop() {
            for entry in self.entries(&directory).unwrap_or_default() {
                let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
                // A name that is not UTF-8 is left out.
                let Some(name) = entry.file_name().to_str().filter(|_| is_directory).map(str::to_owned)
                else {
                    continue;
                };
                let path = format!("{directory}/{name}");
                match self.pack_bytes(&path) {
                    Ok(bytes) => {
                        done = done.saturating_add(bytes);
                        directories.push(format!("{path}/{MODULES}"));
                    }
                    // The name of a submodule may have slashes.
                    Err(_) => directories.push(path),
                }
            }
        }
        StepBytes { done, total: 0 }
    }

    fn pack_bytes(&mut self, repository: &str) -> io::Result<u64> {
        let entries = self.entries(&format!("{repository}/{PACKS}"))?;
        // A file may be gone since it was listed. No link is followed.
        let lengths = entries.iter().filter_map(|entry| entry.metadata().ok()).filter(fs::Metadata::is_file);
        Ok(lengths.map(|it| it.len()).fold(0, u64::saturating_add))
    }

    /// The entries of a directory, as many as it may still look at.
    fn entries(&mut self, directory: &str) -> io::Result<Vec<DirEntry>> {
        let opened = layout::open_plain_directory(self.checkout, directory)?;
        // The path leads to the directory that is open, also if a link has taken its place.
        let path = format!("/proc/self/fd/{}", opened.as_raw_fd());
        let entries: Vec<DirEntry> = fs::read_dir(path)?.take(self.left).filter_map(Result::ok).collect();
        self.left -= entries.len();
        Ok(entries)
    }
}

/// The bytes of the objects that the helper has listed. The helper renames the finished list into its place before the first object comes. Other objects in the
/// directory are those that the session had already. An error: the list may not be there yet, or be gone already.
fn lfs_bytes(objects: &Path) -> io::Result<StepBytes> {
    let mut list = String::new();
    let file = layout::open_plain_file(objects, WANTED)?;
    file.take(LFS_REPORT_BYTES_MAX as u64).read_to_string(&mut list)?;
    let mut bytes = StepBytes::default();
    for pointer in list.lines().filter_map(LfsPointer::parse_line).take(ENTRIES_MAX / 2) {
        let object = objects.join(pointer.oid());
        // The part first: the helper may rename it in between, and then both count.
        let part = length(&object.with_extension(PART));
        let arrived = part.saturating_add(length(&object));
        bytes.done = bytes.done.saturating_add(arrived.min(pointer.size()));
        bytes.total = bytes.total.saturating_add(pointer.size());
    }
    Ok(bytes)
}

/// The length of a plain file; 0: there is none.
fn length(file: &Path) -> u64 {
    fs::symlink_metadata(file).ok().filter(fs::Metadata::is_file).map_or(0, |it| it.len())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::session::opening::OpeningProgress;
    use std::os::unix::fs::symlink;

    fn response(step: v1::OpeningStep, done_bytes: u64, total_bytes: u64) -> v1::GetOpeningResponse {
        v1::GetOpeningResponse { step: step.into(), done_bytes, total_bytes }
    }

    #[test]
    fn what_a_clone_has_received_is_counted_and_no_link_is_followed() {
        let directory = tempfile::tempdir().unwrap();
        let progress = OpeningProgress::default();
        let now = || measure(&progress.step().unwrap());
        let cloning = progress.enter(OpeningStep::Clone(directory.path().to_owned()));
        assert_eq!(now(), response(v1::OpeningStep::Clone, 0, 0), "git has not begun");
        let packs = directory.path().join(REPOSITORY).join(PACKS);
        fs::create_dir_all(packs.join("below")).unwrap();
        fs::write(packs.join("tmp_pack_a"), [0; 700]).unwrap();
        symlink("tmp_pack_a", packs.join("link")).unwrap();
        assert_eq!(now(), response(v1::OpeningStep::Clone, 700, 0));
        for name in [".git/objects/pack", ".git/objects", ".git"] {
            let path = directory.path().join(name);
            let moved = directory.path().join("moved");
            fs::rename(&path, &moved).unwrap();
            symlink(&moved, &path).unwrap();
            assert_eq!(now(), response(v1::OpeningStep::Clone, 0, 0), "{name} is a link");
            fs::remove_file(&path).unwrap();
            fs::rename(&moved, &path).unwrap();
        }
        assert_eq!(now(), response(v1::OpeningStep::Clone, 700, 0));
        drop(cloning);
        assert_eq!(progress.step(), None);
    }

    #[test]
    fn what_the_clones_of_submodules_have_received_is_counted_at_every_level_and_no_link_is_followed() {
        let directory = tempfile::tempdir().unwrap();
        let progress = OpeningProgress::default();
        let now = || measure(&progress.step().unwrap());
        let _step = progress.enter(OpeningStep::Submodules(directory.path().to_owned()));
        let repository = directory.path().join(REPOSITORY);
        let receive = |path: &str, bytes: usize| {
            let packs = repository.join(path).join(PACKS);
            fs::create_dir_all(&packs).unwrap();
            fs::write(packs.join("tmp_pack_a"), vec![0_u8; bytes]).unwrap();
        };
        receive("", 5_000);
        assert_eq!(now(), response(v1::OpeningStep::Submodules, 0, 0), "the repository has come before");
        receive("modules/one", 1);
        receive("modules/name/with/slashes", 20);
        receive("modules/one/modules/below", 300);
        receive("modules/one/modules/below/modules/deeper", 4_000);
        let all = response(v1::OpeningStep::Submodules, 4_321, 0);
        assert_eq!(now(), all);

        symlink("one", repository.join("modules/link")).unwrap();
        symlink("../one", repository.join("modules/name/link")).unwrap();
        fs::create_dir_all(repository.join("modules/linked/objects")).unwrap();
        symlink("../../one/objects/pack", repository.join("modules/linked/objects/pack")).unwrap();
        symlink("tmp_pack_a", repository.join("modules/one").join(PACKS).join("link")).unwrap();
        assert_eq!(now(), all);
        let (modules, moved) = (repository.join("modules"), directory.path().join("moved"));
        fs::rename(&modules, &moved).unwrap();
        symlink(&moved, &modules).unwrap();
        assert_eq!(now(), response(v1::OpeningStep::Submodules, 0, 0), "the directory is a link");
    }

    #[test]
    fn no_more_entries_are_looked_at_than_a_call_may() {
        let directory = tempfile::tempdir().unwrap();
        let repository = directory.path().join(REPOSITORY).join("modules/one");
        fs::create_dir_all(repository.join(PACKS)).unwrap();
        for name in ["a", "b", "c"] {
            fs::write(repository.join(PACKS).join(name), [0; 10]).unwrap();
        }
        // The directory of the submodule is an entry too.
        for (left, done, rest) in [(0, 0, 0), (1, 0, 0), (3, 20, 0), (4, 30, 0), (5, 30, 1)] {
            let mut reader = CheckoutReader { checkout: directory.path(), left };
            assert_eq!((reader.submodule_bytes().done, reader.left), (done, rest), "{left}");
        }
    }

    #[test]
    fn only_objects_that_must_come_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        let progress = OpeningProgress::default();
        let now = || measure(&progress.step().unwrap());
        let _step = progress.enter(OpeningStep::Lfs(directory.path().to_owned()));
        let write = |name: &str, bytes: usize| {
            fs::write(directory.path().join(name), vec![0_u8; bytes]).unwrap();
        };
        // A fork has these contents from its origin.
        write(&"c".repeat(64), 300);
        assert_eq!(now(), response(v1::OpeningStep::Lfs, 0, 0), "the server has not answered");
        let pointers = ["a", "b"].map(|letter| LfsPointer::new(&letter.repeat(64), 500).unwrap());
        let list = pointers.map(|pointer| format!("{}\n", pointer.to_line())).concat();
        fs::write(directory.path().join(WANTED), list).unwrap();
        assert_eq!(now(), response(v1::OpeningStep::Lfs, 0, 1_000));
        write(&"a".repeat(64), 500);
        write(&format!("{}.part", "b".repeat(64)), 100);
        assert_eq!(now(), response(v1::OpeningStep::Lfs, 600, 1_000));
        write(&format!("{}.part", "b".repeat(64)), 501);
        assert_eq!(
            now(),
            response(v1::OpeningStep::Lfs, 1_000, 1_000),
            "the helper finds that it is too long"
        );

        let list = directory.path().join(WANTED);
        fs::rename(&list, directory.path().join("list")).unwrap();
        symlink("list", &list).unwrap();
        assert_eq!(now(), response(v1::OpeningStep::Lfs, 0, 0), "the list is no link");
        fs::remove_file(&list).unwrap();
        fs::create_dir(&list).unwrap();
        assert_eq!(now(), response(v1::OpeningStep::Lfs, 0, 0), "the list is a plain file");
    }
}
