use super::*;
use convert_client::request::Occurrences;

fn edit(old: &str, new: &str) -> Edit {
    Edit { old: old.into(), new: new.into(), which: Occurrences::One }
}

fn check(before: &str, old: &str, new: &str, want: Result<&str, &str>) {
    match (apply(before, &[edit(old, new)]), want) {
        (Ok(after), Ok(want)) => assert_eq!(after, want, "{old:?} in {before:?}"),
        (Err(error), Err(want)) => assert!(error.contains(want), "{error}"),
        (got, want) => panic!("{old:?} in {before:?}: {got:?}, not {want:?}"),
    }
}

#[test]
fn each_strategy_finds_what_was_meant() {
    check("a\nb\nc\n", "b", "x", Ok("a\nx\nc\n"));
    check("  if a {\n    b\n  }\n", "if a {\nb\n}", "y", Ok("y\n"));
    check(
        "fn f() {\n  let a = 1;\n  let b = 2;\n}\n",
        "fn f() {\n  let a = 1;\n  let b = 3;\n}",
        "z",
        Ok("z\n"),
    );
    check("let  a =   1;\n", "let a = 1;", "let a = 2;", Ok("let a = 2;\n"));
    check("\tx(\n\t\t1,\n\t)\n", "x(\n\t1,\n)", "y", Ok("y\n"));
    check("say \"hi\"\nthere", "say \\\"hi\\\"\\nthere", "-", Ok("-"));
    check("alpha beta", "\n alpha beta \n", "gamma", Ok("gamma"));
    check("<\na\nb\nc\n>\n", "<\na\nQQQQQQQQQQ\nc\n>", "-", Ok("-\n"));
}

#[test]
fn what_is_not_there_or_not_unique_is_refused() {
    check("a\nb\n", "zzz", "x", Err("not in the file"));
    check("a\nb\na\n", "a", "x", Err("more than once"));
    check("", "a", "x", Err("not in the file"));
}

#[test]
fn every_occurrence_can_be_replaced() {
    assert_eq!(find::replace("a b a", "a", "c", Occurrences::All).as_deref(), Ok("c b c"));
}

#[test]
fn line_ends_and_byte_order_mark_stay() {
    check("\u{feff}a\r\nb\r\nc\r\n", "a\nb", "x\ny", Ok("\u{feff}x\r\ny\r\nc\r\n"));
}

#[test]
fn a_bold_match_does_not_swallow_the_file() {
    let middle = "line\n".repeat(40);
    check(&format!("start\n{middle}end\n"), "start\nline\nend", "x", Err("not in the file"));
}

#[test]
fn a_dollar_in_the_new_text_is_only_a_dollar() {
    check("price", "price", "$1 $& $$", Ok("$1 $& $$"));
}

proptest::proptest! {
    #[test]
    fn any_texts_give_an_answer_and_never_a_panic(content in "[ab\\n\\t \\\\é]{0,40}", old in "[ab\\n\\t \\\\é]{1,12}") {
        let _after = find::replace(&content, &old, "Z", Occurrences::One);
        let _all = find::replace(&content, &old, "Z", Occurrences::All);
    }

    #[test]
    fn an_exact_unique_quote_changes_only_itself(left in "[a-c\\n]{0,20}", right in "[a-c\\n]{0,20}") {
        let content = format!("{left}QUOTE{right}");
        proptest::prop_assert_eq!(find::replace(&content, "QUOTE", "new", Occurrences::One), Ok(format!("{left}new{right}")));
    }
}
