//! How far the opening of a workspace is: the bytes that its directories have. It reads only lengths and the list of the objects of Git LFS, so no lock of the session is
//! needed, and what a helper writes meanwhile makes the answer wrong at most.

use crate::{
    error::{Error, blocking},
    session::{opening::OpeningStep, state::Session},
};
use domain::egress::lfs::{arrivals::WANTED, pointer::LfsPointer, report::LFS_REPORT_BYTES_MAX};
use rpc::v1;
use std::{
    fs,
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

/// Where a clone keeps what arrives, in a checkout.
const PACKS: &str = ".git/objects/pack";
/// Files of a directory that are counted: their lengths are read each second. Those beyond it are left out.
const COUNTED_FILES_MAX: usize = 20_000;

/// Returns how far the opening of a session's workspace is.
///
/// # Errors
/// Those of the machine.
///
/// Cancel-safe.
pub async fn read(session: &Session) -> Result<v1::GetOpeningResponse, Error> {
    let Some(step) = session.opening.step() else { return Ok(v1::GetOpeningResponse::default()) };
    blocking("measure an opening", move || Ok(measure(&step))).await
}

fn measure(step: &OpeningStep) -> v1::GetOpeningResponse {
    let (kind, done, total) = match step {
        OpeningStep::Clone(checkout) => (v1::OpeningStep::Clone, bytes(&checkout.join(PACKS)), None),
        OpeningStep::Lfs(objects) => {
            let list = objects.join(WANTED);
            let total = wanted_bytes(&list).ok();
            let list_bytes = fs::symlink_metadata(&list).map_or(0, |it| it.len());
            (v1::OpeningStep::Lfs, bytes(objects).map(|bytes| bytes.saturating_sub(list_bytes)), total)
        }
    };
    // The directory may not be there yet, or be gone already.
    let (done, total_bytes) = (done.unwrap_or_default(), total.unwrap_or_default());
    // The helper notes more in the directory than the objects.
    let done_bytes = if total_bytes > 0 { done.min(total_bytes) } else { done };
    v1::GetOpeningResponse { step: kind.into(), done_bytes, total_bytes }
}

/// The bytes of the files of a directory, without those below it.
fn bytes(directory: &Path) -> io::Result<u64> {
    let entries = fs::read_dir(directory)?.take(COUNTED_FILES_MAX);
    // A file may be gone since it was listed. No link is followed.
    let lengths = entries.filter_map(|entry| entry.ok()?.metadata().ok()).filter(fs::Metadata::is_file);
    Ok(lengths.map(|it| it.len()).sum())
}

/// The bytes of all objects of a list. The helper renames it into its place, so it is whole.
fn wanted_bytes(list: &Path) -> io::Result<u64> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = fs::File::options().read(true).custom_flags(flags).open(list)?;
    let mut text = String::new();
    file.take(LFS_REPORT_BYTES_MAX as u64).read_to_string(&mut text)?;
    let sizes = text.lines().filter_map(LfsPointer::parse_line).map(|pointer| pointer.size());
    Ok(sizes.fold(0, u64::saturating_add))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;
    use crate::session::opening::Opening;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_has_arrived_is_counted_and_no_link_is_followed() {
        let directory = tempfile::tempdir().unwrap();
        let opening = Opening::default();
        let now = || opening.step().map(|step| measure(&step));
        let response = |step: v1::OpeningStep, done_bytes, total_bytes| {
            Some(v1::GetOpeningResponse { step: step.into(), done_bytes, total_bytes })
        };
        let cloning = opening.enter(OpeningStep::Clone(directory.path().to_owned()));
        assert_eq!(now(), response(v1::OpeningStep::Clone, 0, 0), "git has not begun");
        let packs = directory.path().join(PACKS);
        fs::create_dir_all(packs.join("below")).unwrap();
        fs::write(packs.join("tmp_pack_a"), [0; 700]).unwrap();
        symlink("tmp_pack_a", packs.join("link")).unwrap();
        assert_eq!(now(), response(v1::OpeningStep::Clone, 700, 0));
        drop(cloning);
        assert_eq!(now(), None);

        let _step = opening.enter(OpeningStep::Lfs(directory.path().to_owned()));
        let pointers = ["a", "b"].map(|letter| LfsPointer::new(&letter.repeat(64), 500).unwrap());
        fs::write(directory.path().join(pointers[0].oid()), [0; 500]).unwrap();
        fs::write(directory.path().join("b.part"), [0; 100]).unwrap();
        assert_eq!(now(), response(v1::OpeningStep::Lfs, 600, 0), "the server has not answered");
        let list = pointers.map(|pointer| format!("{}\n", pointer.to_line())).concat();
        fs::write(directory.path().join(WANTED), list).unwrap();
        assert_eq!(now(), response(v1::OpeningStep::Lfs, 600, 1_000));
        fs::rename(directory.path().join(WANTED), directory.path().join("list")).unwrap();
        symlink("list", directory.path().join(WANTED)).unwrap();
        assert_eq!(now().unwrap().total_bytes, 0, "the list is no link");
    }
}
