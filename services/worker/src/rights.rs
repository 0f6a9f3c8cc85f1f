//! What a loop may do: the rules of the agent that answers, of its session and of every ancestor. The strictest counts.

use crate::{
    tools::{self, Tool, uses::Use},
    turn::doubt,
};
use domain::{
    agent::{self, Agent, Mode},
    permission::{Rule, Rules, Verdict, strictest},
};
use serde_json::Value;
use settings::{self, Settings};
use std::{collections::BTreeMap, sync::Arc};

/// What binds a session: its own lists of rules, with those of its ancestors, what settings say of each agent, and what a
/// prompt switches off.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rights {
    lists: Vec<Rules>,
    settings: Arc<Settings>,
    switches: Rules,
}

impl Rights {
    pub(crate) fn new(lists: Vec<Rules>) -> Self {
        Self { lists, ..Self::default() }
    }

    /// Takes over the settings of the platform and the repository.
    pub(crate) fn configure(&mut self, settings: Arc<Settings>) {
        self.settings = settings;
    }

    /// What settings say of an agent, if they name it.
    pub(crate) fn agent(&self, agent: &str) -> Option<&settings::Agent> {
        self.settings.agents.get(agent)
    }

    /// Whether an agent may answer anybody.
    pub(crate) fn knows(&self, agent: &str) -> bool {
        if agent::is_hidden(agent) {
            return false;
        }
        let configured = self.agent(agent);
        (Agent::parse(agent).is_some() || configured.is_some())
            && configured.is_none_or(|agent| agent.disable != Some(true))
    }

    /// The names of all agents that can be used in one way, with what is said of them.
    pub(crate) fn agents(&self, mode: Mode) -> Vec<(String, String)> {
        let built_in = Agent::ALL.into_iter().filter(|agent| match mode {
            Mode::Subagent => Agent::SUBAGENTS.contains(agent),
            Mode::Primary | Mode::All => true,
        });
        let mut agents: Vec<(String, String)> =
            built_in.map(|agent| (agent.as_str().to_owned(), agent.description().to_owned())).collect();
        for (name, agent) in &self.settings.agents {
            let fits = agent.mode.is_none_or(|own| own == Mode::All || own == mode);
            let known = agents.iter_mut().find(|(known, _)| known == name);
            match (known, &agent.description) {
                (Some(known), Some(description)) => known.1.clone_from(description),
                (None, description) if fits && agent.hidden != Some(true) => {
                    agents.push((name.clone(), description.clone().unwrap_or_default()));
                }
                (Some(_) | None, _) => {}
            }
        }
        agents.retain(|(name, _)| self.knows(name));
        agents
    }

    /// Every list that binds an agent in this session. Answers "always" end the asking of settings too.
    fn all(&self, agent: &str) -> Vec<Rules> {
        let approvals: Vec<Rule> =
            self.lists.iter().flat_map(|rules| &rules.0).filter(|rule| rule.is_approval).cloned().collect();
        let mut all = self.of_agent(agent);
        all.iter_mut().for_each(|rules| rules.0.extend(approvals.iter().cloned()));
        all.extend(self.lists.iter().cloned());
        all
    }

    /// What binds an agent in any session of this repository.
    fn of_agent(&self, agent: &str) -> Vec<Rules> {
        let mut own = match Agent::parse(agent) {
            _ if !self.knows(agent) => Rules(vec![Rule::of("*", Verdict::Deny)]),
            Some(agent) => agent.rules(),
            None => Rules::default(),
        };
        if agent != Agent::Plan.as_str() {
            own.0.push(Rule::of(Tool::PlanExit.permission(), Verdict::Deny));
        }
        std::iter::once(own).chain(self.settings.rules(agent)).collect()
    }

    /// The rights of a turn whose prompt switches tools.
    pub(crate) fn of_prompt(&self, tools: Option<&BTreeMap<String, bool>>) -> Self {
        let rule =
            |(name, on): (&String, &bool)| Rule::of(name, if *on { Verdict::Allow } else { Verdict::Deny });
        Self { switches: Rules(tools.into_iter().flatten().map(rule).collect()), ..self.clone() }
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
        let (all, uses) = (self.all(agent), tool.uses(input));
        uses.iter().map(|used| Self::of_use(&all, used)).max().unwrap_or(Verdict::Allow)
    }

