//! What a call would be used on: what rules of permission are asked about, and what people see who must allow it.

use super::{Tool, apply_patch, batch, shell};
use domain::session::{OUTPUTS, WORKSPACE};
use serde_json::Value;

/// One thing that a call does, for rules of permission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Use {
    /// The name in rules: mostly the tool's.
    pub(crate) permission: &'static str,
    /// Commands, paths, agents. A rule must allow each.
    pub(crate) patterns: Vec<String>,
    /// What an answer "always" allows.
    pub(crate) always: Vec<String>,
    /// Whether the patterns do not say all: then every rule of this permission counts, whatever its pattern.
    pub(crate) is_unclear: bool,
}

impl Use {
    fn of(permission: &'static str, subject: impl Into<String>) -> Self {
        let subject: String = subject.into();
        // A wildcard in it is the model's, not the person's.
        let always = if subject.contains(['*', '?']) { vec![] } else { vec![subject.clone()] };
        Self { permission, patterns: vec![subject], always, is_unclear: false }
    }

    /// As [`Use::of`]; "always" is for every use.
    fn any(permission: &'static str, subject: impl Into<String>) -> Self {
        Self { always: vec!["*".to_owned()], ..Self::of(permission, subject) }
    }
}

/// The name of a rule about paths beside the workspace.
const EXTERNAL: &str = "external_directory";

impl Tool {
    /// The name of a tool in rules: whoever may edit may also write.
    pub(crate) fn permission(self) -> &'static str {
        match self {
            Self::ApplyPatch | Self::Edit | Self::MultiEdit | Self::Write => "edit",
            Self::Bash
            | Self::Batch
            | Self::Glob
            | Self::Grep
            | Self::List
            | Self::PlanExit
            | Self::Question
            | Self::Read
            | Self::Skill
            | Self::Task
            | Self::TodoRead
            | Self::TodoWrite
            | Self::WebFetch => self.name(),
        }
    }

    /// What a call with these arguments does.
    pub(crate) fn uses(self, input: &Value) -> Vec<Use> {
        let word = |key: &str| input.get(key).and_then(Value::as_str).unwrap_or("*");
        let name = self.permission();
        match self {
            Self::Bash => of_command(word("command"), input),
            // A patch that cannot be read changes nothing.
            Self::ApplyPatch => {
                let paths = apply_patch::paths(input);
                paths.iter().flat_map(|path| of_path(Use::any(name, inside(&absolute(path))))).collect()
            }
            Self::Batch => batch::uses(input),
            Self::WebFetch => vec![Use::any(name, word("url"))],
            Self::Edit | Self::MultiEdit | Self::Write => of_path(Use::any(name, inside(word("filePath")))),
            Self::Read => of_path(Use::any(name, inside(word("filePath")))),
            Self::List => of_path(Use::any(name, inside(word("path")))),
            Self::Glob | Self::Grep => vec![Use::any(name, word("pattern"))],
            Self::Skill => vec![Use::of(name, word("name"))],
            Self::Task => vec![Use::of(name, word("subagent_type"))],
            Self::PlanExit | Self::Question | Self::TodoRead | Self::TodoWrite => vec![Use::any(name, "*")],
        }
    }
}

fn of_command(command: &str, input: &Value) -> Vec<Use> {
    let found = shell::commands(command);
    let directory = input.get("workdir").and_then(Value::as_str).map(ToOwned::to_owned);
    let mut uses = vec![Use {
        permission: "bash",
        // What runs nothing is still a call.
        patterns: if found.patterns.is_empty() { vec![command.to_owned()] } else { found.patterns },
        // What is not understood is not allowed for ever.
        always: if found.is_unclear { vec![] } else { found.always },
        is_unclear: found.is_unclear,
    }];
    uses.extend(found.paths.iter().chain(&directory).filter_map(|path| outside(path)));
    uses
}

/// A use of a path, and of the directory outside the workspace that it is in.
fn of_path(used: Use) -> Vec<Use> {
    let beside = used.patterns.first().and_then(|path| outside(path));
    std::iter::once(used).chain(beside).collect()
}

