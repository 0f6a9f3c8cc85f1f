//! The permissions of a loop: the rules of the answering agent, of its session and of every ancestor. The strictest rule
//! counts.

use super::uses::{Subject, Use};
use crate::{conversation::marks, tools::tool::Tool};
use domain::policy::{
    agent::{self, Agent, Mode},
    permission::{Rule, Rules, Verdict, strictest},
};
use settings::{self, Settings, SubtaskFiles};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// What a model reads of an agent whose subtasks fork the files.
const COPY_NOTE: &str = "works on its own copy of the files";

/// The permissions of a session: its own lists of rules and those of its ancestors, the settings of each agent, and the
/// tools that a prompt switches off.
#[derive(Debug, Clone, Default)]
pub(crate) struct Permissions {
    lists: Vec<Rules>,
    settings: Arc<Settings>,
    switches: Rules,
}

impl Permissions {
    pub(crate) fn new(lists: Vec<Rules>) -> Self {
        Self { lists, ..Self::default() }
    }

    /// Applies the settings of the platform and the repository.
    pub(crate) fn configure(&mut self, settings: Arc<Settings>) {
        self.settings = settings;
    }

    /// The settings of an agent, if they name it.
    pub(crate) fn agent(&self, agent: &str) -> Option<&settings::Agent> {
        self.settings.agents.get(agent)
    }

    /// The files in which the subtasks of an agent work.
    pub(crate) fn subtask_files(&self, agent: &str) -> SubtaskFiles {
        self.agent(agent).and_then(|agent| agent.files).unwrap_or_default()
    }

    /// Whether an agent exists and may answer prompts.
    pub(crate) fn knows(&self, agent: &str) -> bool {
        if agent::is_hidden(agent) {
            return false;
        }
        let configured = self.agent(agent);
        (Agent::parse(agent).is_some() || configured.is_some())
            && configured.is_none_or(|agent| agent.disable != Some(true))
    }

    /// The names and descriptions of all agents that can be used in a mode.
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

    /// The subagents for the model that gives tasks: their descriptions say which of them work on a copy of the files.
    pub(crate) fn described_subagents(&self) -> Vec<(String, String)> {
        let mut agents = self.agents(Mode::Subagent);
        for (name, description) in &mut agents {
            match self.subtask_files(name) {
                SubtaskFiles::Fork if description.is_empty() => COPY_NOTE.clone_into(description),
                SubtaskFiles::Fork => description.push_str(&format!(" ({COPY_NOTE})")),
                SubtaskFiles::Share => {}
            }
        }
        agents
    }

    /// Every list that binds an agent in this session. Answers "always" also satisfy "ask" rules of the settings.
    fn all(&self, agent: &str) -> Vec<Rules> {
        let approvals: Vec<Rule> =
            self.lists.iter().flat_map(|rules| &rules.0).filter(|rule| rule.is_approval).cloned().collect();
        let mut all = self.of_agent(agent);
        all.iter_mut().for_each(|rules| rules.0.extend(approvals.iter().cloned()));
        all.extend(self.lists.iter().cloned());
        all
    }

    /// Every list that binds an agent in any session of this repository.
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

    /// The permissions of a turn whose prompt switches tools on or off.
    pub(crate) fn of_prompt(&self, tools: Option<&BTreeMap<String, bool>>) -> Self {
        let rule =
            |(name, on): (&String, &bool)| Rule::of(name, if *on { Verdict::Allow } else { Verdict::Deny });
        Self { switches: Rules(tools.into_iter().flatten().map(rule).collect()), ..self.clone() }
    }

    /// Whether the prompt switched a tool off, by its own name or by the permission that it needs.
    fn is_off(&self, tool: Tool) -> bool {
        let is_named = self.switches.0.iter().any(|rule| rule.permission == tool.name());
        self.switches.hides(tool.name()) || (!is_named && self.switches.hides(tool.permission()))
    }

    /// Whether a call may run, needs a person's permission, or must not run.
    pub(crate) fn verdict(&self, agent: &str, subject: &Subject) -> Verdict {
        if subject.tools.iter().any(|tool| self.is_off(*tool)) {
            return Verdict::Deny;
        }
        let all = self.all(agent);
        subject.uses.iter().map(|used| Self::of_use(&all, used)).max().unwrap_or(Verdict::Allow)
    }

