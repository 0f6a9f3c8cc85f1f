//! Reads `devcontainer.json`: its image, its variables and its commands. Flotilla builds no images, so a Dockerfile and Features have no effect.

use super::builder::{ProposalBuilder, items, members, scalar};
use crate::{
    node::{Content, KeyPath, Node},
    problem::{Problem, Problems, shown},
};
use domain::text::shell_word;

/// The checkout of the repository, for the variables of the format.
const FOLDERS: [(&str, &str); 2] =
    [("${containerWorkspaceFolder}", "/workspace"), ("${containerWorkspaceFolderBasename}", "workspace")];
/// The script for what runs before anything else, as root.
const SETUP: &str = "setup";
/// The commands in the order in which they run, each with the script that runs it. Only the last one runs at each start.
const COMMANDS: [(&str, &str); 4] = [
    ("onCreateCommand", SETUP),
    ("updateContentCommand", "install"),
    ("postCreateCommand", "install"),
    ("postStartCommand", "start"),
];
/// A setup is root already, and most images have no sudo. Its options have no meaning then.
const SUDO: &str = r#"sudo() { while [[ ${1-} == -* ]]; do if [[ $1 == -[ghpu] ]]; then shift; fi; shift; done; env "$@"; }; export -f sudo"#;
/// What says how an image is built.
const BUILDS: [&str; 5] = ["build", "dockerFile", "dockerComposeFile", "features", "context"];
/// Keys that are not about sandboxes.
const SILENT: [&str; 3] = ["$schema", "name", "customizations"];

/// Reads the root of the file.
///
/// # Errors
/// It is no object.
pub(super) fn read(root: &Node) -> Result<ProposalBuilder, Problems> {
    if !matches!(root.value, Content::Map(_)) {
        let (origin, path) = (root.origin.clone(), KeyPath::default());
        let (expected, found) = ("an object".to_owned(), shown(root));
        return Err(Problems::one(Problem { origin, path, expected, found }));
    }
    let mut builder = ProposalBuilder::new(root.origin.clone());
    add_commands(&mut builder, root);
    for entry in members(root) {
        let (key, node) = (&*entry.key, &entry.node);
        match key {
            "image" => builder.set("image", node.clone()),
            "containerEnv" | "remoteEnv" => read_variables(&mut builder, key, node),
            _ if COMMANDS.iter().any(|(command, _)| *command == key) => {}
            _ if SILENT.contains(&key) => {}
            _ if BUILDS.contains(&key) => {
                builder
                    .unused
                    .push(format!("{key}: Flotilla builds no images; build one in CI, and name it as image"));
            }
            _ => builder.leave_out(&format!("{key}: it has no effect")),
        }
    }
    Ok(builder)
}

fn read_variables(builder: &mut ProposalBuilder, key: &str, node: &Node) {
    for entry in members(node) {
        let name = &*entry.key;
        match scalar(&entry.node).map(|text| expand(&text)) {
            Some(text) if !text.contains("${") => {
                builder.set_variable(key, name, Node::text(entry.node.origin.clone(), text));
            }
            _ => builder.leave_out(&format!("{key}.{name}: its value depends on a machine")),
        }
    }
}

/// Adds the commands in the order in which they run.
fn add_commands(builder: &mut ProposalBuilder, root: &Node) {
    let has_image = members(root).iter().any(|entry| &*entry.key == "image");
    for (key, script) in COMMANDS {
        let Some(entry) = members(root).iter().find(|entry| &*entry.key == key) else { continue };
        if script == SETUP && !has_image {
            builder.leave_out(&format!("{key}: a setup needs an image"));
        } else {
            add_command(builder, key, script, &entry.node);
        }
    }
}

fn add_command(builder: &mut ProposalBuilder, key: &str, script: &str, node: &Node) {
    match command(node).map(|text| expand(&text)) {
        Some(text) if !text.trim().is_empty() => {
            let is_sudo = |word: &str| word.trim_matches(['\'', '"']) == "sudo";
            let has_sudo = script == SETUP && text.split_whitespace().any(is_sudo);
            let text = if has_sudo { format!("{SUDO}\n{text}") } else { text };
            builder.add_script(script, &node.origin, &text);
        }
        _ => builder.leave_out(&format!("{key}: it is no command")),
    }
}

/// A command is a text for a shell, a list of words, or an object of such commands.
fn command(node: &Node) -> Option<String> {
    match &node.value {
        Content::Text { text, .. } => Some(text.clone()),
        Content::List(_) => {
            let words: Option<Vec<_>> =
                items(node).iter().map(|word| word.as_text().map(shell_word)).collect();
            words.map(|words| words.join(" "))
        }
        Content::Map(_) => {
            let commands: Option<Vec<_>> = members(node).iter().map(|entry| command(&entry.node)).collect();
            commands.map(|commands| commands.join("\n"))
        }
        Content::Null | Content::Bool(_) | Content::Number(_) => None,
    }
}

fn expand(text: &str) -> String {
    FOLDERS.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
}
