//! What a copy of the files changed is merged into the files that it was copied from.

use crate::{
    copies::copy,
    harness::{Machine, Session, code, directory, repository},
    snapshots::STATE,
};
use rpc::v1;
use std::{fs, path::Path};
use tempfile::TempDir;
use tonic::Status;

/// Two workspaces, of which one began as a copy of the other one.
struct Pair {
    directory: TempDir,
    machine: Machine,
    origin: Session,
    copied: Session,
    commit: String,
}

impl Pair {
    /// Prepares the files, and copies them.
    async fn start(prepare: &str) -> Self {
        let directory = directory();
        let path = repository(directory.path());
        let (machine, origin) = Machine::with_open(directory.path(), &path).await;
        origin.sh(prepare).await;
        let (copied, commit) = copy(&machine, &origin).await;
        Self { directory, machine, origin, copied, commit }
    }

    async fn merge(&self, id: &str) -> Result<v1::MergeCopyResponse, Status> {
        merge(&self.origin, &self.copied, &self.commit, id).await
    }
}

async fn merge(
    session: &Session,
    copy: &Session,
    from_commit: &str,
    id: &str,
) -> Result<v1::MergeCopyResponse, Status> {
    let request = v1::MergeCopyRequest {
        fence: session.fence(),
        output_id: id.to_owned(),
        copy_session_id: copy.id.clone(),
        copy_opening: copy.opening,
        from_commit: from_commit.to_owned(),
    };
    session.client.clone().merge_copy(request).await.map(tonic::Response::into_inner)
}

const FILES: &str = "seq 9 > lines; echo old > renamed; echo x > gone; echo 1 > mode; printf 'a\\r\\n' > crlf; echo '*.o' > .gitignore; \
                     printf '\\0one' > binary; mkdir d; echo f > d/f";

#[tokio::test]
async fn changes_of_both_sides_are_merged_and_can_be_taken_back() {
    let pair = Pair::start(FILES).await;
    let (origin, copied) = (&pair.origin, &pair.copied);
    origin.sh("sed -i s/^1$/one/ lines; mv renamed new-name; echo mine > mine").await;
    copied.sh("sed -i s/^9$/nine/ lines; echo new >> renamed; rm gone; chmod +x mode; printf 'b\\r\\n' >> crlf; ln -s lines link").await;
    copied.sh("rm -r d; echo file > d; head -c 3000 /dev/urandom > fresh; echo u > untracked").await;
    let (before, before_state) = (origin.snapshot().await, origin.sh(STATE).await);
    let merged = pair.merge("prt_1").await.unwrap();
    assert_eq!((merged.conflicts.as_slice(), merged.conflicts_path.as_str()), (&[][..], ""));
    let shown = "head -n1 lines; tail -n1 lines; cat new-name mine d untracked; od -c crlf | head -n1; readlink link; ls gone renamed 2>&1 | wc -l; test -x mode && echo x";
    let want = "one\nnine\nold\nnew\nmine\nfile\nu\n0000000   a  \\r  \\n   b  \\r  \\n\nlines\n2\nx";
    assert_eq!(origin.sh(shown).await, want);
    let bytes = "sha256sum < fresh";
    assert_eq!(origin.sh(bytes).await, copied.sh(bytes).await);
    origin.restore(&before).await.unwrap();
    assert_eq!(origin.sh(STATE).await, before_state);
}

#[tokio::test]
async fn files_with_conflicts_stay_and_a_patch_has_both_versions() {
    let pair = Pair::start(FILES).await;
    let (origin, copied) = (&pair.origin, &pair.copied);
    origin.sh("sed -i s/^5$/ours/ lines; printf '\\0ours' > binary; rm gone; echo ours > d/f").await;
    copied.sh("sed -i s/^5$/theirs/ lines; printf '\\0theirs' > binary; echo more >> gone; rm -r d; echo d > d; echo clean > clean").await;
    let before = origin.sh(STATE).await;
    let merged = pair.merge("prt_1").await.unwrap();
    for path in ["binary", "gone", "lines", "d/f"] {
        assert!(merged.conflicts.iter().any(|it| it == path), "{path}: {merged:?}");
    }
    assert_eq!(merged.conflicts_total as usize, merged.conflicts.len());
    let without_clean = format!("mv clean ../tmp/clean; {STATE}; mv ../tmp/clean clean");
    assert_eq!(origin.sh(&without_clean).await, before, "both sides are kept");
    let markers = format!("git apply {} && sed -n 5,9p lines && cat gone", merged.conflicts_path);
    let want = "<<<<<<< parent\nours\n=======\ntheirs\n>>>>>>> subtask\nx\nmore";
    assert_eq!(origin.sh(&markers).await, want);
}

