//! The environment that a repository proposes: an image, scripts, variables and hosts. It has no effect before an admin allows it, because
//! people who may push to the repository must not choose what its sessions run in. Hosts alone narrow what others allow at once.
//!
//! The first of these files that describes an environment counts: `.flotilla/config.yaml`, `.devcontainer/devcontainer.json`,
//! `.devcontainer.json`, `.github/workflows/copilot-setup-steps.yml`.

mod builder;
mod copilot;
mod devcontainer;

use crate::{
    Settings,
    document::Document,
    merge::merge,
    node::{Content, KeyPath, Member, Node, Step},
    problem::{Problem, Problems},
    substitute::Refusal,
};
use builder::ProposalBuilder;
use domain::{
    policy::{level::Level, reference::Reference},
    session::{Source, repository_name},
};
use serde_json::{Map, Value};
use std::sync::Arc;

/// The file that is written for Flotilla.
pub const FILE: &str = ".flotilla/config.yaml";
/// The JSON schema of this file, for editors.
pub const SCHEMA: &str = include_str!("proposal/config.schema.json");
/// All files that can describe an environment, the one that counts first.
pub const FILES: [&str; 4] = [
    FILE,
    ".devcontainer/devcontainer.json",
    ".devcontainer.json",
    ".github/workflows/copilot-setup-steps.yml",
];

const ENVIRONMENT: &str = "environment";

/// An environment that a repository proposes.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    pub file: String,
    /// `{"environment":{…}}` with sorted keys. Two files that mean the same have the same document.
    pub document: String,
    /// Sentences about what the file has and Flotilla does not use.
    pub unused: Vec<String>,
    /// The same as `document`, with the lines of the file.
    pub located: Document,
}

impl Proposal {
    /// The name of the repository that the files of `source` are from, if decisions about the proposal count in all projects of this repository. `None`: its scripts
    /// would get secrets, which belong to a project, or no repository is known. `above` are the settings above the repository.
    pub fn shared_repository(&self, source: &Source, above: &Settings) -> Option<String> {
        let gets_secrets = self.names_secrets() || !above.secrets.is_empty();
        source.push_url().filter(|_| !gets_secrets).and_then(repository_name)
    }

    /// Whether it names secrets: for its scripts, or for the registry of its image.
    fn names_secrets(&self) -> bool {
        let document: Value = serde_json::from_str(&self.document).unwrap_or_default();
        let environment = &document[ENVIRONMENT];
        ["secrets", "image_credential"].iter().any(|key| !environment[*key].is_null())
    }
}

/// Finds the environment that `files`, each with its path, propose.
///
/// # Errors
/// All mistakes of the file that counts.
pub fn find(files: &[(&str, &str)]) -> Result<Option<Proposal>, Problems> {
    for path in FILES {
        let Some((_, text)) = files.iter().find(|(other, _)| *other == path) else { continue };
        let builder = match path {
            FILE => ProposalBuilder::of_config(&parse(Level::Environment, text)?)?,
            _ if path.ends_with(".json") => {
                devcontainer::read(&Document::json(Level::Environment, path, text)?.root)?
            }
            _ => copilot::read(&Document::yaml(Level::Environment, path, text)?.root),
        };
        if !builder.is_empty() {
            return propose(path, text.len(), builder).map(Some);
        }
    }
    Ok(None)
}

/// What `.flotilla/config.yaml` restricts, whether or not an admin has allowed the rest: the hosts of sessions.
///
/// # Errors
/// One syntax error, or the mistakes in the restrictions.
pub(crate) fn restrictions(text: &str) -> Result<Document, Problems> {
    let mut document = parse(Level::Repository, text)?;
    document.keep(&[&[ENVIRONMENT], &["network"], &["allow", "ask"]]);
    merge(std::slice::from_ref(&document))?;
    Ok(document)
}

fn parse(level: Level, text: &str) -> Result<Document, Problems> {
    let mut document = Document::yaml(level, FILE, text)?;
    // If everything below a key is a comment, its value is null.
    if let Content::Map(entries) = &mut document.root.value {
        entries.retain(|entry| &*entry.key != ENVIRONMENT || entry.node.value != Content::Null);
    }
    Ok(document)
}

/// Checks what a builder has gathered as settings.
fn propose(file: &str, bytes: usize, builder: ProposalBuilder) -> Result<Proposal, Problems> {
    let ProposalBuilder { environment, unused } = builder;
    let origin = environment.origin.clone();
    let entry = Member { key: Arc::from(ENVIRONMENT), origin: origin.clone(), node: environment };
    let root = Node { origin, value: Content::Map(vec![entry]) };
    let mut located = Document { level: Level::Environment, file: Arc::from(file), bytes, root };
    located.substitute(&mut refuse_reference)?;
    merge(std::slice::from_ref(&located))?;
    let document = sorted(located.root.to_json()).to_string();
    // As large as what the store has of it: both count the same in the limits of all files.
    located.bytes = document.len();
    Ok(Proposal { file: file.to_owned(), document, unused, located })
}

/// Refuses every reference: people who may push to the repository must not read variables and files of a service.
pub(crate) fn refuse_reference(_: Reference<'_>) -> Result<String, Refusal> {
    Err(Refusal("the environment of a repository cannot refer to variables and files".to_owned()))
}

/// The same value with the keys of all objects sorted.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            members.sort_by(|(a, _), (b, _)| a.cmp(b));
            Value::Object(Map::from_iter(members))
        }
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        other => other,
    }
}

impl ProposalBuilder {
    /// Takes `environment` from a file that is written for Flotilla.
    fn of_config(document: &Document) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let mut builder = Self::new(document.root.origin.clone());
        for entry in builder::members(&document.root) {
            match &*entry.key {
                ENVIRONMENT => builder.environment = entry.node.clone(),
                _ => problems.push(Problem {
                    origin: entry.origin.clone(),
                    path: KeyPath(vec![Step::Key(Arc::clone(&entry.key))]),
                    expected: ENVIRONMENT.to_owned(),
                    found: "an unknown key".to_owned(),
                }),
            }
        }
        problems.or(builder)
    }
}
