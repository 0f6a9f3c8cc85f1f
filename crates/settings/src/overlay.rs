//! Overlays values of a tree on others.

use crate::node::{Content, Entry, Node};
use std::{collections::HashMap, sync::Arc};

/// Overlays one value on another: objects member by member, everything else as a whole.
fn overlay(base: &mut Node, over: Node) {
    match (&mut base.value, over) {
        (Content::Map(entries), Node { value: Content::Map(more), origin: _ }) => {
            overlay_entries(entries, more)
        }
        (_, over) => *base = over,
    }
}

/// An existing key keeps its position, as in OpenCode; a new key comes last.
pub(crate) fn overlay_entries(entries: &mut Vec<Entry>, more: Vec<Entry>) {
    let index: HashMap<_, _> =
        entries.iter().enumerate().map(|(at, entry)| (Arc::clone(&entry.key), at)).collect();
    for entry in more {
        match index.get(&entry.key) {
            Some(at) => overlay(&mut entries[*at].node, entry.node),
            None => entries.push(entry),
        }
    }
}