    /// Whether the model may go on making the same call of `tool` with the same answer: what sessions and settings say, else
    /// a person does. The built-in rules of agents are about tools, not about this.
    pub(crate) fn repeats(&self, agent: &str, tool: &str) -> Verdict {
        let mut lists: Vec<Rules> = self.settings.rules(agent);
        let approvals: Vec<Rule> =
            self.lists.iter().flat_map(|rules| &rules.0).filter(|rule| rule.is_approval).cloned().collect();
        lists.iter_mut().for_each(|rules| rules.0.extend(approvals.iter().cloned()));
        lists.extend(self.lists.iter().cloned());
        let said = lists.iter().filter_map(|rules| rules.find_verdict(doubt::PERMISSION, tool)).max();
        let is_approved = || self.lists.iter().any(|rules| rules.approves(doubt::PERMISSION, tool));
        match said {
            Some(verdict) => verdict,
            None if is_approved() => Verdict::Allow,
            None => Verdict::Ask,
        }
    }

    /// What of a call a person must allow: the first use that has to be asked for.
    pub(crate) fn to_ask(&self, agent: &str, tool: Tool, input: &Value) -> Option<Use> {
        let (all, mut uses) = (self.all(agent), tool.uses(input));
        let first = uses.iter().position(|used| Self::of_use(&all, used) == Verdict::Ask).unwrap_or(0);
        (first < uses.len()).then(|| uses.swap_remove(first))
    }

    fn of_use(all: &[Rules], used: &Use) -> Verdict {
        let lists: Vec<&Rules> = all.iter().collect();
        if used.is_unclear {
            let any = lists.iter().map(|rules| rules.strictest_of(used.permission)).max();
            return any.unwrap_or(Verdict::Allow);
        }
        let of = |pattern: &String| strictest(&lists, used.permission, pattern);
        used.patterns.iter().map(of).max().unwrap_or(Verdict::Allow)
    }

    /// Tells of each tool whether no use of it is possible, so that the model need not know it.
    pub(crate) fn hides(&self, agent: &str) -> impl Fn(Tool) -> bool {
        let lists = self.of_agent(agent);
        move |tool| {
            self.is_off(tool) || lists.iter().chain(&self.lists).any(|rules| rules.hides(tool.permission()))
        }
    }

    /// The rules of a child beside those of its own agent: everything that binds this session.
    pub(crate) fn of_child(&self, agent: &str) -> Vec<Rules> {
        let off: Vec<Rule> =
            self.switches.0.iter().filter(|rule| rule.action == Verdict::Deny).cloned().collect();
        let lists = self.all(agent).into_iter().chain([Rules(off)]);
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
        if lists.is_empty() && !approvals.is_empty() {
            // Who was asked by the rules of an agent or a repository: a list of approvals alone permits nothing more.
            lists.push(Rules::default());
        }
        for rules in &mut lists {
            for approval in approvals {
                if !rules.0.contains(approval) {
                    rules.0.push(approval.clone());
                }
            }
        }
        Self { lists, ..self.clone() }
    }
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
    fn a_model_that_repeats_itself_is_asked_about_unless_rules_say_otherwise() {
        let rule = |permission, pattern, action| vec![(permission, pattern, action)];
        for (list, tool, want) in [
            (vec![], "bash", Verdict::Ask),
            (rule("bash", "*", Verdict::Allow), "bash", Verdict::Ask),
            (rule("doom_loop", "*", Verdict::Allow), "bash", Verdict::Allow),
            (rule("doom_loop", "read", Verdict::Allow), "bash", Verdict::Ask),
            (rule("doom_loop", "bash", Verdict::Deny), "bash", Verdict::Deny),
            (rule("*", "*", Verdict::Allow), "bash", Verdict::Allow),
        ] {
            assert_eq!(rights(&list).repeats("build", tool), want, "{list:?}");
        }
        let mut asked = rights(&[]);
        asked.allow(doubt::PERMISSION, &["bash".to_owned()]);
        assert_eq!(
            (asked.repeats("build", "bash"), asked.repeats("build", "read")),
            (Verdict::Allow, Verdict::Ask)
        );
        let denied = configured("opencode.json", r#"{"permission": {"doom_loop": "deny"}}"#);
        assert_eq!(denied.repeats("explore", "bash"), Verdict::Deny);
        let allowed = configured("opencode.json", r#"{"permission": {"doom_loop": "allow"}}"#);
        assert_eq!(allowed.repeats("explore", "bash"), Verdict::Allow);
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
        assert!(rights.hides("build")(Tool::Edit) && rights.hides("build")(Tool::Write));
    }

    #[test]
    fn only_who_plans_may_end_planning() {
        let rights = Rights::default();
        for (agent, want) in [("plan", Verdict::Allow), ("build", Verdict::Deny), ("explore", Verdict::Deny)]
        {
            assert_eq!(rights.verdict(agent, Tool::PlanExit, &json!({})), want, "{agent}");
            assert_eq!(rights.hides(agent)(Tool::PlanExit), want == Verdict::Deny, "{agent}");
        }
        assert!(rights.hides("plan")(Tool::Write) && !rights.hides("plan")(Tool::Bash));
        // Whoever it gives a part of the work may change nothing either.
        let child = Rights::new(rights.of_child("plan"));
        let write = json!({"filePath": "/workspace/a"});
        assert_eq!(child.verdict("explore", Tool::Write, &write), Verdict::Deny);
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
                assert!(rights.hides("build")(tool), "{tool:?} of {tools:?}");
                assert_eq!(rights.verdict("build", tool, &json!({})), Verdict::Deny, "{tool:?} of {tools:?}");
            }
            for tool in on {
                assert!(!rights.hides("build")(tool), "{tool:?} of {tools:?}");
            }
        }
        let no_bash = BTreeMap::from([("bash".to_owned(), false)]);
        let rights = Rights::default().of_prompt(Some(&no_bash));
        assert_eq!(rights.verdict("build", Tool::Batch, &inner), Verdict::Deny, "not by way of a batch");
        assert!(rights.of_child("build").contains(&Rules(vec![Rule::of("bash", Verdict::Deny)])));
    }

