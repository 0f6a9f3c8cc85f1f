use super::*;
use convert_client::request::Occurrences;

fn edit(old: &str, new: &str) -> Edit {
    Edit { old: old.into(), new: new.into(), which: Occurrences::One }
}

/// `want`: the text after the edit, whether the quote matched exactly; or a part of the error.
fn check(before: &str, old: &str, new: &str, want: Result<(&str, Match), &str>) {
    match (apply(before, &[edit(old, new)]), want) {
        (Ok(after), Ok((want, matched))) => {
            assert_eq!(after.text, want, "{old:?} in {before:?}");
            assert_eq!(after.inexact_lines.is_empty(), matched == Match::Exact, "{old:?} in {before:?}");
        }
        (Err(error), Err(want)) => assert!(error.contains(want), "{error}"),
        (got, want) => panic!("{old:?} in {before:?}: {got:?}, not {want:?}"),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Match {
    Exact,
    Inexact,
}
use Match::{Exact, Inexact};

#[test]
fn each_rule_finds_what_was_meant() {
    check("a\nb\nc\n", "b", "x", Ok(("a\nx\nc\n", Exact)));
    check("  if a {\n    b\n  }\n", "if a {\nb\n}", "y", Ok(("  y\n", Inexact)));
    check("let  a =   1;\n", "let a = 1;", "let a = 2;", Ok(("let a = 2;\n", Inexact)));
    check("x(let  a =   1;)\n", "let a = 1;", "let a = 2;", Ok(("x(let a = 2;)\n", Inexact)));
    check("\tx(\n\t\t1,\n\t)\n", "x(\n\t1,\n)", "y", Ok(("\ty\n", Inexact)));
    check("say \"hi\"\nthere", "say \\\"hi\\\"\\nthere", "-", Ok(("-", Inexact)));
    check("alpha beta", "\n alpha beta \n", "\n gamma \n", Ok(("gamma", Inexact)));
    check("<\na\nb\nc\n>\n", "<\na\nQQQQQQQQQQ\nc\n>", "-", Ok(("-\n", Inexact)));
    check("“don’t”, she said\n", "\"don't\"", "\"do not\"", Ok(("“do not”, she said\n", Inexact)));
    check("a – b\nc\n", "a - b\nc", "a - b\nd", Ok(("a – b\nd\n", Inexact)));
}

#[test]
fn what_several_places_match_is_refused_whichever_rule_finds_them() {
    let yaml = "name: x\nstaging:\n  replicas: 1\nprod:\n    replicas: 1\n";
    check(yaml, "replicas: 1", "replicas: 3", Err("more than once (lines 3, 5)"));
    check(
        "a:\n  x: 1\n  y: 2\nb:\n    x: 1\n    y: 2\n",
        "x: 1\ny: 2",
        "z",
        Err("fits inexactly more than once (the lines from 2, 5)"),
    );
    check("f( a )\nf(  a )\n", "f(  a  )", "g", Err("not in the file"));
    check("f( a  b )\nf(  a b )\n", "f( a b )", "g", Err("more than once (lines 1, 2)"));
    check("aaa\n", "aa", "b", Err("more than once (lines 1, 1)"));
    check("{\n1\n2\n}\n{\n1\n3\n}\n", "{\n1\n4\n}", "x", Err("more than once"));
    check(
        "a = 1\nb = a\n\na = 1\nb = a\na = 1\nb = a\n",
        "b = a\na = 1",
        "c",
        Ok(("a = 1\nb = a\n\na = 1\nc\nb = a\n", Exact)),
    );
}

#[test]
fn what_is_not_there_is_refused() {
    check("a\nb\n", "zzz", "x", Err("not in the file"));
    check("a\nb\na\n", "a", "x", Err("more than once"));
    check("", "a", "x", Err("not in the file"));
    check("foobar\n", "\n foo \n", "x", Err("not in the file"));
    check("fn f() {\n  a();\n  b();\n}\n", "fn f() {\n  b();\n}", "x", Err("not in the file"));
    check("print(\"a\")\n", "print(\\\"a\\\")", "print(\\\"b\\n\\\")", Err("backslashes"));
    check("a\r\nb\r\n", "a\r\nb", "a\nb", Err("line ends"));
}

#[test]
fn every_occurrence_can_be_replaced() {
    let all = |before: &str, old: &str, new: &str| {
        let edit = Edit { old: old.into(), new: new.into(), which: Occurrences::All };
        apply(before, &[edit]).map(|after| after.text)
    };
    assert_eq!(all("a b a", "a", "c").as_deref(), Ok("c b c"));
    assert_eq!(all("aaaaa", "aa", "b").as_deref(), Ok("bba"));
    assert_eq!(all("  a\n  b\n\n\ta\n\tb\n", "a\nb", "a\nc").as_deref(), Ok("  a\n  c\n\n\ta\n\tc\n"));
    assert!(
        all("{\n1\n2\n}\n", "{\n1\n4\n}", "x").unwrap_err().contains("some lines of a similar place differ")
    );
}

#[test]
fn bytes_that_an_edit_does_not_name_stay() {
    check("\u{feff}a\r\nb\r\nc\r\n", "a\nb", "x\ny", Ok(("\u{feff}x\r\ny\r\nc\r\n", Exact)));
    check("a\nb\r\nc\nd\n", "c", "x", Ok(("a\nb\r\nx\nd\n", Exact)));
    check("a\nb\r\nc\nd\n", "a\nb\nc", "a\nb\nx\ny", Ok(("a\nb\r\nx\ny\nd\n", Exact)));
    check("a\nb  \r\nc\n", "a\nb\nc", "a\nb\nx", Ok(("a\nb  \r\nx\n", Inexact)));
    check("  a\n  b", "a\nb\n", "a\nc\n", Ok(("  a\n  c", Inexact)));
    check("  a\n  b\n", "a\n b\n", "", Ok(("", Inexact)));
    check("  a\n  b\n", "a\n  b\n", "c\n", Ok(("  c\n", Exact)));
}

#[test]
fn inexact_quotes_are_told_by_their_lines_after_all_edits() {
    let edits = [edit("a", "a"), edit("  b", "\tx"), edit("d  e", "f"), edit("one\n", "1\n2\n3\n")];
    let after = apply("one\n b\nc\nd e\n", &edits[1..]).unwrap();
    assert_eq!(after, Rewritten { text: "1\n2\n3\n\tx\nc\nf\n".to_owned(), inexact_lines: vec![4, 6] });
    let error = apply("a\n b\n", &edits[..1]).unwrap_err();
    assert!(error.contains("the same"), "{error}");
}

#[test]
fn a_quote_with_other_lines_between_does_not_swallow_them() {
    let middle = "line\n".repeat(40);
    check(&format!("start\n{middle}end\n"), "start\nline\nend", "x", Err("not in the file"));
}

#[test]
fn a_dollar_in_the_new_text_is_only_a_dollar() {
    check("price", "price", "$1 $& $$", Ok(("$1 $& $$", Exact)));
}

proptest::proptest! {
    #[test]
    fn any_texts_give_an_answer_and_never_a_panic(content in "[ab\r\n\t \\\\é“\"]{0,40}", old in "[ab\n\t \\\\é“\"]{1,12}", new in "[ab\n \"]{0,6}") {
        for which in [Occurrences::One, Occurrences::All] {
            let _after = apply(&content, &[Edit { old: old.clone(), new: new.clone(), which }]);
        }
    }

    #[test]
    fn an_exact_unique_quote_changes_only_itself(left in "[a-c\r\n]{0,20}", right in "[a-c\r\n]{0,20}") {
        let after = apply(&format!("{left}QUOTE{right}"), &[edit("QUOTE", "new")]).map(|after| after.text);
        proptest::prop_assert_eq!(after, Ok(format!("{left}new{right}")));
    }
}
