//! Reads a whole tree of settings: agents, commands, instructions and the rest.

use crate::{
    Agent, Compaction, LostWorkspace, Settings, SubtaskFiles, ToolOutput,
    meaning::{
        reader::{Reader, TextList},
        rules::{self, AGENT_RULES, ROOT_RULES, RuleLists},
    },
    models::Models,
    node::{Content, Node},
    problem::shown_text,
};
use domain::{
    conversation::{command::Command, message::ModelRef},
    limits::{PATH_BYTES_MAX, SETTINGS_AGENTS_MAX, SETTINGS_INSTRUCTIONS_MAX},
    policy::agent::Mode,
};

/// Commands of one project. Beyond it: `settings_invalid` or `config_invalid`.
const SETTINGS_COMMANDS_MAX: usize = 200;
/// Largest number of bytes of a tool's output that settings may send to the model. Beyond it: `settings_invalid` or `config_invalid`.
const SETTINGS_TOOL_OUTPUT_BYTES_MAX: u64 = 1024 * 1024;
/// Largest number of lines of a tool's output that settings may send to the model. Beyond it: `settings_invalid` or `config_invalid`.
const SETTINGS_TOOL_OUTPUT_LINES_MAX: u64 = 50_000;

/// Keys that have an effect in Flotilla.
pub(crate) const KNOWN: [&str; 19] = [
    "agent",
    "command",
    "compaction",
    "default_agent",
    "disabled_providers",
    "enabled_providers",
    "environment",
    "instructions",
    "lost_workspace",
    "mode",
    "model",
    "permission",
    "permissions",
    "provider",
    "small_model",
    "snapshot",
    "subagent_depth",
    "tool_output",
    "tools",
];
/// Keys of OpenCode that have no effect in Flotilla: accepted and reported.
const IGNORED: [&str; 23] = [
    "$schema",
    "attachment",
    "autoshare",
    "autoupdate",
    "enterprise",
    "experimental",
    "formatter",
    "keybinds",
    "layout",
    "logLevel",
    "lsp",
    "mcp",
    "plugin",
    "reference",
    "references",
    "server",
    "share",
    "shell",
    "skills",
    "theme",
    "tui",
    "username",
    "watcher",
];

impl Reader {
    pub(crate) fn settings(&mut self, root: &Node) -> Settings {
        let mut settings = Settings::default();
        let (mut lists, mut models) = (RuleLists::default(), Models::default());
        self.fields(root, |reader, entry| {
            let node = &entry.node;
            match &*entry.key {
                "model" => settings.model = reader.model(node),
                "small_model" => settings.small_model = reader.model(node),
                "default_agent" => settings.default_agent = reader.text(node),
                "agent" => reader.agents(node, &mut settings),
                "command" => reader.commands(node, &mut settings),
                // Its object became a part of `agent`.
                "mode" => reader.expected(node, "an object"),
                key if ROOT_RULES.contains(&key) => reader.rules(entry, &mut lists),
                "provider" => models.providers = reader.providers(node),
                "enabled_providers" => models.enabled = Some(reader.names(node)),
                "disabled_providers" => models.disabled = reader.names(node),
                "instructions" => settings.instructions = reader.instructions(node),
                "compaction" => settings.compaction = reader.compaction(node),
                "tool_output" => settings.tool_output = reader.tool_output(node),
                "snapshot" => settings.snapshot = reader.flag(node),
                "subagent_depth" => settings.subagent_depth = reader.whole(node, 0, u64::MAX),
                "environment" => reader.environment(node, &mut settings),
                "lost_workspace" => settings.lost_workspace = reader.lost_workspace(node),
                key if IGNORED.contains(&key) => reader.ignore(entry),
                _ => reader.unknown(entry, &KNOWN),
            }
        });
        settings.permission = self.level_rules(root, lists);
        settings.models = if models == Models::default() { vec![] } else { vec![models] };
        settings
    }

    fn agents(&mut self, node: &Node, settings: &mut Settings) {
        self.fields(node, |reader, entry| {
            if reader.name(entry) {
                let agent = reader.agent(&entry.node);
                settings.agents.insert(entry.key.to_string(), agent);
            }
        });
        self.at_most(node, settings.agents.len(), SETTINGS_AGENTS_MAX, "agents");
    }

    fn agent(&mut self, node: &Node) -> Agent {
        let (mut agent, mut older_steps) = (Agent::default(), None);
        let mut lists = RuleLists::default();
        self.fields(node, |reader, entry| {
            let node = &entry.node;
            match &*entry.key {
                // Claude Code's word for the model of the session.
                "model" if node.as_text() == Some("inherit") => {}
                "model" => agent.model = reader.model(node),
                "variant" => agent.variant = reader.text(node),
                "prompt" => agent.prompt = reader.text(node),
                "description" => agent.description = reader.text(node),
                "mode" => agent.mode = reader.mode(node),
                "files" => agent.files = reader.subtask_files(node),
                "hidden" => agent.hidden = reader.flag(node),
                "steps" => agent.steps = reader.steps(node),
                // OpenCode's older name for it, and Claude Code's name.
                "maxSteps" | "maxTurns" => older_steps = reader.steps(node),
                "temperature" => agent.temperature = reader.number(node),
                "top_p" => agent.top_p = reader.number(node),
                key if AGENT_RULES.contains(&key) => reader.rules(entry, &mut lists),
                key if rules::may_restrict(key) => reader.unknown(entry, &AGENT_RULES),
                "disable" => agent.disable = reader.flag(node),
                "color" => reader.ignore(entry),
                "options" => reader.fields(node, |_, option| {
                    agent.options.0.insert(option.key.to_string(), option.node.to_json());
                }),
                // OpenCode sends other keys to the provider. Report them, because one may be a typo.
                key => {
                    reader.ignore(entry);
                    agent.options.0.insert(key.to_owned(), node.to_json());
                }
            }
        });
        agent.steps = agent.steps.or(older_steps);
        agent.permission = self.level_rules(node, lists);
        agent
    }

