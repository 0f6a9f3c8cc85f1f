//! What a copy of the files changed is merged into the files that it was copied from.

use crate::{
    copies::copy,
    harness::{Machine, Session, code, directory, repository},
    snapshots::STATE,
};
use rpc::v1;
use serde_json::json;
use std::{fs, path::PathBuf};
use tempfile::TempDir;
use tonic::Status;

/// Two workspaces, of which one began as a copy of the other one.
struct Pair {
    directory: TempDir,
    machine: Machine,
    origin: Session,
    copied: Session,
    commit: String,
    url: String,
}

impl Pair {
    /// Prepares the files, and copies them.
    async fn start(prepare: &str) -> Self {
        let directory = directory();
        let path = repository(directory.path());
        let (machine, origin) = Machine::with_open(directory.path(), &path).await;
        origin.sh(prepare).await;
        let (copied, commit) = copy(&machine, &origin).await;
        let url = format!("file://{}", path.display());
        Self { directory, machine, origin, copied, commit, url }
    }

    /// The directories of the workspaces.
    fn places(&self) -> [PathBuf; 2] {
        [&self.origin, &self.copied].map(|session| session.place(&self.directory, "ws"))
    }

    /// The record of the merge `prt_1` while its files are written.
    fn open_merge(&self, before: &str, after: &str) -> String {
        let (origin, copy) = (&self.origin.id, &self.copied.id);
        let id = json!({"workspace": origin, "opening": 0, "session": origin, "output_id": "prt_1"});
        json!({"id": id, "copy": copy, "before": before, "after": after}).to_string()
    }

    /// Stops the service, changes what it keeps in the directories of the workspaces, and starts it again.
    async fn restart(self, change: impl FnOnce([PathBuf; 2])) -> Self {
        let places = self.places();
        self.machine.stop().await;
        change(places);
        let roots = self.directory.path().to_str().unwrap();
        let machine = Machine::start_with(self.directory.path(), &["--file-roots", roots]).await;
        let client = machine.client.clone();
        let [origin, copied] =
            [self.origin, self.copied].map(|session| Session { client: client.clone(), ..session });
        Self { machine, origin, copied, ..self }
    }

    async fn merge(&self, id: &str) -> Result<v1::MergeCopyResponse, Status> {
        merge(&self.origin, &self.copied, &self.commit, id).await
    }
}

/// A pair after the merge `prt_1`, in which the file `a` changed from `base` to `theirs`.
struct MergedPair {
    pair: Pair,
    merged: v1::MergeCopyResponse,
    /// The snapshot of the merged files.
    written: String,
    /// The record of the merge while its files were written.
    open: String,
}

