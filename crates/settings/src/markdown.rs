//! Agents and commands in Markdown: front matter with their settings, and a body that is the prompt.
//!
//! ```text
//! ---
//! description: reviews changes
//! permission:
//!   edit: deny
//! ---
//! You review.
//! ```

use crate::{
    node::{Content, Member, Node, Origin},
    problem::Problems,
    syntax::{
        builder::{Builder, Object},
        yaml,
    },
};
use domain::policy::level::Level;
use std::sync::Arc;

/// The subject of a Markdown file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An agent; the body is its prompt.
    Agent,
    /// An agent for prompts, in OpenCode's older form; the body is its prompt.
    Mode,
    /// A command; the body is its template.
    Command,
}

impl Kind {
    /// Its key in settings, and the key of the body.
    fn keys(self) -> (&'static str, &'static str) {
        match self {
            Self::Agent => ("agent", "prompt"),
            Self::Mode => ("mode", "prompt"),
            Self::Command => ("command", "template"),
        }
    }
}

/// The agent or command that a file describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subject<'a> {
    /// Whether it is an agent, a mode or a command.
    pub kind: Kind,
    pub name: &'a str,
}

/// Returns the subject for a path: `.opencode/agent/team/review.md` is the agent `team/review`.
pub fn subject_of(path: &str) -> Option<Subject<'_>> {
    let dir = ".opencode/";
    let at = path.match_indices(dir).map(|(at, _)| at).find(|at| *at == 0 || path[..*at].ends_with('/'))?;
    let (folder, rest) = path[at + dir.len()..].split_once('/')?;
    let kind = match folder {
        "agent" | "agents" => Kind::Agent,
        "mode" | "modes" => Kind::Mode,
        "command" | "commands" => Kind::Command,
        _ => return None,
    };
    let name = rest.strip_suffix(".md")?;
    (!name.is_empty() && !name.ends_with('/')).then_some(Subject { kind, name })
}

/// Returns the strings at the top level of a file's front matter, by key, and skips other values. For files that are not
/// settings.
pub fn texts(text: &str) -> Vec<(String, String)> {
    let origin = Origin { level: Level::Repository, file: Arc::from(""), line: 1, column: 1 };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines: Vec<_> = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).collect();
    let is_fence = |line: &&str| line.trim_end() == "---";
    let length = lines[1..].iter().position(is_fence).filter(|_| is_fence(&lines[0]));
    let Some(length) = length else { return vec![] };
    let node = yaml::front_matter(&mut Builder::new(), &origin, &lines[1..=length]).node(origin.clone());
    let Content::Map(entries) = node.value else { return vec![] };
    let text = |entry: Member| match entry.node.value {
        Content::Text { text, .. } => Some((entry.key.to_string(), text)),
        Content::Null | Content::Bool(_) | Content::Number(_) | Content::List(_) | Content::Map(_) => None,
    };
    entries.into_iter().filter_map(text).collect()
}

/// Parses `text`, which begins at `start`, as the settings of one agent or command.
///
/// # Errors
/// All mistakes in the front matter.
pub(crate) fn parse(start: &Origin, subject: Subject<'_>, text: &str) -> Result<Node, Problems> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines: Vec<_> = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).collect();
    let is_fence = |line: &&str| line.trim_end() == "---";
    let mut builder = Builder::new();
    let (mut object, mut body_at) = (Object::default(), 0);
    if is_fence(&lines[0]) {
        match lines[1..].iter().position(is_fence) {
            Some(length) => {
                object = yaml::front_matter(&mut builder, start, &lines[1..=length]);
                body_at = length + 2;
            }
            None => {
                builder.complain(start, "front matter between two lines \"---\"".into(), "one line".into())
            }
        }
    }
    let (agents, prompt) = subject.kind.keys();
    let body = lines.get(body_at..).unwrap_or_default();
    if let Some(first) = body.iter().position(|line| !line.trim().is_empty()) {
        let origin = yaml::place(start, body_at + first, 0);
        let text = builder.text(origin.clone(), body.join("\n").trim().to_owned());
        builder.insert(&mut object, Member { key: Arc::from(prompt), origin, node: text });
    }
    let mut wrap = |key: &str, object: Object| {
        let mut outer = Object::default();
        let node = object.node(start.clone());
        builder.insert(&mut outer, Member { key: Arc::from(key), origin: start.clone(), node });
        outer
    };
    let named = wrap(subject.name, object);
    let root = wrap(agents, named).node(start.clone());
    builder.problems.or(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_other_files_are_found_among_what_settings_refuse() {
        let text = "---\r\nname: pdf\r\nallowed-tools: [Read, Grep]\r\nmetadata:\r\n  version: 1\r\ndescription: >\r\n  reads\r\n  PDF\r\n---\r\nbody";
        let texts = texts(text);
        let find = |key: &str| texts.iter().find(|(name, _)| name == key).map(|(_, text)| text.trim());
        assert_eq!((find("name"), find("description")), (Some("pdf"), Some("reads PDF")));
        for text in ["", "---", "name: x", "---\nname: x\n", "----\nname: x\n---"] {
            assert!(super::texts(text).is_empty(), "{text:?}");
        }
    }
}