#[tokio::test]
async fn what_no_snapshot_has_is_not_overwritten() {
    let pair = Pair::start(FILES).await;
    let (origin, copied) = (&pair.origin, &pair.copied);
    origin
        .sh("echo hidden > a.o; echo hidden > dir.o; head -c 3000000 /dev/zero > large; ln -s /tmp away.o")
        .await;
    copied.sh("echo > .gitignore; echo theirs > a.o; mkdir dir.o away.o; echo theirs > dir.o/f; echo theirs > away.o/f; echo theirs > large").await;
    let hidden = "cat a.o dir.o; stat -c %s large; readlink away.o; ls /tmp/f 2>&1 | wc -l";
    let before = origin.sh(hidden).await;
    let merged = pair.merge("prt_1").await.unwrap();
    assert_eq!(merged.conflicts, ["a.o", "away.o/f", "dir.o/f", "large"]);
    assert_eq!(origin.sh(hidden).await, before);
    // A tracked file that has grown too large is not taken for a removed one.
    copied.sh("truncate -s 100M lines").await;
    let merged = pair.merge("prt_2").await.unwrap();
    assert_eq!(merged.left_out, ["lines"]);
    assert_eq!(origin.sh("cat lines | wc -l").await, "9");
}

#[tokio::test]
async fn a_repeated_merge_changes_nothing_and_a_later_one_takes_what_changed_since() {
    let pair = Pair::start("echo base > a").await;
    let (origin, copied) = (&pair.origin, &pair.copied);
    copied.sh("echo theirs >> a").await;
    let first = pair.merge("prt_1").await.unwrap();
    assert_eq!((first.files_merged, first.conflicts_total), (1, 0));
    origin.sh("echo later >> a").await;
    copied.sh("echo new > b").await;
    assert_eq!(pair.merge("prt_1").await.unwrap(), first, "the answer of the first call");
    assert_eq!(origin.sh("cat a; ls b 2>&1 | wc -l").await, "base\ntheirs\nlater\n1");
    let second = pair.merge("prt_2").await.unwrap();
    assert_eq!((second.files_merged, second.conflicts_total), (1, 0), "{second:?}");
    assert_eq!(origin.sh("cat a b").await, "base\ntheirs\nlater\nnew");
}

/// Leaves the record of a merge as a service does that dies while it writes the files.
fn leave_open(place: &Path) {
    let path = place.join("merge.json");
    let mut record: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    record["answer"] = serde_json::Value::Null;
    fs::write(&path, record.to_string()).unwrap();
}

#[tokio::test]
async fn a_merge_that_did_not_end_is_undone_and_done_again() {
    let pair = Pair::start("echo base > a; echo gone > gone; seq 9 > lines").await;
    let (origin, copied) = (&pair.origin, &pair.copied);
    copied.sh("echo theirs >> a; rm gone; echo new > new; sed -i s/^9$/nine/ lines").await;
    let (before, state) = (origin.snapshot().await, origin.sh(STATE).await);
    let merged = pair.merge("prt_1").await.unwrap();
    let after = origin.sh(STATE).await;
    let [place, theirs] = [origin, copied].map(|session| session.place(&pair.directory, "ws"));
    // The service died with one file half written, another one removed, and the others not written.
    fs::remove_file(theirs.join("merged")).unwrap();
    origin.sh(": > a; echo gone > gone; rm -f lines").await;
    leave_open(&place);
    assert_eq!(origin.snapshot().await, before, "the next look at the files restores them");
    assert_eq!(origin.sh(STATE).await, state);
    let again = pair.merge("prt_1").await.unwrap();
    assert_eq!(again, merged);
    assert_eq!(origin.sh(STATE).await, after);
}

#[tokio::test]
async fn a_merge_needs_the_newest_loop_and_files_of_its_own_tenant() {
    let pair = Pair::start("echo base > a").await;
    let (origin, copied) = (&pair.origin, &pair.copied);
    copied.sh("echo theirs > a").await;
    for bad in ["HEAD", "--all", "../x"] {
        assert_eq!(code(merge(origin, copied, bad, "prt_1").await), "argument_invalid", "{bad}");
    }
    assert_eq!(code(merge(origin, origin, "", "prt_1").await), "argument_invalid", "into itself");
    assert_eq!(code(merge(origin, copied, &"0".repeat(40), "prt_1").await), "base_commit_missing");
    let stranger = pair.machine.session();
    assert_eq!(code(merge(&stranger, copied, &pair.commit, "prt_1").await), "workspace_missing");
    let strangers = pair.machine.empty_session().await;
    assert_eq!(code(merge(&strangers, copied, &pair.commit, "prt_1").await), "workspace_missing");
    assert_eq!(code(merge(origin, &strangers, "", "prt_1").await), "workspace_missing");
    let successor = Session { epoch: 2, ..origin.clone() };
    assert_eq!(merge(&successor, copied, &pair.commit, "prt_1").await.unwrap().files_merged, 1);
    assert_eq!(code(merge(origin, copied, &pair.commit, "prt_2").await), "epoch_stale");
    assert_eq!(successor.sh("cat a").await, "theirs");
}
