//! Reads permission rules: OpenCode's `permission` and its older `tools`, and the forms of Claude Code.

use crate::{
    LevelRules,
    meaning::{claude, reader::Reader},
    node::{Content, Member, Node, Step},
    problem::{shown, shown_text},
};
use domain::{
    limits::PERMISSION_RULE_BYTES_MAX,
    policy::permission::{Rule, Rules, Verdict},
};

/// Permission rules in one list of settings: each tool call checks all of them. Beyond it: `settings_invalid` or `config_invalid`.
const SETTINGS_RULES_MAX: usize = 500;

/// OpenCode's permission to change files.
const EDIT: &str = "edit";
/// A tool that needs the permission `edit` in OpenCode and has its own permission here.
const WRITE: &str = "write";
/// Names under `tools` that mean the permission `edit`.
const EDITING_TOOLS: [&str; 4] = [EDIT, WRITE, "patch", "multiedit"];

/// Keys of the root with rules.
pub(crate) const ROOT_RULES: [&str; 3] = ["permission", "permissions", "tools"];
/// Keys of an agent with rules. `tools` and those after it are forms of Claude Code, with the spellings that people use.
pub(crate) const AGENT_RULES: [&str; 9] = [
    "permission",
    "tools",
    "allowedTools",
    "allowed-tools",
    "allowed_tools",
    "disallowedTools",
    "disallowed-tools",
    "disallowed_tools",
    "permissionMode",
];
/// Claude Code's mode in which an agent changes nothing.
const PLAN_MODE: &str = "plan";

/// Whether an unknown key may be meant as a restriction.
pub(crate) fn may_restrict(key: &str) -> bool {
    let key: String = key.chars().filter(char::is_ascii_alphanumeric).collect();
    let key = key.to_ascii_lowercase();
    key.starts_with("perm") || key.contains("disallow") || key.contains("allowedtools") || key == "tool"
}

/// The rules of an agent or of the root.
#[derive(Default)]
pub(crate) struct RuleLists {
    tools: Vec<Rule>,
    permission: Vec<Rule>,
    limits: Vec<Vec<Rule>>,
}

/// The subjects that a rule matches.
#[derive(Clone, Copy)]
struct Subject<'a> {
    permission: &'a str,
    pattern: &'a str,
}

impl Reader {
    /// Reads the value of one of [`ROOT_RULES`] or [`AGENT_RULES`].
    pub(crate) fn rules(&mut self, entry: &Member, lists: &mut RuleLists) {
        let node = &entry.node;
        match (&*entry.key, &node.value) {
            ("permission", _) => lists.permission = self.permission(node),
            ("permissions", _) => lists.limits.extend(self.claude_permissions(node)),
            // `tools:` without a value says nothing.
            (_, Content::Null) => self.ignore(entry),
            ("tools", Content::Map(_)) => lists.tools = self.tools(node),
            ("tools" | "allowedTools" | "allowed-tools" | "allowed_tools", _) => {
                let only = self.claude_list(node, claude::only);
                lists.limits.extend(only);
            }
            ("permissionMode", _) => match self.text(node).as_deref() {
                Some(PLAN_MODE) => lists.limits.push(vec![Rule::of(EDIT, Verdict::Deny)]),
                // The others permit something, which settings of a repository cannot.
                Some(_) => self.ignore(entry),
                None => {}
            },
            _ => {
                let denied = self.claude_list(node, |entries| claude::all(entries, Verdict::Deny));
                lists.limits.extend(denied);
            }
        }
    }

    /// Reads `permissions` of Claude Code's settings. `allow` has no effect, because it only saves questions.
    fn claude_permissions(&mut self, node: &Node) -> Option<Vec<Rule>> {
        let (mut ask, mut deny) = (None, None);
        self.fields(node, |reader, entry| {
            let mut list = |verdict| match &entry.node.value {
                Content::List(_) => reader.claude_list(&entry.node, |entries| claude::all(entries, verdict)),
                _ => reader.refused(&entry.node, "a list of tools", &shown(&entry.node)),
            };
            match &*entry.key {
                "ask" => ask = list(Verdict::Ask),
                "deny" => deny = list(Verdict::Deny),
                "allow" | "additionalDirectories" | "defaultMode" | "disableBypassPermissionsMode" => {
                    reader.ignore(entry);
                }
                _ => reader.unknown(entry, &["allow", "ask", "deny", "defaultMode"]),
            }
        });
        // The last rule that matches counts, and a denial always counts.
        let rules: Vec<Rule> = [ask, deny].into_iter().flatten().flatten().collect();
        (!rules.is_empty()).then_some(rules)
    }

