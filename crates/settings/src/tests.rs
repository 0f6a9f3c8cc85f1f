#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod environments;
mod files;
mod levels;
mod proposals;

use crate::{
    Settings,
    document::Document,
    markdown::{Kind, Subject},
    merge::{MergedSettings, merge},
};
use domain::policy::level::Level;

/// One `opencode.json` of a repository.
fn json(text: &str) -> Document {
    at(Level::Repository, text)
}

fn at(level: Level, text: &str) -> Document {
    Document::json(level, "opencode.json", text).unwrap()
}

fn merged(documents: &[Document]) -> MergedSettings {
    merge(documents).unwrap_or_else(|problems| panic!("{problems}"))
}

fn settings(text: &str) -> Settings {
    merged(&[json(text)]).settings
}

/// Everything that is wrong with a text, line by line.
fn problems(text: &str) -> String {
    let document = Document::json(Level::Repository, "opencode.json", text);
    document.and_then(|document| merge(&[document])).map(|_| ()).unwrap_err().to_string()
}

fn agent(text: &str) -> Result<Settings, String> {
    let document =
        Document::markdown(Level::Repository, "a.md", Subject { kind: Kind::Agent, name: "a" }, text);
    let merged = document.and_then(|document| merge(&[document]));
    merged.map(|merged| merged.settings).map_err(|problems| problems.to_string())
}
