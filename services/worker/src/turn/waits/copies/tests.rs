#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;

fn changed(count: u32, path: &str) -> v1::KeepPatchResponse {
    let file = |number| v1::DiffStat { path: format!("f{number}\n"), additions: number, deletions: 1 };
    v1::KeepPatchResponse {
        path: path.to_owned(),
        files: (0..count.min(1_000)).map(file).collect(),
        files_total: count,
        left_out: vec![],
    }
}

fn merged(conflicts: &[&str]) -> v1::MergeCopyResponse {
    v1::MergeCopyResponse {
        files_merged: 1,
        conflicts: conflicts.iter().map(|path| (*path).to_owned()).collect(),
        conflicts_total: u32::try_from(conflicts.len()).unwrap_or(u32::MAX),
        ..Default::default()
    }
}

fn child() -> SessionId {
    "ses_2".parse().unwrap()
}

/// What the model reads about a patch.
fn text_of(patch: v1::KeepPatchResponse, merging: &MergeOutcome, dispatch: Dispatch) -> String {
    description(&Patch::Kept(patch), merging, dispatch, &child())
}

#[test]
fn the_model_reads_what_changed_and_how_to_take_it() {
    let begin = "The subtask worked on its own copy of the files. Your files are unchanged.";
    let nothing = text_of(changed(0, ""), &MergeOutcome::Nothing, Dispatch::New);
    assert_eq!(nothing, format!("{begin} It changed no files."));
    let list =
        "changed 1 file:\n- f0\\n (+0 -1)\nThe patch is in /p. To take these changes over, run: git apply /p";
    let begin = format!("{begin} The subtask is not done, so nothing was merged.");
    let stays = "\nThe copy has these changes until the subtask or this session is deleted; the patch may go earlier, as old outputs do. A task with task_id \
                 ses_2 continues in the copy. People see its changes with `flotilla diff ses_2`.";
    let first = text_of(changed(1, "/p"), &MergeOutcome::Unfinished, Dispatch::New);
    assert_eq!(first, format!("{begin} It {list}{stays}"));
    let idle = text_of(changed(0, ""), &MergeOutcome::Unfinished, Dispatch::New);
    assert_eq!(idle, format!("{begin} It changed no files."));
    let again = text_of(changed(1, "/p"), &MergeOutcome::Unfinished, Dispatch::Resumed);
    assert!(again.starts_with(&format!("{begin} In all, it {list}")), "{again}");
    assert!(again.ends_with(&format!("in your files, revert it first.{stays}")), "{again}");
    let refused = MergeOutcome::Refused("the disk is full".to_owned());
    let refused = text_of(changed(1, "/p"), &refused, Dispatch::New);
    for part in
        ["Your files are unchanged. Its changes cannot be merged: the disk is full. It", "git apply /p"]
    {
        assert!(refused.contains(part), "{part}: {refused}");
    }
}

#[test]
fn the_model_does_not_read_that_its_files_are_unchanged_if_they_may_not_be() {
    let status = |code: &str| rpc::status::error_as(tonic::Code::Internal, code, "no answer");
    for (status, want) in [
        (Status::unavailable("no answer"), "(no answer), so its changes may or may not be in your files"),
        (Status::internal("no answer"), "(no answer), so its changes may or may not be"),
        (status("internal"), "(no answer), so its changes may or may not be"),
        (status("sandbox_unavailable"), "(no answer), so its changes may or may not be"),
        (status("merge_incomplete"), "your files are not all as they were: no answer."),
        (status("disk_full"), "Your files are unchanged. Its changes cannot be merged: no answer."),
    ] {
        let outcome = failure_of(&status).unwrap();
        let is_unchanged = matches!(outcome, MergeOutcome::Refused(_));
        for text in [
            text_of(changed(1, "/p"), &outcome, Dispatch::New),
            description(&Patch::Missing("it took too long".to_owned()), &outcome, Dispatch::New, &child()),
        ] {
            assert!(text.contains(want), "{want}: {text}");
            assert_eq!(text.contains("unchanged"), is_unchanged, "{text}");
            assert!(text.ends_with("`flotilla diff ses_2`."), "{text}");
            assert!(is_unchanged || !text.contains("git apply"), "{text}");
        }
    }
    assert!(matches!(failure_of(&status("epoch_stale")), Err(WriteError::Fenced)));
}

#[test]
fn the_model_reads_what_was_merged_and_what_was_not() {
    let outcome = MergeOutcome::Merged(merged(&[]));
    let want = "The subtask worked on its own copy of the files. Its changes were merged into your files. It changed 1 file:\n\
                - f0\\n (+0 -1)\nThe patch with everything that it changed is in /p.";
    assert_eq!(text_of(changed(1, "/p"), &outcome, Dispatch::New), want);
    let conflicts = v1::MergeCopyResponse {
        conflicts_path: "/c".to_owned(),
        left_out: vec!["big".to_owned()],
        ..merged(&["a\n", "b"])
    };
    let conflicts = text_of(changed(3, "/p"), &MergeOutcome::Merged(conflicts), Dispatch::New);
    for part in [
        "except those to files with conflicts. It changed 3 files:",
        "have conflicts, so they are as they were in your files:\n- a\\n\n- b\n",
        "The patch /c shows both versions",
        "git apply /c",
        "The patch leaves out binary files and files that git ignores in your workspace.",
        "only in its copy: big",
    ] {
        assert!(conflicts.contains(part), "{part}: {conflicts}");
    }
    let binary = text_of(changed(1, "/p"), &MergeOutcome::Merged(merged(&["b"])), Dispatch::New);
    assert!(binary.contains("\n- b\nMake these changes yourself."), "{binary}");
}

#[test]
fn the_model_reads_what_a_subtask_that_continued_changed_since_its_last_merge() {
    let outcome = MergeOutcome::Merged(merged(&[]));
    let want = "The subtask worked on its own copy of the files. Its changes since its last merge were merged into your files. \
                That changed 1 file of yours. Its copy is as it was at the beginning.";
    assert_eq!(text_of(changed(0, ""), &outcome, Dispatch::Resumed), want);
}

#[test]
fn long_lists_and_patches_are_bounded_and_told() {
    let large = vec!["x, 8.0 GiB".to_owned()];
    let unfinished = MergeOutcome::Unfinished;
    let many = v1::KeepPatchResponse { left_out: large, ..changed(2_000, "") };
    let many = text_of(many, &unfinished, Dispatch::New);
    assert_eq!(many.matches("\n- f").count(), FILES_LISTED_MAX);
    for part in ["changed 2000 files", "- and 1950 more", "x, 8.0 GiB", "larger than 10485760 bytes"] {
        assert!(many.contains(part), "{part}: {many}");
    }
    assert!(!many.contains("git apply"), "{many}");
    let long = v1::DiffStat { path: "d/".repeat(1_000), additions: 1, deletions: 0 };
    let long = v1::KeepPatchResponse { files: vec![long], ..changed(1, "/p") };
    let long = text_of(long, &unfinished, Dispatch::New);
    assert!(long.len() < 900, "{long}");
}
