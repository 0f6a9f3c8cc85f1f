#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
use super::*;
use convert_client::patch::{Change, parse};

fn patch(body: &str) -> String {
    format!("*** Begin Patch\n{body}\n*** End Patch")
}

/// Applies the only update of a patch to `content`.
fn updated(content: &str, hunks: &str) -> Result<String, String> {
    let changes = parse(&patch(&format!("*** Update File: a\n{hunks}"))).unwrap();
    let [Change::Update { hunks, .. }] = &changes[..] else { panic!("{changes:?}") };
    apply("a", content, hunks)
}

#[test]
fn hunks_are_found_by_context_and_in_order() {
    let content = "class A:\n  def f():\n    x\nclass B:\n  def f():\n    x\n";
    let second = "@@ class B:\n@@   def f():\n-    x\n+    y";
    assert_eq!(
        updated(content, second).unwrap(),
        "class A:\n  def f():\n    x\nclass B:\n  def f():\n    y\n"
    );
    let both = "@@\n-    x\n+    1\n@@\n-    x\n+    2";
    assert_eq!(updated(content, both).unwrap(), "class A:\n  def f():\n    1\nclass B:\n  def f():\n    2\n");
    assert!(updated(content, "@@ class C:\n-    x\n+y").unwrap_err().contains("class C:"));
    assert!(updated(content, "-    z\n+y").unwrap_err().contains("    z"));
}

#[test]
fn hunks_at_the_end_and_without_old_lines() {
    assert_eq!(updated("a\nb\n", "+c").unwrap(), "a\nb\nc\n");
    assert_eq!(updated("a\nb\n", "@@ a\n+c").unwrap(), "a\nc\nb\n");
    assert_eq!(updated("x\nb\nx\n", "-x\n+y\n*** End of File").unwrap(), "x\nb\ny\n");
    assert_eq!(updated("a\nb", " a\n-b\n+c\n ").unwrap(), "a\nc\n", "the empty line stands for the end");
    assert_eq!(updated("", "+a").unwrap(), "a\n");
    assert_eq!(updated("a\n", "-a").unwrap(), "");
}

#[test]
fn lines_are_found_in_spite_of_blanks_and_typography() {
    assert_eq!(updated("a  \nb\n", "-a\n+c").unwrap(), "c\nb\n");
    assert_eq!(updated("  a\nb\n", "-a\n+c").unwrap(), "c\nb\n");
    assert_eq!(updated("say \u{201c}hi\u{201d} \u{2013} you\n", "-say \"hi\" - you\n+x").unwrap(), "x\n");
    // An exact match wins over a similar line.
    assert_eq!(updated(" a\na\n", "-a\n+c").unwrap(), " a\nc\n");
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_and_applied_without_a_panic(hunks in "([@ +*-]{0,2}[a-c ]{0,3}\n){0,8}", content in "([a-c ]{0,3}\n){0,8}") {
        if let Ok(changes) = parse(&patch(&format!("*** Update File: a\n{hunks}"))) {
            for change in changes {
                if let Change::Update { hunks, .. } = change {
                    let _ = apply("a", &content, &hunks);
                }
            }
        }
    }
}
