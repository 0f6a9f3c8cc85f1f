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
    fs,
    io::{self, Read as _},
    os::fd::AsRawFd as _,
    path::Path,
};

/// Where a clone keeps what arrives, in a checkout.
const PACKS: &str = ".git/objects/pack";
/// Files whose lengths one call reads. Callers repeat it each second, and so many lengths take some hundredths of a second; a clone writes a few files. If there are more,
/// the answer is an estimate.
const COUNTED_FILES_MAX: usize = 20_000;

/// The bytes of a step.
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
        OpeningStep::Clone(checkout) => (v1::OpeningStep::Clone, clone_bytes(checkout)),
        OpeningStep::Lfs(objects) => (v1::OpeningStep::Lfs, lfs_bytes(objects)),
    };
    // The directory or the list may not be there yet, or be gone already.
    let StepBytes { done, total } = measured.unwrap_or_default();
    v1::GetOpeningResponse { step: kind.into(), done_bytes: done, total_bytes: total }
}

/// The bytes that a clone has received. Git does not tell how many will come.
fn clone_bytes(checkout: &Path) -> io::Result<StepBytes> {
    let packs = layout::open_plain_directory(checkout, PACKS)?;
    // The path leads to the directory that is open, also if a link has taken its place.
    let opened = format!("/proc/self/fd/{}", packs.as_raw_fd());
    let entries = fs::read_dir(opened)?.take(COUNTED_FILES_MAX);
    // A file may be gone since it was listed. No link is followed.
    let lengths = entries.filter_map(|entry| entry.ok()?.metadata().ok()).filter(fs::Metadata::is_file);
    let done = lengths.map(|it| it.len()).fold(0, u64::saturating_add);
    Ok(StepBytes { done, total: 0 })
}

/// The bytes of the objects that the helper has listed. The helper renames the finished list into its place before the first object comes. Other objects in the
/// directory are those that the session had already.
fn lfs_bytes(objects: &Path) -> io::Result<StepBytes> {
    let mut list = String::new();
    let file = layout::open_plain_file(objects, WANTED)?;
    file.take(LFS_REPORT_BYTES_MAX as u64).read_to_string(&mut list)?;
    let mut bytes = StepBytes::default();
    for pointer in list.lines().filter_map(LfsPointer::parse_line).take(COUNTED_FILES_MAX / 2) {
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
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
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
        let packs = directory.path().join(PACKS);
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
