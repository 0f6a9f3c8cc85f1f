//! The permissions of a loop: the rules of the answering agent, of its session and of every ancestor. The strictest rule
//! counts.

use super::{
    readers::FilesReaders,
    uses::{Subject, Use},
};
use crate::{
    conversation::marks,
    tools::{egress::network, tool::Tool},
};
use convert_client::converter::TenantConverter;
use domain::{
    egress::{
        allow::{AllowLists, HostRefusal},
        host::HostName,
    },
    policy::{
        agent::{self, Agent, Mode},
        permission::{Rule, Rules, Verdict, strictest},
    },
};
use serde_json::Value;
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
    /// Read from the settings, once.
    hosts: Arc<AllowLists>,
    switches: Rules,
    readers: FilesReaders,
}

impl Permissions {
    /// Those of a session with these lists of rules, whose files `readers` may read.
    pub(crate) fn new(lists: Vec<Rules>, readers: FilesReaders) -> Self {
        Self { lists, readers, ..Self::default() }
    }

    /// Applies the settings of the platform and the repository.
    pub(crate) fn configure(&mut self, settings: Arc<Settings>) {
        self.hosts = Arc::new(settings.allow_lists());
        self.settings = settings;
    }

    /// What the settings let the session reach.
    pub(crate) fn hosts(&self) -> &AllowLists {
        &self.hosts
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
        // Only people and `environment.network` open hosts: no rule allows one.
        let hosts = Rules(vec![Rule::of(Tool::Network.permission(), Verdict::Ask)]);
        [own, hosts].into_iter().chain(self.pages(agent)).chain(self.settings.rules(agent)).collect()
    }

    /// Asks before a page is read if its address could carry files away that not everybody may read. A list of hosts above the repository decides instead, and so does
    /// each rule that names the tool.
    fn pages(&self, agent: &str) -> Option<Rules> {
        if self.readers == FilesReaders::Anybody || !self.settings.network().is_empty() {
            return None;
        }
        let name = Tool::WebFetch.permission();
        let rules = self.settings.rules(agent).into_iter().chain(self.lists.iter().cloned());
        let named =
            rules.flat_map(|rules| rules.0).filter(|rule| rule.permission == name && !rule.is_approval);
        Some(Rules(std::iter::once(Rule::of(name, Verdict::Ask)).chain(named).collect()))
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

    /// Whether a call of `agent` may run, needs a person's permission, or must not run. Reads its shell commands only if a rule may refuse one.
    pub(crate) async fn judge(
        &self,
        agent: &str,
        converter: TenantConverter<'_>,
        tool: Tool,
        input: &Value,
    ) -> Verdict {
        let unread = Subject::unread(tool, input);
        match self.verdict(agent, &unread) {
            Verdict::Ask | Verdict::Deny if unread.has_commands() => {
                self.verdict(agent, &Subject::of(converter, tool, input).await)
            }
            verdict => verdict,
        }
    }

    fn verdict(&self, agent: &str, subject: &Subject) -> Verdict {
        if subject.tools.iter().any(|tool| self.is_off(*tool)) {
            return Verdict::Deny;
        }
        let all = self.all(agent);
        subject.uses.iter().map(|used| self.of_use(&all, used)).max().unwrap_or(Verdict::Allow)
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
        let mut uses = subject.uses.iter().filter(|used| self.of_use(&all, used) == Verdict::Ask);
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

    fn of_use(&self, all: &[Rules], used: &Use) -> Verdict {
        let lists: Vec<&Rules> = all.iter().collect();
        if used.is_unclear {
            let any = lists.iter().map(|rules| rules.strictest_of(used.permission)).max();
            return any.unwrap_or(Verdict::Allow);
        }
        let of = |pattern: &String| strictest(&lists, used.permission, pattern);
        match used.patterns.iter().map(of).max().unwrap_or(Verdict::Allow) {
            // There is nothing to ask: the call opens no host, and says why.
            Verdict::Ask
                if used.permission == Tool::Network.permission()
                    && !self.may_open(&parse_hosts(&used.patterns)) =>
            {
                Verdict::Allow
            }
            verdict => verdict,
        }
    }

    /// Whether people may let the session reach these hosts, some of which it does not reach yet.
    fn may_open(&self, hosts: &[HostName]) -> bool {
        let needs = |host: &HostName| self.hosts.check(host) == Err(HostRefusal::NeedsPermission);
        let is_open = |host: &HostName| self.hosts.check(host).is_ok();
        hosts.iter().any(needs) && hosts.iter().all(|host| is_open(host) || needs(host))
    }

    /// The hosts that a call of `network` opens if people allow it; empty: there is nothing to allow.
    pub(crate) fn hosts_to_open(&self, input: &Value) -> Vec<HostName> {
        let mut hosts = network::hosts(input).unwrap_or_default();
        if !self.may_open(&hosts) {
            return vec![];
        }
        hosts.retain(|host| self.hosts.check(host).is_err());
        hosts
    }

    /// The hosts that people have allowed with an answer "always" in this session.
    pub(crate) fn approved_hosts(&self) -> BTreeSet<HostName> {
        let rules = self.lists.iter().flat_map(|rules| &rules.0);
        let approvals =
            rules.filter(|rule| rule.is_approval && rule.permission == Tool::Network.permission());
        approvals.filter_map(|rule| HostName::parse(&rule.pattern).ok()).collect()
    }

    /// Tells for each tool whether the rules forbid every use, so that the model does not see it.
    pub(crate) fn hides(&self, agent: &str) -> impl Fn(Tool) -> bool {
        let lists = self.of_agent(agent);
        move |tool| {
            self.is_off(tool) || lists.iter().chain(&self.lists).any(|rules| rules.hides(tool.permission()))
        }
    }

    /// The rules of a child in addition to those of its own agent: everything that binds `agent` in this session. The to-do list belongs
    /// to the agent that gave the task, unless a setting of the child's agent mentions it.
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

fn parse_hosts(patterns: &[String]) -> Vec<HostName> {
    patterns.iter().filter_map(|pattern| HostName::parse(pattern).ok()).collect()
}

/// The texts without repetitions, in their order.
fn distinct(texts: Vec<String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    texts.into_iter().filter(|text| seen.insert(text.clone())).collect()
}

#[cfg(test)]
mod tests;
