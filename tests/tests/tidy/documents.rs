//! The documents: they exist, and the paths, links, tests and metrics that they name exist.

use crate::{conclude, root};
use serde_json::Value;
use std::fs;

const DOCUMENTS: [&str; 4] = ["README.md", "ARCHITECTURE.md", "STYLE.md", "CHANGELOG.md"];

#[test]
fn the_documents_exist() {
    let is_filled =
        |name: &&&str| fs::read_to_string(root().join(name)).is_ok_and(|text| !text.trim().is_empty());
    let missing = DOCUMENTS.iter().filter(|name| !is_filled(name));
    let complaints: Vec<_> = missing.map(|name| format!("{name} is missing or empty")).collect();
    conclude(DOCUMENTS.len(), &complaints);
}

/// Reads the documents at the root and below `docs`.
fn documents() -> Vec<crate::File> {
    let is_document =
        |file: &crate::File| file.has_extension("md") && (!file.path.contains('/') || file.is_in("docs"));
    crate::files().into_iter().filter(is_document).collect()
}

#[test]
fn the_paths_in_the_documents_exist() {
    let (mut checked, mut complaints) = (0, vec![]);
    for document in
        documents().iter().filter(|document| !["CHANGELOG.md", "STYLE.md"].contains(&document.path.as_str()))
    {
        let paths: Vec<_> = quoted(&document.text).into_iter().filter(|word| is_path(word)).collect();
        checked += paths.len();
        let missing = paths.iter().filter(|path| !root().join(path).exists());
        complaints
            .extend(missing.map(|path| format!("{} names `{path}`, which does not exist", document.path)));
    }
    conclude(checked, &complaints);
}

/// The target of every link to a file exists.
#[test]
fn the_links_in_the_documents_resolve() {
    let (mut checked, mut complaints) = (0, vec![]);
    for document in documents() {
        let folder = root().join(&document.path).parent().unwrap().to_owned();
        let links = document.text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.contains("://") && !link.starts_with('#')) {
            checked += 1;
            if !folder.join(link).exists() {
                complaints.push(format!("{} links to {link}, which does not exist", document.path));
            }
        }
    }
    conclude(checked, &complaints);
}

#[test]
fn the_architecture_is_short() {
    const LINES_MAX: usize = 200;
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap_or_default();
    assert!(text.lines().count() <= LINES_MAX, "ARCHITECTURE.md has more than {LINES_MAX} lines");
}

#[test]
fn the_lines_of_the_first_documents_are_short() {
    const CHARACTERS_MAX: usize = 120;
    let (mut checked, mut complaints) = (0, vec![]);
    for name in ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"] {
        let text = fs::read_to_string(root().join(name)).unwrap_or_default();
        checked += text.lines().count();
        let long = text.lines().enumerate().filter(|(_, line)| line.chars().count() > CHARACTERS_MAX);
        complaints.extend(
            long.map(|(at, _)| format!("{name}:{} has more than {CHARACTERS_MAX} characters", at + 1)),
        );
    }
    conclude(checked, &complaints);
}

/// ARCHITECTURE.md numbers the invariants, and `tests/INVARIANTS.md` has a section with tests for each of them.
#[test]
fn each_invariant_has_tests_that_exist() {
    const PAGE: &str = "tests/INVARIANTS.md";
    let read = |name: &str| fs::read_to_string(root().join(name)).unwrap_or_default();
    let (architecture, page) = (read("ARCHITECTURE.md"), read(PAGE));
    let (_, invariants) = architecture.split_once("\n## Invariants\n").expect("a section about invariants");
    let invariants = invariants.split("\n## ").next().unwrap_or_default();
    let stated: Vec<_> = invariants.lines().filter_map(number).collect();
    let sections: Vec<_> = page.split("\n## ").skip(1).collect();
    let held: Vec<_> = sections.iter().filter_map(|section| number(section)).collect();
    assert_eq!(held, stated, "{PAGE} has a section for each invariant");
    let sources = crate::files();
    let exists = |name: &str| {
        let definition = format!("fn {name}()");
        let is_defined = |file: &crate::File| file.has_extension("rs") && file.text.contains(&definition);
        if name.contains('/') { root().join(name).exists() } else { sources.iter().any(is_defined) }
    };
    let (mut checked, mut complaints) = (0, vec![]);
    for (number, section) in held.iter().zip(sections) {
        let listed = section.lines().filter_map(|line| line.strip_prefix("- `")?.strip_suffix('`'));
        let names: Vec<_> = listed.collect();
        checked += names.len();
        if names.is_empty() {
            complaints.push(format!("{PAGE} names no test of invariant {number}"));
        }
        let missing = names.into_iter().filter(|name| !exists(name));
        complaints.extend(missing.map(|name| format!("{PAGE} names {name}, which does not exist")));
    }
    conclude(checked, &complaints);
}

