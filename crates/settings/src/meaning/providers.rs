//! Reads the models that a level permits: `provider`, `enabled_providers` and `disabled_providers`.

use crate::{
    meaning::reader::{Reader, TextList},
    models::{Limit, ProviderModels},
    node::{Content, Member, Node},
};
use domain::limits::{NAME_BYTES_MAX, PROVIDER_MODELS_MAX, PROVIDERS_MAX};
use std::collections::{BTreeMap, BTreeSet};

/// Keys of a provider that have no effect here: accepted and reported.
const IGNORED: [&str; 6] = ["api", "env", "id", "name", "npm", "options"];
/// Keys of a provider that restrict it.
pub(crate) const PROVIDER: [&str; 3] = ["blacklist", "models", "whitelist"];
const LIMITS: [&str; 3] = ["context", "input", "output"];

impl Reader {
    /// Reads `provider`.
    pub(crate) fn providers(&mut self, node: &Node) -> BTreeMap<String, ProviderModels> {
        let mut providers = BTreeMap::new();
        self.fields(node, |reader, entry| {
            let narrowed = reader.provider(&entry.node);
            if reader.name(entry) {
                providers.insert(entry.key.to_string(), narrowed);
            }
        });
        self.at_most(node, providers.len(), PROVIDERS_MAX, "providers");
        providers
    }

    fn provider(&mut self, node: &Node) -> ProviderModels {
        let mut narrowed = ProviderModels::default();
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
        let list = TextList {
            kind: "a list of names",
            items: "names",
            most: PROVIDER_MODELS_MAX,
            expected: &format!("a name of 1 to {NAME_BYTES_MAX} bytes"),
        };
        self.texts(node, &list, |name| (1..=NAME_BYTES_MAX).contains(&name.len())).into_iter().collect()
    }
}

/// `provider` without the values that have no effect.
pub(crate) fn effective(providers: Node) -> Node {
    of_each(providers, |provider| {
        let provider = only(provider, &PROVIDER);
        members(provider, |entry| match &*entry.key {
            "models" => Member { node: of_each(entry.node, |model| only(model, &["limit"])), ..entry },
            _ => entry,
        })
    })
}

/// Changes the value of each member of an object.
fn of_each(node: Node, change: impl Fn(Node) -> Node) -> Node {
    members(node, |entry| Member { node: change(entry.node), ..entry })
}

fn members(mut node: Node, change: impl Fn(Member) -> Member) -> Node {
    if let Content::Map(entries) = &mut node.value {
        *entries = std::mem::take(entries).into_iter().map(change).collect();
    }
    node
}

/// An object with only these members.
fn only(mut node: Node, keys: &[&str]) -> Node {
    if let Content::Map(entries) = &mut node.value {
        entries.retain(|entry| keys.contains(&&*entry.key));
    }
    node
}
