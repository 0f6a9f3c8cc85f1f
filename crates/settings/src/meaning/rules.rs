//! Reads permission rules: OpenCode's `permission`, and the older `tools`.

use crate::{
    LevelRules,
    meaning::reader::Reader,
    node::{Content, Node},
    problem::shown_text,
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

/// The subjects that a rule matches.
#[derive(Clone, Copy)]
struct Subject<'a> {
    permission: &'a str,
    pattern: &'a str,
}

impl Reader {
    /// Reads `permission`: `"ask"`, or `{"bash": "ask", "edit": {"*.md": "allow"}}`. The order of keys is kept.
    pub(crate) fn permission(&mut self, node: &Node) -> Vec<Rule> {
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
    pub(crate) fn tools(&mut self, node: &Node) -> Vec<Rule> {
        let mut rules = vec![];
        self.fields(node, |reader, tool| {
            let verdict =
                reader.flag(&tool.node).map(|is_on| if is_on { Verdict::Allow } else { Verdict::Deny });
            let name = if EDITING_TOOLS.contains(&&*tool.key) { EDIT } else { &*tool.key };
            reader.rule(&mut rules, &tool.node, Subject { permission: name, pattern: "*" }, verdict);
        });
        rules
    }

    /// Returns the list of the level that contains `node`, if it has one. `permission` comes last, so it overrides
    /// `tools`.
    pub(crate) fn level_rules(
        &mut self,
        node: &Node,
        tools: Vec<Rule>,
        permission: Vec<Rule>,
    ) -> Vec<LevelRules> {
        let rules = [tools, permission].concat();
        self.at_most(node, rules.len(), SETTINGS_RULES_MAX, "rules");
        if rules.is_empty() {
            return vec![];
        }
        vec![LevelRules { level: node.origin.level, rules: Rules(rules) }]
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
