#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;

fn patch(body: &str) -> String {
    format!("*** Begin Patch\n{body}\n*** End Patch")
}

#[test]
fn a_patch_names_files_to_add_delete_change_and_move() {
    let text = patch(
        "*** Add File: src/new.rs\n+fn a() {}\n+\n*** Delete File: old.rs\n*** Update File: b.rs\n*** Move to: c.rs\n@@ fn b\n-x\n+y",
    );
    let hunk =
        Hunk { after: vec!["fn b".into()], old: vec!["x".into()], new: vec!["y".into()], is_at_end: false };
    let want = [
        Change::Add { path: "src/new.rs".into(), content: "fn a() {}\n\n".into() },
        Change::Delete { path: "old.rs".into() },
        Change::Update { path: "b.rs".into(), to: Some("c.rs".into()), hunks: vec![hunk] },
    ];
    assert_eq!(parse(&text).unwrap(), want);
    let wrapped = format!("cat <<'EOF'\n{text}\nEOF");
    assert_eq!(parse(&wrapped).unwrap(), want, "in a here-document");
    assert_eq!(parse(&text.replace('\n', "\r\n")).unwrap(), want, "with DOS line ends");
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    for (text, want) in [
        ("", "begins with the line"),
        ("*** Begin Patch\n*** Add File: a\n+x", "ends with"),
        ("*** End Patch\n*** Begin Patch", "changes no file"),
        (&patch(""), "changes no file"),
        (&patch("*** Add File: a\nx"), "Line 3 of the patch must begin with \"+\""),
        (&patch("*** Add File:  \n+x"), "Line 2 of the patch names no file"),
        (&patch("*** Update File: a"), "contains no change"),
        (&patch("*** Update File: a\n@@\nx"), "Line 4 of the patch must begin"),
        (&patch("*** Update File: a\n é"), ""),
        (&patch("*** Rename File: a"), "Line 2 of the patch is"),
    ] {
        let result = parse(text);
        match want {
            "" => assert!(result.is_ok(), "{text}: {result:?}"),
            want => assert!(result.clone().unwrap_err().contains(want), "{text}: {result:?}"),
        }
    }
}