    fn commands(&mut self, node: &Node, settings: &mut Settings) {
        self.fields(node, |reader, entry| {
            if reader.name(entry) {
                let command = reader.command(&entry.node);
                settings.commands.insert(entry.key.to_string(), command);
            }
        });
        self.at_most(node, settings.commands.len(), SETTINGS_COMMANDS_MAX, "commands");
    }

    fn command(&mut self, node: &Node) -> Command {
        let (mut command, mut has_template, mut restriction) = (Command::default(), false, None);
        self.fields(node, |reader, entry| {
            let node = &entry.node;
            match &*entry.key {
                "template" => {
                    has_template = true;
                    command.template = reader.text(node).unwrap_or_default();
                }
                "description" => command.description = reader.text(node),
                "agent" => command.agent = reader.text(node),
                "model" => command.model = reader.model(node),
                "variant" => command.variant = reader.text(node),
                "subtask" => command.subtask = reader.flag(node),
                // In Claude Code it only saves questions while the command runs: it permits, and a repository cannot.
                "allowed-tools" => reader.ignore(entry),
                key if AGENT_RULES.contains(&key) || rules::may_restrict(key) => restriction = Some(entry),
                // Other programs write further keys, such as `argument-hint`. Report them, because one may be a typo.
                _ => reader.ignore(entry),
            }
        });
        if let Some(entry) = restriction {
            // Without what it restricts, the command would do too much.
            let expected = "a command without restrictions, which belong to the agent that it names";
            self.problem(&entry.origin, expected, &shown_text(&entry.key));
        }
        if !has_template && matches!(node.value, Content::Map(_)) {
            self.problem(&node.origin, "a template", "none");
        }
        command
    }

    fn instructions(&mut self, node: &Node) -> Vec<String> {
        let list = TextList {
            kind: "a list of texts",
            items: "instructions",
            most: SETTINGS_INSTRUCTIONS_MAX,
            expected: &format!("a path or URL of 1 to {PATH_BYTES_MAX} bytes"),
        };
        self.texts(node, &list, |text| (1..=PATH_BYTES_MAX).contains(&text.len()))
    }

    fn compaction(&mut self, node: &Node) -> Compaction {
        let mut compaction = Compaction::default();
        self.fields(node, |reader, entry| {
            let node = &entry.node;
            match &*entry.key {
                "auto" => compaction.auto = reader.flag(node),
                "prune" => compaction.prune = reader.flag(node),
                "reserved" => compaction.reserved = reader.whole(node, 0, u64::MAX),
                "preserve_recent_tokens" => {
                    compaction.preserve_recent_tokens = reader.whole(node, 0, u64::MAX);
                }
                "tail_turns" => compaction.tail_turns = reader.whole(node, 0, u64::MAX),
                _ => {
                    let keys = ["auto", "prune", "reserved", "preserve_recent_tokens", "tail_turns"];
                    reader.unknown(entry, &keys);
                }
            }
        });
        compaction
    }

    fn tool_output(&mut self, node: &Node) -> ToolOutput {
        let mut output = ToolOutput::default();
        self.fields(node, |reader, entry| match &*entry.key {
            "max_lines" => {
                output.max_lines = reader.whole(&entry.node, 1, SETTINGS_TOOL_OUTPUT_LINES_MAX);
            }
            "max_bytes" => {
                output.max_bytes = reader.whole(&entry.node, 1, SETTINGS_TOOL_OUTPUT_BYTES_MAX);
            }
            _ => reader.unknown(entry, &["max_lines", "max_bytes"]),
        });
        output
    }

    fn lost_workspace(&mut self, node: &Node) -> Option<LostWorkspace> {
        let text = self.text(node)?;
        let policy = LostWorkspace::ALL.into_iter().find(|policy| policy.as_str() == text);
        if policy.is_none() {
            self.expected(node, "\"ask\" or \"restart\"");
        }
        policy
    }

    fn mode(&mut self, node: &Node) -> Option<Mode> {
        let text = self.text(node)?;
        let mode = Mode::ALL.into_iter().find(|mode| mode.as_str() == text);
        if mode.is_none() {
            self.expected(node, "\"subagent\", \"primary\" or \"all\"");
        }
        mode
    }

    fn subtask_files(&mut self, node: &Node) -> Option<SubtaskFiles> {
        let text = self.text(node)?;
        let files = SubtaskFiles::ALL.into_iter().find(|files| files.as_str() == text);
        if files.is_none() {
            self.expected(node, "\"share\" or \"fork\"");
        }
        files
    }

    fn model(&mut self, node: &Node) -> Option<ModelRef> {
        let text = self.text(node)?;
        match text.split_once('/') {
            // The name of a model may contain slashes.
            Some((provider, model)) if !provider.is_empty() && !model.is_empty() => {
                Some(ModelRef { provider_id: provider.to_owned(), model_id: model.to_owned() })
            }
            _ => {
                self.expected(node, "a model as \"provider/model\"");
                None
            }
        }
    }

    fn steps(&mut self, node: &Node) -> Option<u32> {
        self.whole(node, 1, u64::from(u32::MAX)).and_then(|steps| u32::try_from(steps).ok())
    }
}
