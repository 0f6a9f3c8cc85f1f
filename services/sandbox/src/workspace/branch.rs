//! The branch of a workspace, as `.git/HEAD` names it. The service reads the file itself, without git. The tenant
//! controls the file, so its content is untrusted and has no effect.

use crate::layout::open_plain_file;
use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

/// More than the longest branch name in practice; a longer text is not a branch.
const HEAD_BYTES_MAX: u64 = 1_024;

/// Returns the branch of the files in `tree`; `None` if no branch is checked out, or if HEAD is not a plain file that
/// git may have written. A path with a symbolic link is refused, even if the link stays inside.
pub async fn find(tree: PathBuf) -> Option<String> {
    tokio::task::spawn_blocking(move || read(&tree)).await.ok().flatten()
}

fn read(tree: &Path) -> Option<String> {
    let head = open_plain_file(tree, ".git/HEAD").ok()?;
    let mut text = String::new();
    head.take(HEAD_BYTES_MAX + 1).read_to_string(&mut text).ok()?;
    parse(&text).map(ToOwned::to_owned)
}

fn parse(head: &str) -> Option<&str> {
    let branch = head.strip_prefix("ref: refs/heads/")?.trim_end_matches('\n');
    let is_odd = |letter: char| letter.is_whitespace() || letter.is_control();
    let is_name = !branch.is_empty() && !branch.contains(is_odd) && head.len() as u64 <= HEAD_BYTES_MAX;
    is_name.then_some(branch)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use rustix::fs::Mode;
    use std::{fs, os::unix::fs::symlink};

    fn check(make: impl FnOnce(&Path), want: Option<&str>) {
        let directory = tempfile::tempdir().unwrap();
        let tree = directory.path().join("tree");
        fs::create_dir_all(tree.join(".git")).unwrap();
        // Paths that must stay hidden from the sandbox.
        fs::create_dir(directory.path().join("other")).unwrap();
        fs::write(directory.path().join("other/HEAD"), "ref: refs/heads/secret\n").unwrap();
        make(&tree);
        assert_eq!(read(&tree).as_deref(), want);
    }

    fn check_text(text: impl AsRef<[u8]>, want: Option<&str>) {
        check(|tree| fs::write(tree.join(".git/HEAD"), text).unwrap(), want);
    }

    #[test]
    fn a_branch_is_what_head_names() {
        check_text("ref: refs/heads/main\n", Some("main"));
        check_text("ref: refs/heads/feature/späte-arbeit", Some("feature/späte-arbeit"));
        check_text("0123456789abcdef0123456789abcdef01234567\n", None);
        check_text("ref: refs/remotes/origin/main\n", None);
        check(|_| (), None);
    }

    #[test]
    fn a_malformed_head_names_no_branch() {
        check_text("", None);
        check_text("ref: refs/heads/", None);
        check_text("ref: refs/heads/a b\n", None);
        check_text("ref: refs/heads/a\nb\n", None);
        check_text("ref: refs/heads/\u{1b}[31m\n", None);
        check_text(b"ref: refs/heads/\xff\n", None);
        check_text([0; 64], None);
        check_text(format!("ref: refs/heads/{}", "x".repeat(1_100)), None);
        let large = |tree: &Path| {
            fs::write(tree.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
            fs::File::options().write(true).open(tree.join(".git/HEAD")).unwrap().set_len(1 << 30).unwrap();
        };
        check(large, None);
    }

    #[test]
    fn a_head_that_is_not_a_plain_file_of_the_tree_is_not_opened() {
        let (fifo, mode) = (rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR);
        let pipe = |tree: &Path| {
            rustix::fs::mknodat(rustix::fs::CWD, tree.join(".git/HEAD"), fifo, mode, 0).unwrap();
        };
        check(pipe, None);
        check(|tree| fs::create_dir(tree.join(".git/HEAD")).unwrap(), None);
        check(|tree| symlink("../../other/HEAD", tree.join(".git/HEAD")).unwrap(), None);
        check(|tree| symlink(tree.join("../other/HEAD"), tree.join(".git/HEAD")).unwrap(), None);
        let elsewhere = |tree: &Path| {
            fs::remove_dir(tree.join(".git")).unwrap();
            symlink("../other", tree.join(".git")).unwrap();
        };
        check(elsewhere, None);
        let file = |tree: &Path| {
            fs::remove_dir(tree.join(".git")).unwrap();
            fs::write(tree.join(".git"), "gitdir: ../other").unwrap();
        };
        check(file, None);
    }
}
