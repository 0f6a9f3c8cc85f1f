//! Merges settings files: platform, tenant, project, repository. A later file wins, except for permissions and models: there the
//! restrictions of all levels bind, so a repository can narrow but never widen what its tenant permits.

use crate::{
    Settings,
    document::Document,
    meaning::providers,
    meaning::reader::{Ignored, Reader},
    meaning::{
        rules::{AGENT_RULES, ROOT_RULES},
        settings::KNOWN,
    },
    node::{Content, KeyPath, Member, Node, Origin},
    overlay::overlay_members,
    problem::{Problem, Problems},
};
use domain::{
    egress::{git::GIT_CREDENTIALS_MAX, push::PUSH_RULES_MAX},
    limits::{ENVIRONMENT_SECRETS_MAX, SETTINGS_BYTES_MAX, SETTINGS_FILES_MAX},
    policy::level::Level,
};
use std::{collections::HashSet, fmt, sync::Arc};

/// The result of a merge. `Debug` shows no secrets.
pub struct MergedSettings {
    pub settings: Settings,
    /// The values without effect, file by file.
    pub ignored: Vec<Ignored>,
    /// Everything except the restrictions.
    pub(crate) tree: Node,
    /// The restrictions of each level, in order: permissions and models.
    pub(crate) rules: Vec<Node>,
}

impl fmt::Debug for MergedSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MergedSettings").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Merges files. Their order matters only inside a level, where the later file wins, permissions included.
///
/// # Errors
/// All mistakes of all files, and limits that the files exceed together.
pub fn merge(documents: &[Document]) -> Result<MergedSettings, Problems> {
    let mut problems = check_size(documents);
    let mut ignored = vec![];
    for document in documents {
        let mut reader = Reader::default();
        reader.settings(&document.root);
        problems.extend(reader.problems);
        ignored.extend(reader.ignored);
    }
    problems.or(())?;

    let mut tree = empty(Level::Platform);
    let (mut rules, mut reader) = (vec![], Reader::default());
    let mut bound = vec![];
    for level in Level::ALL {
        let mut own = empty(level);
        let files = documents.iter().filter(|document| document.level == level);
        files.for_each(|document| overlay_root(&mut own, document.root.clone()));
        // Read a level without permissions too, because its agents exist.
        bound.push(reader.settings(&own));
        let (rest, permissions) = split(own);
        overlay_root(&mut tree, rest);
        rules.push(permissions);
    }
    // Otherwise a mistake in one level would be reported again for the whole.
    std::mem::take(&mut reader.problems).or(())?;
    let mut settings = reader.settings(&tree);
    for level in bound {
        // A later level can lower this bound and never raise it.
        settings.subagent_depth = [settings.subagent_depth, level.subagent_depth].into_iter().flatten().min();
        settings.permission.extend(level.permission);
        settings.models.extend(level.models);
        settings.network.extend(level.network);
        settings.setup_network.extend(level.setup_network);
        // A variable has one value, whichever of the two gives it.
        settings.secrets.retain(|name, _| !level.variables.contains_key(name));
        settings.variables.retain(|name, _| !level.secrets.contains_key(name));
        settings.variables.extend(level.variables);
        settings.secrets.extend(level.secrets);
        settings.image = level.image.or(settings.image);
        settings.install = level.install.or(settings.install);
        settings.start = level.start.or(settings.start);
        settings.allow_ptrace = level.allow_ptrace.or(settings.allow_ptrace);
        settings.allow_user_namespaces = level.allow_user_namespaces.or(settings.allow_user_namespaces);
        for (prefix, secret) in level.git_credentials {
            settings.git_credentials.retain(|other, _| !other.is_same_place(&prefix));
            settings.git_credentials.insert(prefix, secret);
        }
        for (prefix, push) in level.git_push {
            settings.git_push.retain(|other, _| !other.is_same_place(&prefix));
            settings.git_push.insert(prefix, push);
        }
        for (name, agent) in level.agents {
            settings.agents.entry(name).or_default().permission.extend(agent.permission);
        }
    }
    let mut problems = reader.problems;
    for (what, count, most) in [
        ("prefixes in environment.git.credentials", settings.git_credentials.len(), GIT_CREDENTIALS_MAX),
        ("prefixes in environment.git.push", settings.git_push.len(), PUSH_RULES_MAX),
        ("variables in environment.secrets", settings.secrets.len(), ENVIRONMENT_SECRETS_MAX),
    ] {
        problems.extend(check_count(documents, what, count, most));
    }
    problems.or(MergedSettings { settings, ignored, tree, rules })
}

impl Document {
    /// Returns a document with only the permissions and models of this one.
    pub fn restrictions(&self) -> Self {
        let (_, restrictions) = split(self.root.clone());
        Self { root: restrictions, ..self.clone() }
    }
}

/// An object without members.
fn empty(level: Level) -> Node {
    let origin = Origin { level, file: Arc::from(level.as_str()), line: 1, column: 1 };
    Node { origin, value: Content::Map(vec![]) }
}

