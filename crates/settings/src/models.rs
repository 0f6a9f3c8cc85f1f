//! Which models may be asked, and with how much room: each level narrows what the deployment has, and all levels bind.
//! Addresses, keys and prices are the deployment's alone: whoever writes an address gets a key, and whoever writes a price
//! spends what a budget was to keep.

use crate::{
    node::{Content, Entry, Node, Step},
    read::Reader,
};
use domain::{
    limits::{NAME_BYTES_MAX, PROVIDER_MODELS_MAX, PROVIDERS_MAX},
    message::ModelRef,
};
use std::collections::{BTreeMap, BTreeSet};

/// Keys of a provider that mean nothing here: accepted and told.
const IGNORED: [&str; 6] = ["api", "env", "id", "name", "npm", "options"];
/// Keys of a provider that narrow.
pub(crate) const PROVIDER: [&str; 3] = ["blacklist", "models", "whitelist"];
const LIMITS: [&str; 3] = ["context", "input", "output"];

/// What one level says of the models that may be asked.
///
/// ```json
/// {"enabled_providers":["anthropic"],"provider":{"anthropic":{"models":{"claude":{"limit":{"context":100000}}}}}}
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Models {
    /// Only these providers; `None`: all.
    pub enabled: Option<BTreeSet<String>>,
    /// None of these providers.
    pub disabled: BTreeSet<String>,
    /// More on single providers.
    pub providers: BTreeMap<String, Narrowed>,
}

/// What is left of one provider.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Narrowed {
    /// Only these models; `None`: all.
    pub whitelist: Option<BTreeSet<String>>,
    /// None of these models.
    pub blacklist: BTreeSet<String>,
    /// How much room models leave, at most.
    pub limits: BTreeMap<String, Limit>,
}

/// Bounds of a model, in tokens. `None`: its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limit {
    /// Prompt and answer together.
    pub context: Option<u64>,
    /// Prompt.
    pub input: Option<u64>,
    /// Answer.
    pub output: Option<u64>,
}

impl Models {
    /// Whether this level lets `model` be asked.
    pub(crate) fn allows(&self, model: &ModelRef) -> bool {
        let (provider, id) = (&model.provider_id, &model.model_id);
        let is_listed =
            |list: &Option<BTreeSet<String>>, name| list.as_ref().is_none_or(|it| it.contains(name));
        is_listed(&self.enabled, provider)
            && !self.disabled.contains(provider)
            && self
                .providers
                .get(provider)
                .is_none_or(|narrowed| is_listed(&narrowed.whitelist, id) && !narrowed.blacklist.contains(id))
    }

    pub(crate) fn limit(&self, model: &ModelRef) -> Limit {
        let of_provider = self.providers.get(&model.provider_id);
        of_provider.and_then(|narrowed| narrowed.limits.get(&model.model_id)).copied().unwrap_or_default()
    }
}

impl Limit {
    /// The narrower one of each pair.
    pub(crate) fn and(self, other: Self) -> Self {
        let least = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min();
        Self {
            context: least(self.context, other.context),
            input: least(self.input, other.input),
            output: least(self.output, other.output),
        }
    }
}

impl Reader {
    pub(crate) fn providers(&mut self, node: &Node) -> BTreeMap<String, Narrowed> {
        let mut providers = BTreeMap::new();
        self.fields(node, |reader, entry| {
            let narrowed = reader.narrowed(&entry.node);
            if reader.name(entry) {
                providers.insert(entry.key.to_string(), narrowed);
            }
        });
        self.at_most(node, providers.len(), PROVIDERS_MAX, "providers");
        providers
    }

    fn narrowed(&mut self, node: &Node) -> Narrowed {
        let mut narrowed = Narrowed::default();
        self.fields(node, |reader, entry| match &*entry.key {
            "whitelist" => narrowed.whitelist = Some(reader.names(&entry.node)),
            "blacklist" => narrowed.blacklist = reader.names(&entry.node),
            "models" => {
                reader.fields(&entry.node, |reader, model| {
                    let limit = reader.model_limit(&model.node);
                    narrowed.limits.insert(model.key.to_string(), limit);
                });
                reader.at_most(&entry.node, narrowed.limits.len(), PROVIDER_MODELS_MAX, "models");
            }
            key if IGNORED.contains(&key) => reader.ignore(entry),
            _ => reader.unknown(entry, &[&IGNORED[..], &PROVIDER].concat()),
        });
        narrowed
    }

    fn model_limit(&mut self, node: &Node) -> Limit {
        let mut limit = Limit::default();
        self.fields(node, |reader, entry| {
            if &*entry.key != "limit" {
                reader.ignore(entry);
                return;
            }
            reader.fields(&entry.node, |reader, entry| {
                let tokens = |reader: &mut Self| reader.whole(&entry.node, 1, u64::MAX);
                match &*entry.key {
                    "context" => limit.context = tokens(reader),
                    "input" => limit.input = tokens(reader),
                    "output" => limit.output = tokens(reader),
                    _ => reader.unknown(entry, &LIMITS),
                }
            });
        });
        limit
    }

    /// A list of names of providers or models.
    pub(crate) fn names(&mut self, node: &Node) -> BTreeSet<String> {
        let Content::List(items) = &node.value else {
            self.expected(node, "a list of names");
            return BTreeSet::new();
        };
        self.at_most(node, items.len(), PROVIDER_MODELS_MAX, "names");
        let mut names = BTreeSet::new();
        for (at, item) in items.iter().enumerate() {
            self.path.0.push(Step::Item(at));
            match self.text(item) {
                Some(name) if name.is_empty() || name.len() > NAME_BYTES_MAX => {
                    self.expected(item, &format!("a name of 1 to {NAME_BYTES_MAX} bytes"));
                }
                name => names.extend(name),
            }
            self.path.0.pop();
        }
        names
    }
}

/// `provider` without what has no effect.
pub(crate) fn effective(providers: Node) -> Node {
    of_each(providers, |provider| {
        let provider = only(provider, &PROVIDER);
        members(provider, |entry| match &*entry.key {
            "models" => Entry { node: of_each(entry.node, |model| only(model, &["limit"])), ..entry },
            _ => entry,
        })
    })
}

/// An object with each member's value changed.
fn of_each(node: Node, change: impl Fn(Node) -> Node) -> Node {
    members(node, |entry| Entry { node: change(entry.node), ..entry })
}

fn members(mut node: Node, change: impl Fn(Entry) -> Entry) -> Node {
    if let Content::Map(entries) = &mut node.value {
        *entries = std::mem::take(entries).into_iter().map(change).collect();
    }
    node
}

/// An object without other members than these.
fn only(mut node: Node, keys: &[&str]) -> Node {
    if let Content::Map(entries) = &mut node.value {
        entries.retain(|entry| keys.contains(&&*entry.key));
    }
    node
}