/// A path as rules name it: relative to the workspace if it is in it.
fn inside(path: &str) -> String {
    let plain = normal(path);
    match plain.strip_prefix(WORKSPACE) {
        Some("") => ".".to_owned(),
        Some(rest) if rest.starts_with('/') => rest.trim_start_matches('/').to_owned(),
        Some(_) | None => plain,
    }
}

/// A path from the root, written in one way; others are relative to the workspace.
pub(super) fn absolute(path: &str) -> String {
    if path.starts_with('/') { normal(path) } else { normal(&format!("{WORKSPACE}/{path}")) }
}

/// The use of a directory outside the workspace.
fn outside(path: &str) -> Option<Use> {
    let plain = normal(path);
    let is_outside =
        plain.starts_with('/') && plain != WORKSPACE && !plain.starts_with(&format!("{WORKSPACE}/"));
    // What the session's own tools said is no other place.
    if plain.starts_with(&format!("{OUTPUTS}/")) {
        return None;
    }
    let climbs = plain == ".." || plain.starts_with("../") || plain.starts_with('~');
    let directory = plain.rsplit_once('/').map_or(plain.as_str(), |(directory, _)| directory);
    let pattern = format!("{directory}/*");
    let always = if directory.contains(['*', '?']) { vec![] } else { vec![pattern.clone()] };
    (is_outside || climbs).then(|| Use { always, ..Use::of(EXTERNAL, pattern) })
}

/// A path without `.`, `..` and doubled slashes, as far as its text tells. Links are the sandbox's affair.
fn normal(path: &str) -> String {
    let mut kept: Vec<&str> = vec![];
    for piece in path.split('/') {
        match piece {
            "" | "." => {}
            ".." if kept.last().is_some_and(|last| *last != "..") => drop(kept.pop()),
            ".." if path.starts_with('/') => {}
            piece => kept.push(piece),
        }
    }
    let joined = kept.join("/");
    if path.starts_with('/') { format!("/{joined}") } else { joined }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;
    use serde_json::json;

    fn check(tool: Tool, input: Value, want: &[(&str, &str)]) {
        let uses = tool.uses(&input);
        let have: Vec<(&str, &str)> = uses
            .iter()
            .flat_map(|used| used.patterns.iter().map(|pattern| (used.permission, pattern.as_str())))
            .collect();
        assert_eq!(have, want, "{input}");
    }

    #[test]
    fn files_are_named_as_in_the_repository() {
        check(Tool::Edit, json!({"filePath": "/workspace/src/a.rs"}), &[("edit", "src/a.rs")]);
        check(Tool::Write, json!({"filePath": "/workspace/./b/../.env"}), &[("edit", ".env")]);
        check(Tool::Read, json!({"filePath": "/workspace"}), &[("read", ".")]);
        check(
            Tool::Read,
            json!({"filePath": "/workspace/../etc/passwd"}),
            &[("read", "/etc/passwd"), ("external_directory", "/etc/*")],
        );
        check(
            Tool::Read,
            json!({"filePath": "/workspace2/a"}),
            &[("read", "/workspace2/a"), ("external_directory", "/workspace2/*")],
        );
        check(Tool::Read, json!({"filePath": "/run/sbx/out/a/output"}), &[("read", "/run/sbx/out/a/output")]);
        check(
            Tool::Read,
            json!({"filePath": "/run/sbx/out/../a"}),
            &[("read", "/run/sbx/a"), ("external_directory", "/run/sbx/*")],
        );
        check(Tool::Read, json!({}), &[("read", "*")]);
    }

    #[test]
    fn commands_are_named_one_by_one_with_where_they_reach() {
        check(
            Tool::Bash,
            json!({"command": "rm -r ../x && ls"}),
            &[("bash", "rm -r ../x"), ("bash", "ls"), ("external_directory", "../*")],
        );
        check(
            Tool::Bash,
            json!({"command": "make", "workdir": "/tmp/a"}),
            &[("bash", "make"), ("external_directory", "/tmp/*")],
        );
        assert!(Tool::Bash.uses(&json!({"command": "$X"}))[0].is_unclear);
        assert_eq!(Tool::Bash.uses(&json!({"command": "A=1"}))[0].patterns, ["A=1"]);
    }
}