fn check_size(documents: &[Document]) -> Problems {
    let mut problems = Problems::default();
    let Some(last) = documents.last() else { return problems };
    let mut complain = |expected: String, found: usize| {
        let (origin, path) = (last.root.origin.clone(), KeyPath::default());
        problems.push(Problem { origin, path, expected, found: found.to_string() });
    };
    let bytes = documents.iter().map(|document| document.bytes).fold(0, usize::saturating_add);
    if documents.len() > SETTINGS_FILES_MAX {
        complain(format!("at most {SETTINGS_FILES_MAX} files"), documents.len());
    }
    if bytes > SETTINGS_BYTES_MAX {
        complain(format!("at most {SETTINGS_BYTES_MAX} bytes in all files"), bytes);
    }
    problems
}

/// Each level is within the bound, but all of them together may not be.
fn check_count(documents: &[Document], what: &str, count: usize, most: usize) -> Problems {
    let mut problems = Problems::default();
    if let Some(last) = documents.last().filter(|_| count > most) {
        let expected = format!("at most {most} {what} of all files");
        let (origin, path) = (last.root.origin.clone(), KeyPath::default());
        problems.push(Problem { origin, path, expected, found: count.to_string() });
    }
    problems
}

/// Overlays the root of a file on the earlier files: appends its `instructions` and `permissions`, and overlays everything else.
fn overlay_root(base: &mut Node, over: Node) {
    let (Content::Map(members), Content::Map(more)) = (&mut base.value, over.value) else { return };
    for member in more {
        match &*member.key {
            "instructions" => add_items(members, member),
            "permissions" => add_permissions(members, member),
            _ => overlay_members(members, vec![member]),
        }
    }
}

/// Appends to each list of Claude Code's permissions: no file takes back what another one forbids.
fn add_permissions(members: &mut Vec<Member>, over: Member) {
    let Content::Map(more) = over.node.value else { return };
    let at = members.iter().position(|member| member.key == over.key).unwrap_or_else(|| {
        let node = Node { origin: over.node.origin, value: Content::Map(vec![]) };
        members.push(Member { key: over.key, origin: over.origin, node });
        members.len() - 1
    });
    let Content::Map(lists) = &mut members[at].node.value else { return };
    more.into_iter().for_each(|list| add_items(lists, list));
}

/// Appends the ones that are not in the list yet.
fn add_items(members: &mut Vec<Member>, over: Member) {
    let Content::List(more) = over.node.value else { return };
    let at = members.iter().position(|member| member.key == over.key).unwrap_or_else(|| {
        let node = Node { origin: over.node.origin, value: Content::List(vec![]) };
        members.push(Member { key: over.key, origin: over.origin, node });
        members.len() - 1
    });
    let Content::List(items) = &mut members[at].node.value else { return };
    let text = |node: &Node| node.as_text().map(str::to_owned);
    let mut seen: HashSet<_> = items.iter().filter_map(text).collect();
    items.extend(more.into_iter().filter(|item| text(item).is_some_and(|text| seen.insert(text))));
}

/// Separates the restrictions, including those of agents, and drops values without effect. Returns the rest first.
fn split(root: Node) -> (Node, Node) {
    let Node { origin, value } = root;
    let (mut rest, mut rules) = (vec![], vec![]);
    for member in members_of(value) {
        let Member { key, origin, node } = member;
        match &*key {
            "enabled_providers" | "disabled_providers" | "environment" => {
                rules.push(Member { key, origin, node })
            }
            name if ROOT_RULES.contains(&name) => rules.push(Member { key, origin, node }),
            "provider" => rules.push(Member { key, origin, node: providers::effective(node) }),
            "agent" => {
                let (agents, permissions) = split_agents(node);
                rest.push(Member { key: Arc::clone(&key), origin: origin.clone(), node: agents });
                rules.push(Member { key, origin, node: permissions });
            }
            name if KNOWN.contains(&name) => rest.push(Member { key, origin, node }),
            _ => {}
        }
    }
    let of = |members| Node { origin: origin.clone(), value: Content::Map(members) };
    (of(rest), of(rules))
}

fn split_agents(agents: Node) -> (Node, Node) {
    let (mut rest, mut rules) = (vec![], vec![]);
    for Member { key, origin, node } in members_of(agents.value) {
        let at = node.origin;
        let is_rules = |member: &Member| AGENT_RULES.contains(&&*member.key);
        let (own_rules, own): (Vec<_>, Vec<_>) = members_of(node.value).into_iter().partition(is_rules);
        let of = |members| Member {
            key: Arc::clone(&key),
            origin: origin.clone(),
            node: Node { origin: at.clone(), value: Content::Map(members) },
        };
        if !own_rules.is_empty() {
            rules.push(of(own_rules));
        }
        rest.push(of(own));
    }
    let of = |members| Node { origin: agents.origin.clone(), value: Content::Map(members) };
    (of(rest), of(rules))
}

/// The members of an object. Other values were refused when their file was checked.
fn members_of(value: Content) -> Vec<Member> {
    if let Content::Map(members) = value { members } else { vec![] }
}
