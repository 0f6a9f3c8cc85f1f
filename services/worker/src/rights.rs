//! What a loop may do: the rules of the agent that answers, of its session and of every ancestor. The strictest counts.

use crate::tools::{self, Tool, uses::Use};
use domain::{
    agent::Agent,
    permission::{Rule, Rules, Verdict, strictest},
};
use serde_json::Value;
use std::collections::BTreeMap;

/// The rules of one session beside those of its agent, and what a prompt switches off.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rights {
    lists: Vec<Rules>,
    switches: Rules,
}

impl Rights {
    pub(crate) fn new(lists: Vec<Rules>) -> Self {
        Self { lists, switches: Rules::default() }
    }

    /// The rights of a turn whose prompt switches tools.
    pub(crate) fn of_prompt(&self, tools: Option<&BTreeMap<String, bool>>) -> Self {
        let rule =
            |(name, on): (&String, &bool)| Rule::of(name, if *on { Verdict::Allow } else { Verdict::Deny });
        Self { lists: self.lists.clone(), switches: Rules(tools.into_iter().flatten().map(rule).collect()) }
    }

    /// Whether the prompt switched a tool off: by its own name, or by the permission that it needs.
    fn is_off(&self, tool: Tool) -> bool {
        let is_named = self.switches.0.iter().any(|rule| rule.permission == tool.name());
        self.switches.hides(tool.name()) || (!is_named && self.switches.hides(tool.permission()))
    }

    /// Whether a call may run, must be asked for, or must not run.
    pub(crate) fn verdict(&self, agent: &str, tool: Tool, input: &Value) -> Verdict {
        if self.is_off(tool) || tools::inner(tool, input).into_iter().any(|tool| self.is_off(tool)) {
            return Verdict::Deny;
        }
        let (own, uses) = (self.own(agent), tool.uses(input));
        uses.iter().map(|used| self.of_use(&own, used)).max().unwrap_or(Verdict::Allow)
    }

    /// What of a call a person must allow: the first use that has to be asked for.
    pub(crate) fn to_ask(&self, agent: &str, tool: Tool, input: &Value) -> Option<Use> {
        let (own, mut uses) = (self.own(agent), tool.uses(input));
        let first = uses.iter().position(|used| self.of_use(&own, used) == Verdict::Ask).unwrap_or(0);
        (first < uses.len()).then(|| uses.swap_remove(first))
    }

    /// The rules of the agent, with what people answered "always" in this session: its last list knows that.
    fn own(&self, agent: &str) -> Rules {
        let mut own = rules_of(agent);
        let answers =
            self.lists.last().into_iter().flat_map(|rules| &rules.0).filter(|rule| rule.is_approval);
        own.0.extend(answers.cloned());
        own
    }

    fn of_use(&self, own: &Rules, used: &Use) -> Verdict {
        let lists: Vec<&Rules> = std::iter::once(own).chain(&self.lists).collect();
        if used.is_unclear {
            let any = lists.iter().map(|rules| rules.strictest_of(used.permission)).max();
            return any.unwrap_or(Verdict::Allow);
        }
        let of = |pattern: &String| strictest(&lists, used.permission, pattern);
        used.patterns.iter().map(of).max().unwrap_or(Verdict::Allow)
    }

    /// Whether no use of a tool is possible, so that the model need not know it.
    pub(crate) fn hides(&self, agent: &str, tool: Tool) -> bool {
        let permission = tool.permission();
        self.is_off(tool)
            || rules_of(agent).hides(permission)
            || self.lists.iter().any(|rules| rules.hides(permission))
    }

    /// The rules of a child beside those of its own agent: everything that binds this session.
    pub(crate) fn of_child(&self, agent: &str) -> Vec<Rules> {
        let off: Vec<Rule> =
            self.switches.0.iter().filter(|rule| rule.action == Verdict::Deny).cloned().collect();
        let lists = std::iter::once(rules_of(agent)).chain(self.lists.clone()).chain([Rules(off)]);
        lists.filter(|rules| !rules.0.is_empty()).collect()
    }

    /// Takes over an answer "always"; again changes nothing.
    pub(crate) fn allow(&mut self, permission: &str, patterns: &[String]) {
        let approvals: Vec<Rule> =
            patterns.iter().map(|pattern| Rule::approval(permission, pattern)).collect();
        *self = self.with(&approvals);
    }

    /// These rights, with answers "always" beside them.
    pub(crate) fn with(&self, approvals: &[Rule]) -> Self {
        let mut lists = self.lists.clone();
        for rules in &mut lists {
            for approval in approvals {
                if !rules.0.contains(approval) {
                    rules.0.push(approval.clone());
                }
            }
        }
        Self { lists, switches: self.switches.clone() }
    }
}

