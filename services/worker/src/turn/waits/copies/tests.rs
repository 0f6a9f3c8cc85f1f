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

#[test]
fn the_model_reads_what_changed_and_how_to_take_it() {
    let begin = "The subtask worked on its own copy of the files. Your files are unchanged.";
    assert_eq!(description(&changed(0, ""), &MergeOutcome::Nothing), format!("{begin} It changed no files."));
    let want = format!(
        "{begin} It changed 1 file:\n- f0\\n (+0 -1)\nThe patch is in /p. To take these changes over, run: git apply /p"
    );
    assert_eq!(description(&changed(1, "/p"), &MergeOutcome::Unfinished(Dispatch::New)), want);
    let again = description(&changed(1, "/p"), &MergeOutcome::Unfinished(Dispatch::Resumed));
    assert!(again.starts_with(&want) && again.contains("first take that one back"), "{again}");
    let refused =
        description(&changed(1, "/p"), &MergeOutcome::Refused("the disk is full".to_owned(), Dispatch::New));
    for part in
        ["Your files are unchanged. Its changes cannot be merged: the disk is full. It", "git apply /p"]
    {
        assert!(refused.contains(part), "{part}: {refused}");
    }
}

#[test]
fn the_model_reads_what_was_merged_and_what_was_not() {
    let text = description(&changed(1, "/p"), &MergeOutcome::Merged(merged(&[])));
    let want = "The subtask worked on its own copy of the files. Its changes were merged into your files. It changed 1 file:\n\
                - f0\\n (+0 -1)\nThe patch with everything that it changed is in /p.";
    assert_eq!(text, want);
    let conflicts = v1::MergeCopyResponse {
        conflicts_path: "/c".to_owned(),
        left_out: vec!["big".to_owned()],
        ..merged(&["a\n", "b"])
    };
    let text = description(&changed(3, "/p"), &MergeOutcome::Merged(conflicts));
    for part in [
        "except those to files with conflicts. It changed 3 files:",
        "have conflicts, so they are as they were in your files:\n- a\\n\n- b\n",
        "The patch /c shows both versions",
        "git apply /c",
        "only in its copy: big",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let binary = description(&changed(1, "/p"), &MergeOutcome::Merged(merged(&["b"])));
    assert!(binary.contains("\n- b\nMake these changes yourself."), "{binary}");
}

#[test]
fn long_lists_and_patches_are_bounded_and_told() {
    let large = vec!["x, 8.0 GiB".to_owned()];
    let unfinished = MergeOutcome::Unfinished(Dispatch::New);
    let text = description(&v1::KeepPatchResponse { left_out: large, ..changed(2_000, "") }, &unfinished);
    assert_eq!(text.matches("\n- f").count(), FILES_LISTED_MAX);
    for part in ["changed 2000 files", "- and 1950 more", "x, 8.0 GiB", "larger than 10485760 bytes"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("git apply"), "{text}");
    let long = v1::DiffStat { path: "d/".repeat(1_000), additions: 1, deletions: 0 };
    let text = description(&v1::KeepPatchResponse { files: vec![long], ..changed(1, "/p") }, &unfinished);
    assert!(text.len() < 600, "{text}");
}