/// Parses the number at the beginning of an item of a numbered list, or of a numbered title.
fn number(line: &str) -> Option<u32> {
    let (number, _) = line.split_once(". ")?;
    number.parse().ok()
}

/// An alert on a metric that no service exports never fires.
#[test]
fn the_metrics_of_the_alerts_are_exported() {
    let alerts = fs::read_to_string(root().join("deploy/alerts.yml")).unwrap_or_default();
    let expressions = alerts.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = expressions.flat_map(|line| line.split(move |c| !is_name(c)));
    let metrics: Vec<_> = words.filter(|word| word.starts_with("flotilla_")).collect();
    let sources: Vec<_> = crate::files()
        .into_iter()
        .filter(|file| {
            ["cli", "crates", "services"].iter().any(|dir| file.is_in(dir)) && file.has_extension("rs")
        })
        .collect();
    let is_exported = |metric: &str| {
        ["gauge!", "counter!", "histogram!"].iter().any(|kind| {
            let call = format!("{kind}(\"{metric}\"");
            sources.iter().any(|file| file.text.contains(&call))
        })
    };
    let complaints: Vec<_> = metrics
        .iter()
        .filter(|metric| !is_exported(metric))
        .map(|metric| format!("deploy/alerts.yml watches {metric}, which no service exports"))
        .collect();
    conclude(metrics.len(), &complaints);
}

/// Lists the words in single backticks, line by line, outside of fenced blocks.
fn quoted(text: &str) -> Vec<&str> {
    let mut is_fenced = false;
    let outside = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fenced && !is_fence
    });
    outside.flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

/// Returns whether a word starts with a directory of the workspace or has the extension of a source file.
fn is_path(word: &str) -> bool {
    let is_plain = word.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-/".contains(&b));
    let is_ours = ["cli/", "crates/", "services/", "proto/", "migrations/", "deploy/", "web/", "tests/"];
    let is_file = [".rs", ".sql", ".proto", ".md"];
    is_plain
        && (is_ours.iter().any(|dir| word.starts_with(dir)) || is_file.iter().any(|end| word.ends_with(end)))
}

#[test]
fn paths_are_distinguished_from_other_words() {
    let text = "See `crates/bus` and `a b/c.rs`, not `epoch`.\n```\n`x/fenced.rs`\n```\n| `x/y.rs` |";
    let words = quoted(text);
    assert_eq!(words, ["crates/bus", "a b/c.rs", "epoch", "x/y.rs"]);
    assert_eq!(words.into_iter().filter(|word| is_path(word)).collect::<Vec<_>>(), ["crates/bus", "x/y.rs"]);
}

/// The table of the differences in tool calls is the list that the test of tool calls reads. To write it again:
/// `FLOTILLA_WRITE_DOCUMENTS=1 cargo nextest run -E 'test(the_document_of_events)'`.
#[test]
fn the_document_of_events_lists_the_differences_of_tool_calls() {
    const DOCUMENT: &str = "docs/events.md";
    const LIST: &str = "tests/tests/suite/opencode/calls/differences.json";
    const HEAD: &str = "| tool | state | field | who has it | Flotilla differs on purpose, because |\n|---|---|---|---|---|\n";
    let rows: Vec<Value> = serde_json::from_str(&fs::read_to_string(root().join(LIST)).unwrap()).unwrap();
    let words = |value: &Value, mark: &str| {
        let words: Vec<_> = value
            .as_array()
            .unwrap()
            .iter()
            .map(|word| format!("{mark}{}{mark}", word.as_str().unwrap()))
            .collect();
        words.join(", ")
    };
    let line = |row: &Value| {
        let who = match row["difference"].as_str().unwrap() {
            "missing" => "OpenCode",
            "added" => "Flotilla",
            "value" => "both, with other values",
            other => panic!("{other}"),
        };
        let (tools, fields) = (words(&row["tools"], ""), words(&row["fields"], "`"));
        let (state, because) = (row["state"].as_str().unwrap(), row["because"].as_str().unwrap());
        format!("| {tools} | {state} | {fields} | {who} | {because} |\n")
    };
    let table: String = rows.iter().map(line).collect();
    let text = fs::read_to_string(root().join(DOCUMENT)).unwrap();
    let (before, rest) = text.split_once(HEAD).expect("the head of the table");
    let (_, after) = rest.split_once("\n## ").expect("a section after the table");
    let current = format!("{before}{HEAD}{table}\n## {after}");
    if std::env::var_os("FLOTILLA_WRITE_DOCUMENTS").is_some() {
        fs::write(root().join(DOCUMENT), &current).unwrap();
    }
    let is_current = fs::read_to_string(root().join(DOCUMENT)).unwrap() == current;
    assert!(is_current, "{DOCUMENT} is out of date; the doc of this test says how to write it");
    assert!(!rows.is_empty(), "there are differences");
}
