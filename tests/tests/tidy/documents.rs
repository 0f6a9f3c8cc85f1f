//! The documents: there, and true about where things are.

use crate::{conclude, root};
use std::fs;

const DOCUMENTS: [&str; 4] = ["README.md", "ARCHITECTURE.md", "STYLE.md", "CHANGELOG.md"];

#[test]
fn the_documents_are_there() {
    let empty =
        |name: &&&str| fs::read_to_string(root().join(name)).is_ok_and(|text| !text.trim().is_empty());
    let missing = DOCUMENTS.iter().filter(|name| !empty(name));
    let complaints: Vec<_> = missing.map(|name| format!("{name} is missing or empty")).collect();
    conclude(DOCUMENTS.len(), &complaints);
}

#[test]
fn the_paths_in_the_architecture_exist() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap_or_default();
    let paths: Vec<_> = quoted(&text).into_iter().filter(|word| is_path(word)).collect();
    let gone = paths.iter().filter(|path| !root().join(path).exists());
    let complaints: Vec<_> =
        gone.map(|path| format!("ARCHITECTURE.md names `{path}`, which does not exist")).collect();
    conclude(paths.len(), &complaints);
}

/// An alert on a number that nobody shows never fires.
#[test]
fn the_metrics_of_the_alerts_are_shown() {
    let alerts = fs::read_to_string(root().join("deploy/alerts.yml")).unwrap_or_default();
    let expressions = alerts.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = expressions.flat_map(|line| line.split(move |c| !is_name(c)));
    let metrics: Vec<_> = words.filter(|word| word.starts_with("flotilla_")).collect();
    let sources: Vec<_> = crate::files()
        .into_iter()
        .filter(|file| file.is_in("services") && file.has_extension("rs"))
        .collect();
    let shows = |metric: &str| {
        ["gauge!", "counter!", "histogram!"].iter().any(|kind| {
            let call = format!("{kind}(\"{metric}\"");
            sources.iter().any(|file| file.text.contains(&call))
        })
    };
    let complaints: Vec<_> = metrics
        .iter()
        .filter(|metric| !shows(metric))
        .map(|metric| format!("deploy/alerts.yml watches {metric}, which no service shows"))
        .collect();
    conclude(metrics.len(), &complaints);
}

/// What stands between single backticks, line by line, outside of fenced blocks.
fn quoted(text: &str) -> Vec<&str> {
    let mut is_fenced = false;
    let outside = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fenced && !is_fence
    });
    outside.flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

/// Whether a word begins with one of our directories, or has the form of a file.
fn is_path(word: &str) -> bool {
    let is_plain = word.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-/".contains(&b));
    let is_ours = ["crates/", "services/", "proto/", "migrations/", "deploy/", "web/", "tests/"];
    let is_file = [".rs", ".sql", ".proto", ".md"];
    is_plain
        && (is_ours.iter().any(|dir| word.starts_with(dir)) || is_file.iter().any(|end| word.ends_with(end)))
}

#[test]
fn paths_are_told_from_other_words() {
    let text = "See `crates/bus` and `a b/c.rs`, not `epoch`.\n```\n`x/fenced.rs`\n```\n| `x/y.rs` |";
    let words = quoted(text);
    assert_eq!(words, ["crates/bus", "a b/c.rs", "epoch", "x/y.rs"]);
    assert_eq!(words.into_iter().filter(|word| is_path(word)).collect::<Vec<_>>(), ["crates/bus", "x/y.rs"]);
}