/// The rules of an agent; one that this version does not know may do nothing.
fn rules_of(agent: &str) -> Rules {
    Agent::parse(agent).map_or_else(|| Rules(vec![Rule::of("*", Verdict::Deny)]), Agent::rules)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;
    use serde_json::json;

    fn rights(list: &[(&str, &str, Verdict)]) -> Rights {
        let rule = |(permission, pattern, action): &(&str, &str, Verdict)| Rule {
            permission: (*permission).to_owned(),
            pattern: (*pattern).to_owned(),
            action: *action,
            is_approval: false,
        };
        Rights::new(vec![Rules(list.iter().map(rule).collect())])
    }

    #[test]
    fn each_command_of_a_line_must_be_allowed() {
        let rights = rights(&[
            ("bash", "*", Verdict::Allow),
            ("bash", "git push *", Verdict::Ask),
            ("bash", "rm *", Verdict::Deny),
            ("external_directory", "*", Verdict::Ask),
        ]);
        for (command, want) in [
            ("git status && ls", Verdict::Allow),
            ("git push", Verdict::Ask),
            ("cd a; git push origin main", Verdict::Ask),
            ("git status; /bin/rm a", Verdict::Deny),
            ("bash -c 'rm a'", Verdict::Deny),
            ("rmdir a", Verdict::Allow),
            // What it runs is not known: the strictest of all rules about bash.
            ("$TOOL a", Verdict::Deny),
            ("cat /etc/passwd", Verdict::Ask),
        ] {
            let verdict = rights.verdict("build", Tool::Bash, &json!({"command": command}));
            assert_eq!(verdict, want, "{command}");
        }
        let asked = rights.to_ask("build", Tool::Bash, &json!({"command": "cat /etc/passwd"})).unwrap();
        assert_eq!(
            (asked.permission, &asked.patterns[..]),
            ("external_directory", &["/etc/*".to_owned()][..])
        );
    }

    #[test]
    fn an_answer_always_covers_what_it_names() {
        let mut rights = rights(&[("bash", "*", Verdict::Ask)]);
        let asked = rights.to_ask("build", Tool::Bash, &json!({"command": "git commit -m x"})).unwrap();
        rights.allow(asked.permission, &asked.always);
        for (command, want) in [
            ("git commit -m y", Verdict::Allow),
            ("git commit", Verdict::Allow),
            ("git commit && git push", Verdict::Ask),
            ("git push", Verdict::Ask),
        ] {
            let verdict = rights.verdict("build", Tool::Bash, &json!({"command": command}));
            assert_eq!(verdict, want, "{command}");
        }
    }

    /// A model chooses the words of the first command.
    #[test]
    fn an_answer_always_is_no_wildcard_of_the_model() {
        for command in ["*", "ec*o a", "npm run '*'", "$X a"] {
            let mut rights = rights(&[("bash", "*", Verdict::Ask), ("bash", "*secret*", Verdict::Deny)]);
            let asked = rights.to_ask("build", Tool::Bash, &json!({"command": command})).unwrap();
            rights.allow(asked.permission, &asked.always);
            for other in ["touch a", "npm run build", "echo secret"] {
                let verdict = rights.verdict("build", Tool::Bash, &json!({"command": other}));
                assert_ne!(verdict, Verdict::Allow, "{command:?} allowed {other:?}: {:?}", asked.always);
            }
        }
    }

    #[test]
    fn whoever_may_not_edit_may_not_write() {
        let rights = rights(&[("edit", "*", Verdict::Deny)]);
        for tool in [Tool::Edit, Tool::Write] {
            assert_eq!(rights.verdict("build", tool, &json!({"filePath": "/workspace/a"})), Verdict::Deny);
        }
        assert!(rights.hides("build", Tool::Edit) && rights.hides("build", Tool::Write));
    }

    #[test]
    fn a_prompt_switches_tools_off_by_name_permission_or_pattern() {
        let inner = json!({"tool_calls": [{"tool": "bash", "parameters": {"command": "true"}}]});
        for (switches, off, on) in [
            (vec![("bash", false)], vec![Tool::Bash], vec![Tool::Read]),
            (vec![("edit", false)], vec![Tool::Edit, Tool::Write, Tool::ApplyPatch], vec![Tool::Bash]),
            (vec![("*", false), ("write", true)], vec![Tool::Bash, Tool::Edit], vec![Tool::Write]),
            (vec![("bash", true)], vec![], vec![Tool::Bash]),
        ] {
            let tools: BTreeMap<String, bool> =
                switches.into_iter().map(|(name, on)| (name.to_owned(), on)).collect();
            let rights = Rights::default().of_prompt(Some(&tools));
            for tool in off {
                assert!(rights.hides("build", tool), "{tool:?} of {tools:?}");
                assert_eq!(rights.verdict("build", tool, &json!({})), Verdict::Deny, "{tool:?} of {tools:?}");
            }
            for tool in on {
                assert!(!rights.hides("build", tool), "{tool:?} of {tools:?}");
            }
        }
        let no_bash = BTreeMap::from([("bash".to_owned(), false)]);
        let rights = Rights::default().of_prompt(Some(&no_bash));
        assert_eq!(rights.verdict("build", Tool::Batch, &inner), Verdict::Deny, "not by way of a batch");
        assert_eq!(rights.of_child("build"), [Rules(vec![Rule::of("bash", Verdict::Deny)])]);
    }
}
