#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use convert_client::patch::{Change, parse};

fn patch(body: &str) -> String {
    format!("*** Begin Patch\n{body}\n*** End Patch")
}

/// Applies the only update of a patch to `content`.
fn updated(content: &str, hunks: &str) -> Result<String, String> {
    let changes = parse(&patch(&format!("*** Update File: a\n{hunks}"))).unwrap();
    let [Change::Update { hunks, .. }] = &changes[..] else { panic!("{changes:?}") };
    apply("a", content, hunks).map(|after| after.text)
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
    assert_eq!(updated("a\nb", " a\n-b\n+c\n ").unwrap(), "a\nc", "the empty line stands for the end");
    assert_eq!(updated("", "+a").unwrap(), "a\n");
    assert_eq!(updated("a\n", "-a").unwrap(), "");
}

#[test]
fn lines_are_found_in_spite_of_blanks_and_typography() {
    assert_eq!(updated("a  \nb\n", "-a\n+c").unwrap(), "c\nb\n");
    assert_eq!(updated("  a\nb\n", "-a\n+c").unwrap(), "  c\nb\n");
    assert_eq!(updated("say \u{201c}hi\u{201d} \u{2013} you\n", "-say \"hi\" - you\n+x").unwrap(), "x\n");
    // An exact match wins over a similar line.
    assert_eq!(updated(" a\na\n", "-a\n+c").unwrap(), " a\nc\n");
}

#[test]
fn bytes_that_a_patch_does_not_name_stay() {
    let php = "<?php\n$a = 1;\n$b = 2;\n// end";
    assert_eq!(
        updated(php, "@@\n <?php\n-$a = 1;\n+$a = 3;\n $b = 2;").unwrap(),
        php.replace("$a = 1", "$a = 3")
    );
    assert_eq!(updated("a\r\nb\nc\n", " a\n-b\n+x\n c").unwrap(), "a\r\nx\nc\n");
    assert_eq!(updated("a\nb", "+c").unwrap(), "a\nb\nc");
    let python = "def f():\n        total = 0  \n        return total\n";
    let hunk = "-    total = 0\n+    total = 1\n     return total";
    assert_eq!(updated(python, hunk).unwrap(), "def f():\n        total = 1\n        return total\n");
}

#[test]
fn hunks_that_fit_in_several_places_are_refused() {
    let yaml = "staging:\n  replicas: 1\nprod:\n    replicas: 1\n";
    let error = updated(yaml, "-replicas: 1\n+replicas: 3").unwrap_err();
    assert!(error.contains("lines 2 and 4"), "{error}");
    assert_eq!(
        updated(yaml, "@@ prod:\n-replicas: 1\n+replicas: 3").unwrap(),
        yaml.replace("    replicas: 1", "    replicas: 3")
    );
    assert!(updated("x\ny\nx\n", "-x\n+z").unwrap_err().contains("more than once"));
    // The hunk behind it leaves only one place.
    assert_eq!(updated("x\ny\nx\n", "-x\n+z\n@@\n-y\n+w").unwrap(), "z\nw\nx\n");
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_and_applied_without_a_panic(hunks in "([@ +*-]{0,2}[a-c ]{0,3}\n){0,8}", content in "([a-c ]{0,3}\n){0,8}") {
        if let Ok(changes) = parse(&patch(&format!("*** Update File: a\n{hunks}"))) {
            for change in changes {
                if let Change::Update { hunks, .. } = change {
                    let _after = apply("a", &content, &hunks);
                }
            }
        }
    }
}