    /// Reads tools of Claude Code: a list, or a text with commas. `None` after a mistake.
    fn claude_list(
        &mut self,
        node: &Node,
        rules: impl FnOnce(&[claude::ToolEntry<'_>]) -> Vec<Rule>,
    ) -> Option<Vec<Rule>> {
        let expected = "a tool such as Read or Bash(git log:*)";
        let mut entries = vec![];
        match &node.value {
            Content::Text { text, .. } => {
                for entry in claude::entries(text) {
                    match claude::ToolEntry::parse(entry) {
                        Some(entry) => entries.push(entry),
                        None => return self.refused(node, expected, &shown_text(entry)),
                    }
                }
            }
            Content::List(items) => {
                for (at, item) in items.iter().enumerate() {
                    match item.as_text().and_then(claude::ToolEntry::parse) {
                        Some(entry) => entries.push(entry),
                        None => {
                            self.path.0.push(Step::Item(at));
                            let refused = self.refused(item, expected, &shown(item));
                            self.path.0.pop();
                            return refused;
                        }
                    }
                }
            }
            Content::Null | Content::Bool(_) | Content::Number(_) | Content::Map(_) => {
                return self.refused(node, "a list of tools", &shown(node));
            }
        }
        let rules = rules(&entries);
        self.at_most(node, rules.len(), SETTINGS_RULES_MAX, "rules");
        Some(rules)
    }

    fn refused(&mut self, node: &Node, expected: &str, found: &str) -> Option<Vec<Rule>> {
        self.problem(&node.origin, expected, found);
        None
    }

    /// Reads `permission`: `"ask"`, or `{"bash": "ask", "edit": {"*.md": "allow"}}`. The order of keys is kept.
    fn permission(&mut self, node: &Node) -> Vec<Rule> {
        let mut rules = vec![];
        if matches!(node.value, Content::Text { .. }) {
            let verdict = self.verdict(node);
            rules.extend(verdict.map(|verdict| Rule::of("*", verdict)));
            return rules;
        }
        self.fields(node, |reader, tool| {
            if matches!(tool.node.value, Content::Text { .. }) {
                let verdict = reader.verdict(&tool.node);
                let subject = Subject { permission: &tool.key, pattern: "*" };
                reader.rule(&mut rules, &tool.node, subject, verdict);
                return;
            }
            reader.fields(&tool.node, |reader, pattern| {
                let verdict = reader.verdict(&pattern.node);
                let subject = Subject { permission: &tool.key, pattern: &pattern.key };
                reader.rule(&mut rules, &pattern.node, subject, verdict);
            });
        });
        rules
    }

    /// Reads `tools`, which OpenCode used before `permission`: `{"write": false, "jira_*": true}`.
    fn tools(&mut self, node: &Node) -> Vec<Rule> {
        let mut rules = vec![];
        self.fields(node, |reader, tool| {
            let verdict =
                reader.flag(&tool.node).map(|is_on| if is_on { Verdict::Allow } else { Verdict::Deny });
            let name = if EDITING_TOOLS.contains(&&*tool.key) { EDIT } else { &*tool.key };
            reader.rule(&mut rules, &tool.node, Subject { permission: name, pattern: "*" }, verdict);
        });
        rules
    }

    /// Returns the lists of the level that contains `node`, if it has any. `permission` comes after `tools`, so it overrides
    /// them.
    pub(crate) fn level_rules(&mut self, node: &Node, lists: RuleLists) -> Vec<LevelRules> {
        let RuleLists { tools, permission, limits } = lists;
        let rules = [tools, permission].concat();
        self.at_most(node, rules.len(), SETTINGS_RULES_MAX, "rules");
        let of = |is_limit| {
            move |rules: Vec<Rule>| LevelRules { level: node.origin.level, rules: Rules(rules), is_limit }
        };
        let rules = (!rules.is_empty()).then(|| of(false)(rules));
        rules.into_iter().chain(limits.into_iter().filter(|rules| !rules.is_empty()).map(of(true))).collect()
    }

    fn verdict(&mut self, node: &Node) -> Option<Verdict> {
        let verdict = match node.as_text() {
            Some("allow") => Some(Verdict::Allow),
            Some("ask") => Some(Verdict::Ask),
            Some("deny") => Some(Verdict::Deny),
            Some(_) | None => None,
        };
        if verdict.is_none() {
            self.expected(node, "\"allow\", \"ask\" or \"deny\"");
        }
        verdict
    }

    /// Adds a rule. A rule that covers `edit` also applies to `write`: an agent must not overwrite a file that it may not edit.
    fn rule(&mut self, rules: &mut Vec<Rule>, node: &Node, subject: Subject<'_>, verdict: Option<Verdict>) {
        let Subject { permission, pattern } = subject;
        if permission.len() + pattern.len() > PERMISSION_RULE_BYTES_MAX {
            let expected = format!("a rule of at most {PERMISSION_RULE_BYTES_MAX} bytes");
            self.problem(&node.origin, &expected, &shown_text(pattern));
            return;
        }
        let Some(action) = verdict else { return };
        let rule = |permission: &str| Rule {
            permission: permission.to_owned(),
            pattern: pattern.to_owned(),
            action,
            is_approval: false,
        };
        let probe = Rules(vec![Rule::of(permission, Verdict::Deny)]);
        let covers = |tool| probe.verdict(tool, "") == Verdict::Deny;
        rules.push(rule(permission));
        if covers(EDIT) && !covers(WRITE) {
            rules.push(rule(WRITE));
        }
    }
}
