//! What a tree of settings means. Goes on after a mistake, so that all mistakes of a file are told at once.

use crate::{
    Agent, Compaction, Settings, ToolOutput,
    models::Models,
    node::{Content, Entry, KeyPath, Node, Origin, Step},
    problem::{Problem, Problems, shown, shown_text},
};
use domain::{
    agent::Mode,
    command::Command,
    limits::{
        NAME_BYTES_MAX, PATH_BYTES_MAX, SETTINGS_AGENTS_MAX, SETTINGS_COMMANDS_MAX,
        SETTINGS_INSTRUCTIONS_MAX, SETTINGS_TOOL_OUTPUT_BYTES_MAX, SETTINGS_TOOL_OUTPUT_LINES_MAX,
    },
    message::ModelRef,
};

/// Keys that mean something here.
pub(crate) const KNOWN: [&str; 14] = [
    "agent",
    "command",
    "compaction",
    "default_agent",
    "disabled_providers",
    "enabled_providers",
    "instructions",
    "model",
    "permission",
    "provider",
    "small_model",
    "snapshot",
    "tool_output",
    "tools",
];
/// Keys of OpenCode's that mean nothing here: accepted and told.
const IGNORED: [&str; 25] = [
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
    "mode",
    "plugin",
    "reference",
    "references",
    "server",
    "share",
    "shell",
    "skills",
    "subagent_depth",
    "theme",
    "tui",
    "username",
    "watcher",
];

/// A value that has no effect here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ignored {
    /// Which one.
    pub path: KeyPath,
    /// Where it stands.
    pub origin: Origin,
}

/// One walk through a tree.
#[derive(Default)]
pub(crate) struct Reader {
    pub(crate) path: KeyPath,
    pub(crate) problems: Problems,
    pub(crate) ignored: Vec<Ignored>,
}