    fn configured(name: &str, json: &str) -> Rights {
        let document =
            settings::document::Document::json(domain::level::Level::Repository, name, json).unwrap();
        let mut rights = Rights::default();
        rights.configure(Arc::new(settings::merge::merge(&[document]).unwrap().settings));
        rights
    }

    #[test]
    fn agents_of_a_repository_do_what_their_rules_leave_them() {
        let mut rights = configured(
            "opencode.json",
            r#"{"permission": {"bash": {"*": "ask", "rm *": "deny"}},
                "agent": {"review": {"permission": {"edit": "deny"}, "mode": "subagent", "description": "reviews"},
                          "explore": {"disable": true}, "main": {"mode": "primary"},
                          "title": {"mode": "all", "permission": {"*": "allow"}}}}"#,
        );
        let bash = |rights: &Rights, agent: &str, command: &str| {
            rights.verdict(agent, Tool::Bash, &json!({"command": command}))
        };
        let edit = |rights: &Rights, agent: &str| {
            rights.verdict(agent, Tool::Write, &json!({"filePath": "/workspace/a"}))
        };
        assert_eq!((edit(&rights, "review"), edit(&rights, "build")), (Verdict::Deny, Verdict::Allow));
        assert!(rights.hides("review")(Tool::Edit) && !rights.hides("build")(Tool::Edit));
        for refused in ["nobody", "explore", "title"] {
            assert_eq!(edit(&rights, refused), Verdict::Deny, "{refused}");
        }
        assert_eq!(
            (bash(&rights, "build", "ls"), bash(&rights, "review", "rm a")),
            (Verdict::Ask, Verdict::Deny)
        );
        let names = |mode| rights.agents(mode).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(Mode::Subagent), ["general", "review"]);
        assert_eq!(names(Mode::Primary), ["build", "plan", "general", "main"]);

        // A child of a reviewer may not edit either, whoever it is.
        let child = Rights::new(rights.of_child("review"));
        assert_eq!(edit(&child, "build"), Verdict::Deny);

        let asked = rights.to_ask("build", Tool::Bash, &json!({"command": "ls"})).unwrap();
        rights.allow(asked.permission, &asked.always);
        assert_eq!(
            (bash(&rights, "build", "ls"), bash(&rights, "build", "rm a")),
            (Verdict::Allow, Verdict::Deny)
        );
    }
}
