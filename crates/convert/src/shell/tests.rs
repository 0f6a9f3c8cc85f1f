#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;

fn check(text: &str, patterns: &[&str], always: &[&str]) {
    let found = commands(text);
    assert_eq!((found.patterns, found.always), (strings(patterns), strings(always)), "{text}");
    assert!(!found.is_unclear, "{text}");
}

fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn every_simple_command_is_found() {
    check("ls", &["ls"], &["ls *"]);
    check("git   commit -m 'a b'", &["git commit -m a b"], &["git commit *"]);
    check("cd /x && rm -rf y; echo done", &["cd /x", "rm -rf y", "echo done"], &["cd *", "rm *", "echo *"]);
    check("cat a | grep b > c 2>&1", &["cat a", "grep b"], &["cat *", "grep *"]);
    check("for f in *; do rm \"$f\"; done", &["rm \"$f\""], &["rm *"]);
    check("if test -e a; then make b; fi", &["test -e a", "make b"], &["test *", "make b *"]);
    check(
        "echo $(curl x) `wget y`",
        &["echo $(curl x) `wget y`", "curl x", "wget y"],
        &["echo *", "curl *", "wget *"],
    );
    check("f() { rm a; }; f", &["rm a", "f"], &["rm *", "f *"]);
    check("A=1 B=2 make", &["make"], &["make *"]);
    check(
        "diff <(sort a) <(sort b)",
        &["diff <(sort a) <(sort b)", "sort a", "sort b"],
        &["diff *", "sort *"],
    );
    check("export A=1", &["export A=1"], &["export *"]);
    check("cat <<EOF\nrm -rf /\nEOF", &["cat"], &["cat *"]);
    check("(sleep 1; rm a) &", &["sleep 1", "rm a"], &["sleep *", "rm *"]);
}

#[test]
fn a_name_in_disguise_is_the_name() {
    for text in ["rm a", "\"rm\" a", "'rm' a", "r\"m\" a", "\\rm a", "/bin/rm a"] {
        check(text, &["rm a"], &["rm *"]);
    }
    // A continued line: as the grammar reads it, and as bash does. In a comment it is none.
    check("r\\\nm a", &["r m a", "rm a"], &["r *", "rm *"]);
    check("ls \\\n -l", &["ls -l"], &["ls *"]);
    check("# x \\\nrm a", &["rm a"], &["rm *"]);
}

#[test]
fn a_command_that_runs_another_is_both() {
    check("env A=1 rm b", &["env A=1 rm b", "rm b"], &["env *", "rm *"]);
    check(
        "timeout -k 5 10s npm run build",
        &["timeout -k 5 10s npm run build", "npm run build"],
        &["timeout *", "npm run build *"],
    );
    check(
        "bash -lc 'git push && rm a'",
        &["bash -lc git push && rm a", "git push", "rm a"],
        &["bash *", "git push *", "rm *"],
    );
    check("eval \"rm a\"", &["eval rm a", "rm a"], &["eval *", "rm *"]);
    check(
        "find . -name x -exec rm {} \\;",
        &["find . -name x -exec rm {} ;", "rm {} ;"],
        &["find *", "rm *"],
    );
    check("ls | xargs -n 1 rm", &["ls", "xargs -n 1 rm", "rm"], &["ls *", "xargs *", "rm *"]);
}

#[test]
fn what_only_the_shell_knows_is_unclear() {
    for text in [
        "$RM a",
        "$(echo rm) a",
        "bash -c \"$X\"",
        "eval $X",
        "if then fi )",
        "echo 'unfinished",
        "bash -c \"bash -c \\\"bash -c 'bash -c \\\\\\\"eval eval eval eval eval rm a\\\\\\\"'\\\"\"",
    ] {
        assert!(commands(text).is_unclear, "{text}: {:?}", commands(text));
        assert!(!commands(text).patterns.is_empty(), "{text}");
    }
    let long = format!("echo {}", "x".repeat(PARSED_BYTES_MAX));
    let found = commands(&long);
    assert!(found.is_unclear && found.patterns[0].len() <= PATTERN_BYTES_MAX);
    let deep = format!("{}rm a{}", "(".repeat(3000), ")".repeat(3000));
    assert!(commands(&deep).is_unclear);
}

#[test]
fn nothing_runs_nothing() {
    for text in ["", "  \n", "# a comment", "A=1", "[[ -e a ]]"] {
        let found = commands(text);
        assert!(found.patterns.is_empty() && !found.is_unclear, "{text}: {found:?}");
    }
}

#[test]
fn paths_are_those_of_commands_on_files() {
    assert_eq!(commands("cp -r a /etc/x && ls /b").paths, ["a", "/etc/x"]);
    assert_eq!(commands("chmod +x a").paths, ["a"]);
}

#[test]
fn always_names_what_is_done() {
    for (text, always) in [
        ("git -C a push", "git *"),
        ("git stash pop", "git stash pop *"),
        ("npm run build -- --x", "npm run build *"),
        ("npm install", "npm install *"),
        ("python -m pytest -q", "python -m pytest *"),
        ("python a.py", "python *"),
        ("docker compose up -d", "docker compose up *"),
        ("cargo test --workspace", "cargo test *"),
    ] {
        assert_eq!(commands(text).always, [always], "{text}");
    }
}

#[test]
fn other_letters_are_parts_of_words() {
    let check = |text: &str, want: &[&str]| {
        let found = commands(text);
        assert_eq!(
            (&found.patterns[..], found.is_unclear),
            (&want.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>()[..], false),
            "{text}"
        );
    };
    check("echo žluťoučký && rm 'ü b'", &["echo žluťoučký", "rm ü b"]);
    check("naïve --all; ls 日本語/*.rs", &["naïve --all", "ls 日本語/*.rs"]);
    // No variable: bash runs it.
    check("é=1 ls", &["é=1 ls"]);
    assert_eq!(masked("aé日").len(), "aé日".len());
    for crashed in [
        "/pLo[\u{199f}{\u{2d581}",
        "\u{1ee57}lO$g/\u{239fb}O\\\u{23176}\u{a796}Z:\u{1fa2d}1Vu#3pL\u{21261}o[\u{699f}{\u{2d581}",
    ] {
        assert!(!commands(crashed).patterns.is_empty());
    }
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_without_a_panic(text in "\\PC{0,60}") {
        commands(&text);
    }
}
