//! The subjects of a call for permission rules, and for the person whom the session asks for permission.

use crate::tools::{
    batch,
    egress::network,
    files::apply_patch,
    path::{absolute, normal, relative},
    registry,
    tool::Tool,
};
use convert_client::{converter::TenantConverter, reply::Commands};
use domain::{
    egress::host::HostName,
    session::{OUTPUTS, WORKSPACE},
};
use serde_json::Value;
use std::borrow::Cow;

/// One action of a call, for permission rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Use {
    /// The name in rules, usually the tool's.
    pub(crate) permission: &'static str,
    /// Commands, paths or agents. Rules must allow each of them.
    pub(crate) patterns: Vec<String>,
    /// The patterns that an answer "always" allows.
    pub(crate) always: Vec<String>,
    /// Whether the patterns may be incomplete. Then every rule of this permission counts, whatever its pattern.
    pub(crate) is_unclear: bool,
}

impl Use {
    fn of(permission: &'static str, subject: impl Into<String>) -> Self {
        let subject: String = subject.into();
        // The model chose this text. A wildcard in it must not become a wildcard of the person's answer.
        let always = if subject.contains(['*', '?']) { vec![] } else { vec![subject.clone()] };
        Self { permission, patterns: vec![subject], always, is_unclear: false }
    }

    /// Like [`Use::of`], but "always" covers every use.
    fn any(permission: &'static str, subject: impl Into<String>) -> Self {
        Self { always: vec!["*".to_owned()], ..Self::of(permission, subject) }
    }
}

/// The permission for paths outside the workspace.
const EXTERNAL: &str = "external_directory";

/// A call as permission rules see it.
#[derive(Debug)]
pub(crate) struct Subject {
    /// Its tool and those of the calls inside it.
    pub(super) tools: Vec<Tool>,
    pub(super) uses: Vec<Use>,
}

impl Subject {
    /// Determines the subject of a call with these arguments. A shell command that cannot be read is unclear, and may reach any
    /// directory.
    pub(crate) async fn of(converter: TenantConverter<'_>, tool: Tool, input: &Value) -> Self {
        let calls = calls(tool, input);
        let lines = calls.iter().filter(|(tool, _)| *tool == Tool::Bash);
        let lines = lines.map(|(_, input)| word(input, "command").to_owned()).collect();
        Self::with(read(converter, lines).await, &calls)
    }

    /// The same if no shell command is read. No rule is milder to it than to what the commands are.
    pub(super) fn unread(tool: Tool, input: &Value) -> Self {
        Self::with(vec![], &calls(tool, input))
    }

    /// Whether shell commands are a part of it.
    pub(super) fn has_commands(&self) -> bool {
        self.tools.contains(&Tool::Bash)
    }

    /// The subject of a call and the calls inside it, whose shell command lines run these commands.
    fn with(commands: Vec<Commands>, calls: &[(Tool, Cow<'_, Value>)]) -> Self {
        let (mut commands, mut uses) = (commands.into_iter(), vec![]);
        for (tool, input) in calls {
            match tool {
                // It cannot run in a batch, so people are not asked about it.
                Tool::Network if calls.len() > 1 => {}
                Tool::Bash => uses.extend(of_commands(commands.next(), input)),
                other => uses.extend(of_call(*other, input)),
            }
        }
        Self { tools: calls.iter().map(|(tool, _)| *tool).collect(), uses }
    }
}

/// A call and the calls inside it, with their arguments.
fn calls(tool: Tool, input: &Value) -> Vec<(Tool, Cow<'_, Value>)> {
    let inner = if tool == Tool::Batch { batch::inner_calls(input) } else { vec![] };
    let known = inner
        .into_iter()
        .filter_map(|call| Some((registry::find(&call.tool).ok()?, Cow::Owned(call.parameters))));
    std::iter::once((tool, Cow::Borrowed(input))).chain(known).collect()
}

/// Reads shell command lines: one result for each, or none at all.
async fn read(converter: TenantConverter<'_>, lines: Vec<String>) -> Vec<Commands> {
    if lines.is_empty() {
        return vec![];
    }
    converter.commands(lines).await.unwrap_or_else(|error| {
        tracing::warn!(error.code = error.code(), "shell commands were not read: {error}");
        vec![]
    })
}

/// An argument of a call.
fn word<'a>(input: &'a Value, key: &str) -> &'a str {
    input.get(key).and_then(Value::as_str).unwrap_or("*")
}

