//! Reads `environment`: what the sandboxes of sessions have.

use crate::{
    LevelHosts,
    meaning::reader::Reader,
    node::{Content, Node, Step},
};
use domain::egress::allow::{self, EGRESS_ENTRIES_MAX};

impl Reader {
    /// Reads `{"network": {"allow": ["preset:npm", "*.acme.dev"]}}`.
    pub(crate) fn environment(&mut self, node: &Node) -> Vec<LevelHosts> {
        let mut network = vec![];
        self.fields(node, |reader, entry| match &*entry.key {
            "network" => network = reader.network(&entry.node),
            _ => reader.unknown(entry, &["network"]),
        });
        network
    }

    fn network(&mut self, node: &Node) -> Vec<LevelHosts> {
        let mut network = vec![];
        self.fields(node, |reader, entry| match &*entry.key {
            "allow" => {
                network.push(LevelHosts { level: node.origin.level, allow: reader.hosts(&entry.node) });
            }
            _ => reader.unknown(entry, &["allow"]),
        });
        network
    }

    fn hosts(&mut self, node: &Node) -> Vec<String> {
        let Content::List(items) = &node.value else {
            self.expected(node, "a list of hosts");
            return vec![];
        };
        self.at_most(node, items.len(), EGRESS_ENTRIES_MAX, "hosts");
        let mut hosts = vec![];
        for (at, item) in items.iter().enumerate() {
            self.path.0.push(Step::Item(at));
            match self.text(item) {
                Some(host) if !allow::is_entry(&host) => self.expected(item, &allow::expected()),
                host => hosts.extend(host),
            }
            self.path.0.pop();
        }
        hosts
    }
}