impl Reader {
    pub(crate) fn settings(&mut self, root: &Node) -> Settings {
        let mut settings = Settings::default();
        let (mut tools, mut permission, mut models) = (vec![], vec![], Models::default());
        self.fields(root, |reader, entry| {
            let node = &entry.node;
            match &*entry.key {
                "model" => settings.model = reader.model(node),
                "small_model" => settings.small_model = reader.model(node),
                "default_agent" => settings.default_agent = reader.text(node),
                "agent" => reader.agents(node, &mut settings),
                "command" => reader.commands(node, &mut settings),
                "permission" => permission = reader.permission(node),
                "tools" => tools = reader.tools(node),
                "provider" => models.providers = reader.providers(node),
                "enabled_providers" => models.enabled = Some(reader.names(node)),
                "disabled_providers" => models.disabled = reader.names(node),
                "instructions" => settings.instructions = reader.instructions(node),
                "compaction" => settings.compaction = reader.compaction(node),
                "tool_output" => settings.tool_output = reader.tool_output(node),
                "snapshot" => settings.snapshot = reader.flag(node),
                key if IGNORED.contains(&key) => reader.ignore(entry),
                _ => reader.unknown(entry, &KNOWN),
            }
        });
        settings.permission = self.level_rules(root, tools, permission);
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
        let (mut tools, mut permission) = (vec![], vec![]);
        self.fields(node, |reader, entry| {
            let node = &entry.node;
            match &*entry.key {
                "model" => agent.model = reader.model(node),
                "variant" => agent.variant = reader.text(node),
                "prompt" => agent.prompt = reader.text(node),
                "description" => agent.description = reader.text(node),
                "mode" => agent.mode = reader.mode(node),
                "hidden" => agent.hidden = reader.flag(node),
                "steps" => agent.steps = reader.steps(node),
                // OpenCode's older name of it.
                "maxSteps" => older_steps = reader.steps(node),
                "temperature" => agent.temperature = reader.number(node),
                "top_p" => agent.top_p = reader.number(node),
                "permission" => permission = reader.permission(node),
                "tools" => tools = reader.tools(node),
                "disable" => agent.disable = reader.flag(node),
                "color" => reader.ignore(entry),
                "options" => reader.fields(node, |_, option| {
                    agent.options.0.insert(option.key.to_string(), option.node.to_json());
                }),
                // OpenCode hands further keys to the provider. They are told, because one may be a slip of the pen.
                key => {
                    reader.ignore(entry);
                    agent.options.0.insert(key.to_owned(), node.to_json());
                }
            }
        });
        agent.steps = agent.steps.or(older_steps);
        agent.permission = self.level_rules(node, tools, permission);
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
        let (mut command, mut has_template) = (Command::default(), false);
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
                _ => {
                    let known = ["template", "description", "agent", "model", "variant", "subtask"];
                    reader.unknown(entry, &known);
                }
            }
        });
        if !has_template && matches!(node.value, Content::Map(_)) {
            self.problem(&node.origin, "a template", "none");
        }
        command
    }

    fn instructions(&mut self, node: &Node) -> Vec<String> {
        let Content::List(items) = &node.value else {
            self.expected(node, "a list of texts");
            return vec![];
        };
        self.at_most(node, items.len(), SETTINGS_INSTRUCTIONS_MAX, "instructions");
        let mut texts = vec![];
        for (at, item) in items.iter().enumerate() {
            self.path.0.push(Step::Item(at));
            match self.text(item) {
                Some(text) if text.is_empty() || text.len() > PATH_BYTES_MAX => {
                    self.expected(item, &format!("a path or URL of 1 to {PATH_BYTES_MAX} bytes"));
                }
                text => texts.extend(text),
            }
            self.path.0.pop();
        }
        texts
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
                    let known = ["auto", "prune", "reserved", "preserve_recent_tokens", "tail_turns"];
                    reader.unknown(entry, &known);
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

    fn mode(&mut self, node: &Node) -> Option<Mode> {
        let text = self.text(node)?;
        let mode = Mode::ALL.into_iter().find(|mode| mode.as_str() == text);
        if mode.is_none() {
            self.expected(node, "\"subagent\", \"primary\" or \"all\"");
        }
        mode
    }

    fn model(&mut self, node: &Node) -> Option<ModelRef> {
        let text = self.text(node)?;
        match text.split_once('/') {
            // Names of models may have further slashes.
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

    /// A whole number; `2.0` is one, as in JavaScript.
    pub(crate) fn whole(&mut self, node: &Node, least: u64, most: u64) -> Option<u64> {
        // Beyond 2^53 a fraction says nothing exact.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
        let of_fraction = |value: f64| {
            (value.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&value)).then_some(value as u64)
        };
        let number = match &node.value {
            Content::Number(number) => number.as_u64().or_else(|| number.as_f64().and_then(of_fraction)),
            _ => None,
        };
        let fits = number.filter(|number| (least..=most).contains(number));
        if fits.is_none() {
            let range =
                if most == u64::MAX { format!("from {least}") } else { format!("from {least} to {most}") };
            self.expected(node, &format!("a whole number {range}"));
        }
        fits
    }

    fn number(&mut self, node: &Node) -> Option<f64> {
        let number = match &node.value {
            Content::Number(number) => number.as_f64().filter(|number| number.is_finite()),
            _ => None,
        };
        if number.is_none() {
            self.expected(node, "a number");
        }
        number
    }

    pub(crate) fn flag(&mut self, node: &Node) -> Option<bool> {
        if let Content::Bool(value) = node.value {
            return Some(value);
        }
        self.expected(node, "true or false");
        None
    }

    pub(crate) fn text(&mut self, node: &Node) -> Option<String> {
        if let Content::Text { text, .. } = &node.value {
            return Some(text.clone());
        }
        self.expected(node, "a text");
        None
    }

    /// Whether the key of `entry` can be the name of something; says so if not.
    pub(crate) fn name(&mut self, entry: &Entry) -> bool {
        let is_name =
            (1..=NAME_BYTES_MAX).contains(&entry.key.len()) && !entry.key.contains(char::is_control);
        if !is_name {
            let expected = format!("a name of 1 to {NAME_BYTES_MAX} bytes");
            self.problem(&entry.origin, &expected, &shown_text(&entry.key));
        }
        is_name
    }

    /// Visits the members of an object, each with its path; says so if it is none.
    pub(crate) fn fields<'n>(&mut self, node: &'n Node, mut each: impl FnMut(&mut Self, &'n Entry)) {
        let Content::Map(entries) = &node.value else {
            self.expected(node, "an object");
            return;
        };
        for entry in entries {
            self.path.0.push(Step::Key(entry.key.clone()));
            each(self, entry);
            self.path.0.pop();
        }
    }

    pub(crate) fn ignore(&mut self, entry: &Entry) {
        self.ignored.push(Ignored { path: self.path.clone(), origin: entry.origin.clone() });
    }

    pub(crate) fn unknown(&mut self, entry: &Entry, known: &[&str]) {
        self.problem(&entry.origin, &format!("one of {}", known.join(", ")), "an unknown key");
    }

    pub(crate) fn at_most(&mut self, node: &Node, count: usize, most: usize, what: &str) {
        if count > most {
            self.problem(&node.origin, &format!("at most {most} {what}"), &count.to_string());
        }
    }

    pub(crate) fn expected(&mut self, node: &Node, expected: &str) {
        self.problem(&node.origin, expected, &shown(node));
    }

    pub(crate) fn problem(&mut self, origin: &Origin, expected: &str, found: &str) {
        self.problems.push(Problem {
            origin: origin.clone(),
            path: self.path.clone(),
            expected: expected.to_owned(),
            found: found.to_owned(),
        });
    }
}
