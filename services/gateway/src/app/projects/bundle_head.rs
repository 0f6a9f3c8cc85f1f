//! Where the sessions of an uploaded bundle begin, as the refs at its beginning say.

use store::tenant::bundles::BundleHead;

/// Bytes of a bundle in which its HEAD, the branch, and the first of the refs behind them are found. The command line puts them first.
pub(crate) const HEAD_BYTES: u32 = 1_024;
/// The prefix of refs that name the commits whose parents a bundle lacks.
const SHALLOW: &str = "refs/flotilla/shallow/";

/// Reads the beginning of a bundle. `None`: it has no HEAD, or its branch does not stand there.
pub(crate) fn read(bytes: &[u8]) -> Option<BundleHead> {
    let commit = find_commit(bytes)?;
    let branch =
        refs(bytes).find_map(|(id, name)| (id == commit).then(|| name.strip_prefix("refs/heads/"))?)?;
    let is_whole = !refs(bytes).any(|(_, name)| name.starts_with(SHALLOW));
    // A ref may be cut where the bytes end.
    let is_all = bytes.windows(2).any(|pair| pair == b"\n\n") || !is_whole;
    is_all.then(|| BundleHead { commit: commit.to_owned(), branch: branch.to_owned(), is_whole })
}

pub(crate) fn find_commit(bytes: &[u8]) -> Option<&str> {
    let is_commit = |word: &str| matches!(word.len(), 40 | 64) && word.bytes().all(|b| b.is_ascii_hexdigit());
    refs(bytes).find(|(commit, name)| *name == "HEAD" && is_commit(commit)).map(|(commit, _)| commit)
}

/// The refs: lines with a commit and a name.
fn refs(bytes: &[u8]) -> impl Iterator<Item = (&str, &str)> {
    // An empty line ends the refs. The pack behind it is no text.
    let lines = bytes.split(|byte| *byte == b'\n').take_while(|line| !line.is_empty());
    lines.filter_map(|line| std::str::from_utf8(line).ok()?.split_once(' '))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn a_bundle_begins_with_its_refs() {
        for (bundle, want) in [
            (format!("# v2 git bundle\n{COMMIT} HEAD\n{COMMIT} refs/heads/trunk\n\nPACK"), Some(COMMIT)),
            (
                format!("# v3 git bundle\n@object-format=sha1\n-{COMMIT} base\n{COMMIT} HEAD\n\nPACK"),
                Some(COMMIT),
            ),
            (format!("# v2 git bundle\n{COMMIT} refs/heads/trunk\n\n{COMMIT} HEAD\n"), None),
            ("# v2 git bundle\nno HEAD\n".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(find_commit(bundle.as_bytes()), want, "{bundle}");
        }
    }

    #[test]
    fn the_branch_and_the_history_stand_behind_the_head() {
        let head = |is_whole| {
            Some(BundleHead { commit: COMMIT.to_owned(), branch: "feature/x".to_owned(), is_whole })
        };
        let refs = format!("# v2 git bundle\n{COMMIT} HEAD\n{COMMIT} refs/heads/feature/x\n");
        assert_eq!(read(format!("{refs}\nPACK").as_bytes()), head(true));
        assert_eq!(read(format!("{refs}{COMMIT} refs/flotilla/shallow/0\n").as_bytes()), head(false));
        assert_eq!(read(refs.as_bytes()), None, "more may follow");
        assert_eq!(read(format!("# v2 git bundle\n{COMMIT} HEAD\n\nPACK").as_bytes()), None);
    }
}
