//! Files of settings, put together: platform, tenant, project, repository. A later file wins, except over permissions and
//! over the models that may be asked: there each level has its say and all bind, so a repository can narrow what its
//! tenant permits and never widen it.

use crate::{
    Settings,
    document::Document,
    models,
    node::{Content, Entry, KeyPath, Node, Origin},
    problem::{Problem, Problems},
    read::{Ignored, KNOWN, Reader},
};
use domain::{
    level::Level,
    limits::{SETTINGS_BYTES_MAX, SETTINGS_FILES_MAX},
};
use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
};

/// What files of settings say together. `Debug` shows no secrets.
pub struct Merged {
    /// The settings.
    pub settings: Settings,
    /// What has no effect, file by file.
    pub ignored: Vec<Ignored>,
    /// Everything but what binds level by level.
    pub(crate) tree: Node,
    /// What binds of each level, in their order: permissions, and which models may be asked.
    pub(crate) rules: Vec<Node>,
}

impl fmt::Debug for Merged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Merged").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Puts files together. Their order matters inside a level only, where the later one wins, permissions included.
///
/// # Errors
/// All mistakes of all files, and what exceeds a bound only together.
pub fn merge(documents: &[Document]) -> Result<Merged, Problems> {
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
        // Also a level that says nothing of permissions is read: its agents exist.
        bound.push(reader.settings(&own));
        let (rest, permissions) = split(own);
        overlay_root(&mut tree, rest);
        rules.push(permissions);
    }
    // What is wrong with one level would be told a second time for all.
    std::mem::take(&mut reader.problems).or(())?;
    let mut settings = reader.settings(&tree);
    for level in bound {
        settings.permission.extend(level.permission);
        settings.models.extend(level.models);
        for (name, agent) in level.agents {
            settings.agents.entry(name).or_default().permission.extend(agent.permission);
        }
    }
    reader.problems.or(Merged { settings, ignored, tree, rules })
}

impl Document {
    /// What the file says of permissions and of the models that may be asked, and nothing else.
    pub fn rights(&self) -> Self {
        let (_, rights) = split(self.root.clone());
        Self { root: rights, ..self.clone() }
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

/// Lays the root of a file over what came before it: `instructions` are added, the rest is overlaid.
fn overlay_root(base: &mut Node, over: Node) {
    let (Content::Map(entries), Content::Map(more)) = (&mut base.value, over.value) else { return };
    let (added, more): (Vec<_>, Vec<_>) = more.into_iter().partition(|entry| &*entry.key == "instructions");
    for entry in added {
        add_instructions(entries, entry);
    }
    overlay_entries(entries, more);
}

/// Adds those that are not there yet, at the end.
fn add_instructions(entries: &mut Vec<Entry>, over: Entry) {
    let Content::List(more) = over.node.value else { return };
    let at = entries.iter().position(|entry| entry.key == over.key).unwrap_or_else(|| {
        let node = Node { origin: over.node.origin, value: Content::List(vec![]) };
        entries.push(Entry { key: over.key, origin: over.origin, node });
        entries.len() - 1
    });
    let Content::List(items) = &mut entries[at].node.value else { return };
    let text = |node: &Node| match &node.value {
        Content::Text { text, .. } => Some(text.clone()),
        _ => None,
    };
    let mut seen: HashSet<_> = items.iter().filter_map(text).collect();
    items.extend(more.into_iter().filter(|item| text(item).is_some_and(|text| seen.insert(text))));
}

/// Lays one value over another: objects member by member, everything else as a whole.
fn overlay(base: &mut Node, over: Node) {
    match (&mut base.value, over) {
        (Content::Map(entries), Node { value: Content::Map(more), origin: _ }) => {
            overlay_entries(entries, more)
        }
        (_, over) => *base = over,
    }
}

/// A key that is there keeps its place, as in OpenCode; a key that is new comes last.
fn overlay_entries(entries: &mut Vec<Entry>, more: Vec<Entry>) {
    let index: HashMap<_, _> =
        entries.iter().enumerate().map(|(at, entry)| (Arc::clone(&entry.key), at)).collect();
    for entry in more {
        match index.get(&entry.key) {
            Some(at) => overlay(&mut entries[*at].node, entry.node),
            None => entries.push(entry),
        }
    }
}

/// Takes out what binds level by level, permissions of agents too, and drops what has no effect. Gives the rest first.
fn split(root: Node) -> (Node, Node) {
    let Node { origin, value } = root;
    let (mut rest, mut rules) = (vec![], vec![]);
    for entry in entries_of(value) {
        let Entry { key, origin, node } = entry;
        match &*key {
            "permission" | "tools" | "enabled_providers" | "disabled_providers" => {
                rules.push(Entry { key, origin, node });
            }
            "provider" => rules.push(Entry { key, origin, node: models::effective(node) }),
            "agent" => {
                let (agents, permissions) = split_agents(node);
                rest.push(Entry { key: Arc::clone(&key), origin: origin.clone(), node: agents });
                rules.push(Entry { key, origin, node: permissions });
            }
            name if KNOWN.contains(&name) => rest.push(Entry { key, origin, node }),
            _ => {}
        }
    }
    let of = |entries| Node { origin: origin.clone(), value: Content::Map(entries) };
    (of(rest), of(rules))
}

fn split_agents(agents: Node) -> (Node, Node) {
    let (mut rest, mut rules) = (vec![], vec![]);
    for Entry { key, origin, node } in entries_of(agents.value) {
        let at = node.origin;
        let is_rules = |entry: &Entry| ["permission", "tools"].contains(&&*entry.key);
        let (own_rules, own): (Vec<_>, Vec<_>) = entries_of(node.value).into_iter().partition(is_rules);
        let of = |entries| Entry {
            key: Arc::clone(&key),
            origin: origin.clone(),
            node: Node { origin: at.clone(), value: Content::Map(entries) },
        };
        if !own_rules.is_empty() {
            rules.push(of(own_rules));
        }
        rest.push(of(own));
    }
    let of = |entries| Node { origin: agents.origin.clone(), value: Content::Map(entries) };
    (of(rest), of(rules))
}

/// The members of an object; what is none was refused when its file was checked.
fn entries_of(value: Content) -> Vec<Entry> {
    if let Content::Map(entries) = value { entries } else { vec![] }
}
