#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use domain::limits;
use rpc::v1::{self, ErrorCode};
use std::collections::BTreeMap;
use {
    super::operations::{lists_of_paths, relative},
    crate::tree::{
        known::Snapshot,
        track::{parse, read_tracked},
    },
};

#[test]
fn invalid_snapshot_names_and_paths_are_refused() {
    let hash = "0123456789abcdef0123456789abcdef01234567";
    assert_eq!(parse(hash).unwrap(), hash);
    for name in ["", "HEAD", "--upload-pack=x", "../../../etc", &hash[1..], &hash.to_uppercase()] {
        assert_eq!(parse(name).unwrap_err().code(), ErrorCode::SnapshotUnknown, "{name}");
    }
    for (path, want) in
        [("a/b", "a/b"), ("/workspace/a", "a"), (".gitignore", ".gitignore"), ("a\nb", "a\nb")]
    {
        assert_eq!(relative(path).unwrap(), want);
    }
    for path in
        ["", "/", "/etc/passwd", "/workspace", "..", "a/../b", "a//b", "./a", "a/", ".git/config", "a\0"]
    {
        assert!(relative(path).is_err(), "{path:?}");
    }
}

#[test]
fn the_first_snapshot_of_a_file_counts() {
    let (first, second) = ("a".repeat(40), "b".repeat(40));
    let files = |snapshot: &str, paths: &[&str]| v1::FilesOfSnapshot {
        snapshot: snapshot.to_owned(),
        paths: paths.iter().map(|path| (*path).to_owned()).collect(),
    };
    let lists = lists_of_paths(vec![
        files(&first, &["x", "/workspace/y"]),
        files(&second, &["y", "z"]),
        files(&first, &["z", "v"]),
    ]);
    let want = BTreeMap::from([(first.clone(), b"x\0y\0v\0".to_vec()), (second, b"z\0".to_vec())]);
    assert_eq!(lists.unwrap(), want);
    let many: Vec<String> = (0..=limits::SNAPSHOT_FILES_MAX).map(|n| n.to_string()).collect();
    let many = lists_of_paths(vec![v1::FilesOfSnapshot { snapshot: first, paths: many }]);
    assert_eq!(many.unwrap_err().code(), ErrorCode::ArgumentInvalid);
}

#[test]
fn the_answer_of_a_snapshot_helper_is_parsed() {
    let hash = "c".repeat(40);
    let tracked = read_tracked(format!("{hash} 2\nbig one\0b\nc\0").as_bytes()).unwrap();
    assert_eq!(
        tracked,
        Snapshot { snapshot: hash, left_out: 2, left_out_paths: vec!["big one".into(), "b\nc".into()] }
    );
    assert_eq!(read_tracked(b"nothing 0\n"), None);
}