    /// Whether the model may keep making the same call of `tool` with the same answer. Rules of the session and of settings
    /// decide; without such a rule, a person does. The built-in rules of agents do not cover repetition.
    pub(crate) fn repetition_verdict(&self, agent: &str, tool: &str) -> Verdict {
        let mut lists: Vec<Rules> = self.settings.rules(agent);
        let approvals: Vec<Rule> =
            self.lists.iter().flat_map(|rules| &rules.0).filter(|rule| rule.is_approval).cloned().collect();
        lists.iter_mut().for_each(|rules| rules.0.extend(approvals.iter().cloned()));
        lists.extend(self.lists.iter().cloned());
        let ruled = lists.iter().filter_map(|rules| rules.find_verdict(marks::REPETITION, tool)).max();
        let is_approved = || self.lists.iter().any(|rules| rules.approves(marks::REPETITION, tool));
        match ruled {
            Some(verdict) => verdict,
            None if is_approved() => Verdict::Allow,
            None => Verdict::Ask,
        }
    }

    /// The use that a person must allow: the first one of a call that no rule allows yet, with what the other ones of the same
    /// permission use.
    pub(crate) fn use_to_ask(&self, agent: &str, subject: &Subject) -> Option<Use> {
        let all = self.all(agent);
        let mut uses = subject.uses.iter().filter(|used| Self::of_use(&all, used) == Verdict::Ask);
        let Some(mut asked) = uses.next().cloned() else { return subject.uses.first().cloned() };
        for other in uses.filter(|used| used.permission == asked.permission) {
            asked.patterns.extend(other.patterns.iter().cloned());
            asked.always.extend(other.always.iter().cloned());
            asked.is_unclear |= other.is_unclear;
        }
        asked.patterns = distinct(asked.patterns);
        asked.always = distinct(asked.always);
        Some(asked)
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

    /// Tells for each tool whether the rules forbid every use, so that the model does not see it.
    pub(crate) fn hides(&self, agent: &str) -> impl Fn(Tool) -> bool {
        let lists = self.of_agent(agent);
        move |tool| {
            self.is_off(tool) || lists.iter().chain(&self.lists).any(|rules| rules.hides(tool.permission()))
        }
    }

    /// The rules of a child besides those of its own agent: everything that binds `agent` in this session. The to-do list belongs to
    /// the agent that gave the task, unless a setting of the child's agent mentions it.
    pub(crate) fn of_child(&self, agent: &str, child: &str) -> Vec<Rules> {
        let mut off: Vec<Rule> =
            self.switches.0.iter().filter(|rule| rule.action == Verdict::Deny).cloned().collect();
        let settings = self.settings.rules(child);
        let mentions =
            |name: &str| settings.iter().flat_map(|rules| &rules.0).any(|rule| rule.permission == name);
        let todos = [Tool::TodoRead, Tool::TodoWrite].map(Tool::permission).into_iter();
        off.extend(todos.filter(|name| !mentions(name)).map(|name| Rule::of(name, Verdict::Deny)));
        let lists = self.all(agent).into_iter().chain([Rules(off)]);
        lists.filter(|rules| !rules.0.is_empty()).collect()
    }

    /// Applies an answer "always". Applying it again changes nothing.
    pub(crate) fn allow(&mut self, permission: &str, patterns: &[String]) {
        let approvals: Vec<Rule> =
            patterns.iter().map(|pattern| Rule::approval(permission, pattern)).collect();
        *self = self.with(&approvals);
    }

    /// These permissions, with answers "always" applied.
    pub(crate) fn with(&self, approvals: &[Rule]) -> Self {
        let mut lists = self.lists.clone();
        if lists.is_empty() && !approvals.is_empty() {
            // The rules that required the request belong to an agent or a repository. A list that contains only approvals
            // permits nothing else.
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

/// The texts without repetitions, in their order.
fn distinct(texts: Vec<String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    texts.into_iter().filter(|text| seen.insert(text.clone())).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;
    use crate::calls::uses::tests::subject;
    use serde_json::json;

    fn permissions(list: &[(&str, &str, Verdict)]) -> Permissions {
        let rule = |(permission, pattern, action): &(&str, &str, Verdict)| Rule {
            permission: (*permission).to_owned(),
            pattern: (*pattern).to_owned(),
            action: *action,
            is_approval: false,
        };
        Permissions::new(vec![Rules(list.iter().map(rule).collect())])
    }

    #[test]
    fn a_person_is_asked_about_repetition_unless_a_rule_decides() {
        let rule = |permission, pattern, action| vec![(permission, pattern, action)];
        for (list, tool, want) in [
            (vec![], "bash", Verdict::Ask),
            (rule("bash", "*", Verdict::Allow), "bash", Verdict::Ask),
            (rule("doom_loop", "*", Verdict::Allow), "bash", Verdict::Allow),
            (rule("doom_loop", "read", Verdict::Allow), "bash", Verdict::Ask),
            (rule("doom_loop", "bash", Verdict::Deny), "bash", Verdict::Deny),
            (rule("*", "*", Verdict::Allow), "bash", Verdict::Allow),
        ] {
            assert_eq!(permissions(&list).repetition_verdict("build", tool), want, "{list:?}");
        }
        let mut with_answer = permissions(&[]);
        with_answer.allow(marks::REPETITION, &["bash".to_owned()]);
        assert_eq!(
            (
                with_answer.repetition_verdict("build", "bash"),
                with_answer.repetition_verdict("build", "read")
            ),
            (Verdict::Allow, Verdict::Ask)
        );
        let denied = configured("opencode.json", r#"{"permission": {"doom_loop": "deny"}}"#);
        assert_eq!(denied.repetition_verdict("explore", "bash"), Verdict::Deny);
        let allowed = configured("opencode.json", r#"{"permission": {"doom_loop": "allow"}}"#);
        assert_eq!(allowed.repetition_verdict("explore", "bash"), Verdict::Allow);
    }

    #[test]
    fn each_command_of_a_line_must_be_allowed() {
        let permissions = permissions(&[
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
            // What it runs is unclear: the strictest of all rules about bash counts.
            ("$TOOL a", Verdict::Deny),
            ("cat /etc/passwd", Verdict::Ask),
        ] {
            let verdict = permissions.verdict("build", &subject(Tool::Bash, &json!({"command": command})));
            assert_eq!(verdict, want, "{command}");
        }
        let tool_use = permissions
            .use_to_ask("build", &subject(Tool::Bash, &json!({"command": "cat /etc/passwd"})))
            .unwrap();
        assert_eq!(
            (tool_use.permission, &tool_use.patterns[..]),
            ("external_directory", &["/etc/*".to_owned()][..])
        );
    }

    #[test]
    fn an_answer_always_covers_what_it_names() {
        let mut permissions = permissions(&[("bash", "*", Verdict::Ask)]);
        let tool_use = permissions
            .use_to_ask("build", &subject(Tool::Bash, &json!({"command": "git commit -m x"})))
            .unwrap();
        permissions.allow(tool_use.permission, &tool_use.always);
        for (command, want) in [
            ("git commit -m y", Verdict::Allow),
            ("git commit", Verdict::Allow),
            ("git commit && git push", Verdict::Ask),
            ("git push", Verdict::Ask),
        ] {
            let verdict = permissions.verdict("build", &subject(Tool::Bash, &json!({"command": command})));
            assert_eq!(verdict, want, "{command}");
        }
    }

    #[test]
    fn a_person_is_asked_about_all_uses_of_one_permission() {
        let permissions = permissions(&[("bash", "*", Verdict::Ask), ("bash", "ls *", Verdict::Allow)]);
        let call = |command: &str| json!({"tool": "bash", "parameters": {"command": command}});
        let batch = json!({"tool_calls": [call("git status"), call("ls"), call("make"), call("make")]});
        let asked = permissions.use_to_ask("build", &subject(Tool::Batch, &batch)).unwrap();
        assert_eq!(asked.patterns, ["git status", "make"]);
        assert_eq!(asked.always.len(), 2, "{:?}", asked.always);
    }

    /// The model chooses the words of the first command.
    #[test]
    fn an_answer_always_contains_no_wildcard_that_the_model_wrote() {
        for command in ["*", "ec*o a", "npm run '*'", "$X a"] {
            let mut permissions =
                permissions(&[("bash", "*", Verdict::Ask), ("bash", "*secret*", Verdict::Deny)]);
            let tool_use =
                permissions.use_to_ask("build", &subject(Tool::Bash, &json!({"command": command}))).unwrap();
            permissions.allow(tool_use.permission, &tool_use.always);
            for other in ["touch a", "npm run build", "echo secret"] {
                let verdict = permissions.verdict("build", &subject(Tool::Bash, &json!({"command": other})));
                assert_ne!(verdict, Verdict::Allow, "{command:?} allowed {other:?}: {:?}", tool_use.always);
            }
        }
    }

    #[test]
    fn a_rule_that_forbids_editing_forbids_writing() {
        let permissions = permissions(&[("edit", "*", Verdict::Deny)]);
        for tool in [Tool::Edit, Tool::Write] {
            assert_eq!(
                permissions.verdict("build", &subject(tool, &json!({"filePath": "/workspace/a"}))),
                Verdict::Deny
            );
        }
        assert!(permissions.hides("build")(Tool::Edit) && permissions.hides("build")(Tool::Write));
    }

    #[test]
    fn only_the_plan_agent_may_end_planning() {
        let permissions = Permissions::default();
        for (agent, want) in [("plan", Verdict::Allow), ("build", Verdict::Deny), ("explore", Verdict::Deny)]
        {
            assert_eq!(permissions.verdict(agent, &subject(Tool::PlanExit, &json!({}))), want, "{agent}");
            assert_eq!(permissions.hides(agent)(Tool::PlanExit), want == Verdict::Deny, "{agent}");
        }
        assert!(permissions.hides("plan")(Tool::Write) && !permissions.hides("plan")(Tool::Bash));
        // Its subagents may change nothing either.
        let child = Permissions::new(permissions.of_child("plan", "explore"));
        let write = json!({"filePath": "/workspace/a"});
        assert_eq!(child.verdict("explore", &subject(Tool::Write, &write)), Verdict::Deny);
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
            let permissions = Permissions::default().of_prompt(Some(&tools));
            for tool in off {
                assert!(permissions.hides("build")(tool), "{tool:?} of {tools:?}");
                assert_eq!(
                    permissions.verdict("build", &subject(tool, &json!({}))),
                    Verdict::Deny,
                    "{tool:?} of {tools:?}"
                );
            }
            for tool in on {
                assert!(!permissions.hides("build")(tool), "{tool:?} of {tools:?}");
            }
        }
        let no_bash = BTreeMap::from([("bash".to_owned(), false)]);
        let permissions = Permissions::default().of_prompt(Some(&no_bash));
        assert_eq!(
            permissions.verdict("build", &subject(Tool::Batch, &inner)),
            Verdict::Deny,
            "not by way of a batch"
        );
        let child = Permissions::new(permissions.of_child("build", "general"));
        assert_eq!(child.verdict("general", &subject(Tool::Bash, &json!({"command": "ls"}))), Verdict::Deny);
    }

    #[test]
    fn a_child_has_no_to_do_list_unless_settings_give_it_one() {
        let settings = r#"{"agent": {
            "plain": {"mode": "subagent"},
            "lists": {"mode": "subagent", "permission": {"todowrite": "allow", "todoread": "allow"}}
        }}"#;
        let parent = configured("opencode.json", settings);
        for (child, is_hidden) in [("general", true), ("plain", true), ("lists", false)] {
            let mut permissions = configured("opencode.json", settings);
            permissions.lists = parent.of_child("build", child);
            for tool in [Tool::TodoRead, Tool::TodoWrite] {
                assert_eq!(permissions.hides(child)(tool), is_hidden, "{child} {tool:?}");
            }
        }
        assert!(!parent.hides("build")(Tool::TodoWrite));
    }

    fn configured(name: &str, json: &str) -> Permissions {
        let document =
            settings::document::Document::json(domain::policy::level::Level::Repository, name, json).unwrap();
        let mut permissions = Permissions::default();
        permissions.configure(Arc::new(settings::merge::merge(&[document]).unwrap().settings));
        permissions
    }

    #[test]
    fn agents_of_a_repository_do_what_their_rules_leave_them() {
        let mut permissions = configured(
            "opencode.json",
            r#"{"permission": {"bash": {"*": "ask", "rm *": "deny"}},
                "agent": {"review": {"permission": {"edit": "deny"}, "mode": "subagent", "description": "reviews"},
                          "explore": {"disable": true}, "main": {"mode": "primary"},
                          "title": {"mode": "all", "permission": {"*": "allow"}}}}"#,
        );
        let bash = |permissions: &Permissions, agent: &str, command: &str| {
            permissions.verdict(agent, &subject(Tool::Bash, &json!({"command": command})))
        };
        let edit = |permissions: &Permissions, agent: &str| {
            permissions.verdict(agent, &subject(Tool::Write, &json!({"filePath": "/workspace/a"})))
        };
        assert_eq!(
            (edit(&permissions, "review"), edit(&permissions, "build")),
            (Verdict::Deny, Verdict::Allow)
        );
        assert!(permissions.hides("review")(Tool::Edit) && !permissions.hides("build")(Tool::Edit));
        for refused in ["nobody", "explore", "title"] {
            assert_eq!(edit(&permissions, refused), Verdict::Deny, "{refused}");
        }
        assert_eq!(
            (bash(&permissions, "build", "ls"), bash(&permissions, "review", "rm a")),
            (Verdict::Ask, Verdict::Deny)
        );
        let names = |mode| permissions.agents(mode).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(Mode::Subagent), ["general", "review"]);
        assert_eq!(names(Mode::Primary), ["build", "plan", "general", "main"]);

        // A child of a reviewer may not edit either, whichever agent answers in it.
        let child = Permissions::new(permissions.of_child("review", "build"));
        assert_eq!(edit(&child, "build"), Verdict::Deny);

        let tool_use =
            permissions.use_to_ask("build", &subject(Tool::Bash, &json!({"command": "ls"}))).unwrap();
        permissions.allow(tool_use.permission, &tool_use.always);
        assert_eq!(
            (bash(&permissions, "build", "ls"), bash(&permissions, "build", "rm a")),
            (Verdict::Allow, Verdict::Deny)
        );
    }
}