impl MergedPair {
    async fn start() -> Self {
        let pair = Pair::start("echo base > a").await;
        pair.copied.sh("echo theirs > a").await;
        let before = pair.origin.snapshot().await;
        let merged = pair.merge("prt_1").await.unwrap();
        let written = pair.origin.snapshot().await;
        let open = pair.open_merge(&before, &written);
        Self { pair, merged, written, open }
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

#[tokio::test]
async fn a_merge_that_did_not_end_is_undone_and_done_again() {
    let pair = Pair::start("echo base > a; echo gone > gone; seq 9 > lines").await;
    let (origin, copied) = (&pair.origin, &pair.copied);
    copied.sh("echo theirs >> a; rm gone; echo new > new; sed -i s/^9$/nine/ lines").await;
    let (before, state) = (origin.snapshot().await, origin.sh(STATE).await);
    let merged = pair.merge("prt_1").await.unwrap();
    let (written, after) = (origin.snapshot().await, origin.sh(STATE).await);
    // The service dies with one file half written, another one removed, and the others not written.
    origin.sh(": > a; echo gone > gone; rm -f lines").await;
    let open = pair.open_merge(&before, &written);
    let leave = |[place, theirs]: [PathBuf; 2]| {
        fs::remove_file(theirs.join("merged.json")).unwrap();
        fs::write(place.join("merging.json"), open).unwrap();
    };
    let pair = pair.restart(leave).await;
    let origin = &pair.origin;
    assert_eq!(origin.snapshot().await, before, "the next look at the files restores them");
    assert_eq!(origin.sh(STATE).await, state);
    let again = pair.merge("prt_1").await.unwrap();
    assert_eq!(again, merged);
    assert_eq!(origin.sh(STATE).await, after);
    assert!(!pair.places()[0].join("merging.json").exists());
}

#[tokio::test]
async fn a_merge_that_is_done_is_not_undone() {
    let MergedPair { pair, merged, written, open } = MergedPair::start().await;
    // The service dies before the copy has its record.
    let pair = pair.restart(|places| leave_done(&places, &open)).await;
    assert_eq!(pair.origin.snapshot().await, written);
    assert_eq!(pair.merge("prt_1").await.unwrap(), merged);
    assert_eq!(pair.origin.sh("cat a").await, "theirs");
    let open = pair.places()[0].join("merging.json");
    assert!(!open.exists());
    fs::write(open, "no record").unwrap();
    assert_eq!(pair.origin.snapshot().await, written, "one look is enough");
}

#[tokio::test]
async fn a_merge_that_only_its_copy_has_as_done_is_not_undone() {
    let MergedPair { pair, merged, written, open } = MergedPair::start().await;
    // An earlier version of the service wrote the record of the copy, and died before it closed the merge.
    let leave = |[place, _]: [PathBuf; 2]| fs::write(place.join("merging.json"), open).unwrap();
    let pair = pair.restart(leave).await;
    assert_eq!(pair.origin.snapshot().await, written);
    assert_eq!(pair.origin.sh("cat a").await, "theirs");
    assert_eq!(pair.merge("prt_1").await.unwrap(), merged);
    assert!(!pair.places()[0].join("merging.json").exists());
}

/// Leaves what a service leaves that dies after the end of a merge and before the copy has its record.
fn leave_done([place, theirs]: &[PathBuf; 2], open: &str) {
    fs::rename(theirs.join("merged.json"), place.join("merge-done.json")).unwrap();
    fs::write(place.join("merging.json"), open).unwrap();
}

#[tokio::test]
async fn a_merge_is_ended_or_undone_also_if_its_copy_is_deleted() {
    for (is_done, want) in [(true, "theirs"), (false, "base")] {
        let MergedPair { pair, open, .. } = MergedPair::start().await;
        let leave = |places: [PathBuf; 2]| {
            leave_done(&places, &open);
            if !is_done {
                fs::remove_file(places[0].join("merge-done.json")).unwrap();
            }
        };
        let pair = pair.restart(leave).await;
        pair.copied.close().await;
        let [place, theirs] = pair.places();
        assert!(!theirs.exists());
        pair.origin.snapshot().await;
        assert_eq!(pair.origin.sh("cat a").await, want);
        let left = ["merging.json", "merge-done.json"].map(|name| place.join(name).exists());
        assert_eq!((left, theirs.exists()), ([false; 2], false));
        pair.machine.stop().await;
    }
}

#[tokio::test]
async fn a_merge_whose_copy_cannot_have_its_record_stays_open_until_it_can() {
    let pair = Pair::start("echo base > a").await;
    pair.copied.sh("echo theirs > a").await;
    let [place, theirs] = pair.places();
    // A directory is in the place of the file.
    fs::create_dir(theirs.join("merged.new")).unwrap();
    let merged = pair.merge("prt_1").await.unwrap();
    assert!(place.join("merging.json").exists());
    fs::remove_dir(theirs.join("merged.new")).unwrap();
    pair.origin.sh("echo later >> a").await;
    assert_eq!(pair.merge("prt_1").await.unwrap(), merged, "the answer of the first call");
    assert_eq!(pair.origin.sh("cat a").await, "theirs\nlater");
    assert!(!place.join("merging.json").exists());
}

#[tokio::test]
async fn a_merge_that_cannot_be_recorded_changes_nothing_then_or_later() {
    let pair = Pair::start("echo base > a; echo base > both").await;
    let (origin, copied) = (&pair.origin, &pair.copied);
    copied.sh("echo theirs > a; echo theirs > both").await;
    origin.sh("echo ours > both").await;
    let (before, state) = (origin.snapshot().await, origin.sh(STATE).await);
    let [place, theirs] = pair.places();
    // A directory is in the place of the file.
    fs::create_dir(place.join("merge-done.new")).unwrap();
    assert_eq!(code(pair.merge("prt_1").await), "internal");
    assert_eq!(origin.sh(STATE).await, state);
    origin.sh("echo later > a").await;
    origin.snapshot().await;
    assert_eq!(origin.sh("cat a").await, "later", "nothing is left to be undone");

    fs::remove_dir(place.join("merge-done.new")).unwrap();
    origin.restore(&before).await.unwrap();
    let merged = pair.merge("prt_1").await.unwrap();
    let name = merged.conflicts_path.split('/').rev().nth(1).unwrap();
    let output = origin.place(&pair.directory, "execs").join(name);
    fs::remove_dir_all(&output).unwrap();
    fs::write(&output, "a file is in the place of the patch").unwrap();
    fs::remove_file(theirs.join("merged.json")).unwrap();
    origin.restore(&before).await.unwrap();
    assert_eq!(code(pair.merge("prt_1").await), "internal");
    assert_eq!(origin.sh(STATE).await, state);
}

#[tokio::test]
async fn a_file_that_cannot_be_removed_takes_the_whole_merge_back() {
    let pair = Pair::start("echo base > a; mkdir ro; echo x > ro/gone").await;
    let (origin, copied) = (&pair.origin, &pair.copied);
    copied.sh("echo theirs > a; rm ro/gone").await;
    origin.sh("chmod 555 ro").await;
    let state = origin.sh(STATE).await;
    let refused = pair.merge("prt_1").await.unwrap_err();
    assert!(refused.message().contains("cannot remove ro/gone"), "{refused}");
    assert_eq!(code::<()>(Err(refused)), "file_not_permitted");
    assert_eq!(origin.sh(STATE).await, state);
    origin.sh("chmod 755 ro").await;
    assert_eq!(pair.merge("prt_1").await.unwrap().files_merged, 2);
    assert_eq!(origin.sh("cat a; ls ro/gone 2>/dev/null | wc -l").await, "theirs\n0");
}

#[tokio::test]
async fn files_that_a_failed_merge_cannot_restore_are_named() {
    let pair = Pair::start("mkdir a z; echo x > a/x; echo x > b; echo z > z/gone").await;
    let (origin, copied) = (&pair.origin, &pair.copied);
    copied.sh("echo new > a/new; echo theirs > b; rm z/gone").await;
    origin.sh("chmod 555 z").await;
    // The merge can write to this directory, and nothing can be removed from it afterwards.
    let lock = "until [ -e a/new ]; do :; done; chmod 555 a";
    origin.sh(&format!("(setsid bash -c '{lock}' > /dev/null 2>&1 &)")).await;
    let refused = pair.merge("prt_1").await.unwrap_err();
    let text = refused.message();
    assert!(
        text.contains("cannot remove z/gone") && text.ends_with("as the merge left them: a/new"),
        "{text}"
    );
    assert_eq!(code::<()>(Err(refused)), "merge_incomplete");
    assert_eq!(origin.sh("cat a/new b z/gone").await, "new\nx\nz");
    origin.sh("chmod 755 a z").await;
    assert_eq!(pair.merge("prt_1").await.unwrap().files_merged, 2);
    assert_eq!(origin.sh("cat a/new b; ls z/gone 2>/dev/null | wc -l").await, "new\ntheirs\n0");
}

#[tokio::test]
async fn each_copy_has_the_answer_of_its_own_merge() {
    let pair = Pair::start("echo base > a").await;
    let (origin, copied) = (&pair.origin, &pair.copied);
    let (other, commit) = copy(&pair.machine, origin).await;
    origin.sh("echo ours > a").await;
    copied.sh("echo theirs > a").await;
    other.sh("echo b > b").await;
    let first = pair.merge("prt_1").await.unwrap();
    assert_eq!(first.conflicts, ["a"]);
    // Another loop in the same files.
    merge(&origin.child(), &other, &commit, "prt_2").await.unwrap();
    assert_eq!(pair.merge("prt_1").await.unwrap(), first);
}

#[tokio::test]
async fn files_that_start_again_get_everything_that_the_copy_changed() {
    let pair = Pair::start("true").await;
    pair.copied.sh("echo one > one").await;
    assert_eq!(pair.merge("prt_1").await.unwrap().files_merged, 1);
    pair.origin.release().await.unwrap();
    let again = Session { opening: Some(1), ..pair.origin.clone() };
    again.open_url(&pair.url).await.unwrap();
    assert_eq!(again.sh("ls one 2>/dev/null | wc -l").await, "0");
    pair.copied.sh("echo two > two").await;
    let merged = merge(&again, &pair.copied, &pair.commit, "prt_1").await.unwrap();
    assert_eq!((merged.files_merged, merged.conflicts_total), (2, 0));
    assert_eq!(again.sh("cat one two").await, "one\ntwo");
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
