//! Permission rules of settings: OpenCode's `permission`, and the older `tools`.

use crate::{
    LevelRules,
    node::{Content, Node},
    problem::shown_text,
    read::Reader,
};
use domain::{
    limits::{PERMISSION_RULE_BYTES_MAX, SETTINGS_RULES_MAX},
    permission::{Rule, Rules, Verdict},
};

/// OpenCode's permission to change files.
const EDIT: &str = "edit";
/// A tool that OpenCode asks `edit` for, and that asks under its own name here.
const WRITE: &str = "write";
/// Names under `tools` that are one permission.
const EDITING_TOOLS: [&str; 4] = [EDIT, WRITE, "patch", "multiedit"];

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
                reader.rule(&mut rules, &tool.node, (&tool.key, "*"), verdict);
                return;
            }
            reader.fields(&tool.node, |reader, pattern| {
                let verdict = reader.verdict(&pattern.node);
                reader.rule(&mut rules, &pattern.node, (&tool.key, &pattern.key), verdict);
            });
        });
        rules
    }

    /// Reads `tools`, which OpenCode had before `permission`: `{"write": false, "jira_*": true}`.
    pub(crate) fn tools(&mut self, node: &Node) -> Vec<Rule> {
        let mut rules = vec![];
        self.fields(node, |reader, tool| {
            let verdict =
                reader.flag(&tool.node).map(|is_on| if is_on { Verdict::Allow } else { Verdict::Deny });
            let name = if EDITING_TOOLS.contains(&&*tool.key) { EDIT } else { &*tool.key };
            reader.rule(&mut rules, &tool.node, (name, "*"), verdict);
        });
        rules
    }

    /// The list of the level that wrote `node`, if it says anything: `permission` has the last word over `tools`.
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
        let verdict = match &node.value {
            Content::Text { text, .. } => match text.as_str() {
                "allow" => Some(Verdict::Allow),
                "ask" => Some(Verdict::Ask),
                "deny" => Some(Verdict::Deny),
                _ => None,
            },
            _ => None,
        };
        if verdict.is_none() {
            self.expected(node, "\"allow\", \"ask\" or \"deny\"");
        }
        verdict
    }

    /// Adds a rule, and the same for `write` where it speaks for `edit`: a file that nobody may edit must not be written.
    fn rule(
        &mut self,
        rules: &mut Vec<Rule>,
        node: &Node,
        (permission, pattern): (&str, &str),
        verdict: Option<Verdict>,
    ) {
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
        let speaks_for = |tool| probe.verdict(tool, "") == Verdict::Deny;
        rules.push(rule(permission));
        if speaks_for(EDIT) && !speaks_for(WRITE) {
            rules.push(rule(WRITE));
        }
    }
}