/// The uses of a call that runs no shell command itself.
fn of_call(tool: Tool, input: &Value) -> Vec<Use> {
    let name = tool.permission();
    match tool {
        // Continues in `of_commands`; a batch has the uses of its calls.
        Tool::Bash | Tool::Batch => vec![],
        // A patch that cannot be parsed changes nothing.
        Tool::ApplyPatch => {
            let paths: Vec<String> =
                apply_patch::paths(input).iter().map(|path| relative(&absolute(path))).collect();
            let directories = paths.iter().filter_map(|path| outside(path)).collect::<Vec<_>>();
            // One use, so that a person sees every file that the patch changes.
            let changed = Use { patterns: paths.clone(), ..Use::any(name, "*") };
            (!paths.is_empty()).then_some(changed).into_iter().chain(directories).collect()
        }
        Tool::WebFetch => vec![Use::any(name, word(input, "url"))],
        Tool::Edit | Tool::MultiEdit | Tool::Write => {
            of_path(Use::any(name, relative(word(input, "filePath"))))
        }
        Tool::Read => of_path(Use::any(name, relative(word(input, "filePath")))),
        Tool::List => of_path(Use::any(name, relative(word(input, "path")))),
        Tool::Glob | Tool::Grep => vec![Use::any(name, word(input, "pattern"))],
        Tool::Network => vec![of_hosts(name, network::hosts(input))],
        Tool::Skill => vec![Use::of(name, word(input, "name"))],
        Tool::Task => vec![Use::of(name, word(input, "subagent_type"))],
        Tool::PlanExit | Tool::Question | Tool::TodoRead | Tool::TodoWrite => vec![Use::any(name, "*")],
    }
}

fn of_commands(found: Option<Commands>, input: &Value) -> Vec<Use> {
    let any_directory = Use { is_unclear: true, ..Use::of(EXTERNAL, "*") };
    let unread = found.is_none().then_some(any_directory);
    let found = found.unwrap_or_else(|| Commands::unclear(word(input, "command")));
    let directory = input.get("workdir").and_then(Value::as_str).map(ToOwned::to_owned);
    let mut uses = vec![Use {
        permission: "bash",
        // A line that runs no command is still a call.
        patterns: if found.patterns.is_empty() {
            vec![word(input, "command").to_owned()]
        } else {
            found.patterns
        },
        // An unclear command is never allowed "always".
        always: if found.is_unclear { vec![] } else { found.always },
        is_unclear: found.is_unclear,
    }];
    uses.extend(found.paths.iter().chain(&directory).filter_map(|path| outside(path)));
    uses.extend(unread);
    uses
}

/// The use of hosts; `None`: the call names something else, and fails when it runs.
fn of_hosts(permission: &'static str, hosts: Option<Vec<HostName>>) -> Use {
    let patterns: Vec<String> = hosts.into_iter().flatten().map(|host| host.to_string()).collect();
    Use { permission, always: patterns.clone(), patterns, is_unclear: false }
}

/// A use of a path and, if it is outside the workspace, of its directory.
fn of_path(used: Use) -> Vec<Use> {
    let directory = used.patterns.first().and_then(|path| outside(path));
    std::iter::once(used).chain(directory).collect()
}

/// The use of a directory outside the workspace.
fn outside(path: &str) -> Option<Use> {
    let plain = normal(path);
    let is_outside =
        plain.starts_with('/') && plain != WORKSPACE && !plain.starts_with(&format!("{WORKSPACE}/"));
    // The kept outputs of the session's own tools count as inside.
    if plain.starts_with(&format!("{OUTPUTS}/")) {
        return None;
    }
    let climbs = plain == ".." || plain.starts_with("../") || plain.starts_with('~');
    let directory = plain.rsplit_once('/').map_or(plain.as_str(), |(directory, _)| directory);
    let pattern = format!("{directory}/*");
    let always = if directory.contains(['*', '?']) { vec![] } else { vec![pattern.clone()] };
    (is_outside || climbs).then(|| Use { always, ..Use::of(EXTERNAL, pattern) })
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use serde_json::json;

    /// The subject of a call, for tests without a runtime.
    pub(in crate::calls) fn subject(tool: Tool, input: &Value) -> Subject {
        let program = chassis::programs::find(convert_client::converter::PROGRAM).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let converter = convert_client::converter::Converter::new(program);
        let tenant = domain::ids::TenantId(uuid::Uuid::nil());
        runtime.block_on(Subject::of(converter.of(tenant), tool, input))
    }

    fn check(tool: Tool, input: Value, want: &[(&str, &str)]) {
        let uses = subject(tool, &input).uses;
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
        assert!(subject(Tool::Bash, &json!({"command": "$X"})).uses[0].is_unclear);
        let unread = of_commands(None, &json!({"command": "ls"}));
        let names: Vec<_> = unread.iter().map(|used| (used.permission, used.is_unclear)).collect();
        assert_eq!(names, [("bash", true), ("external_directory", true)]);
        assert_eq!(subject(Tool::Bash, &json!({"command": "A=1"})).uses[0].patterns, ["A=1"]);
    }
}
