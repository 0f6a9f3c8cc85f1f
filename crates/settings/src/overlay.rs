//! Overlays values of a tree on others.

use crate::node::{Content, Member, Node};
use std::{collections::HashMap, sync::Arc};

/// Overlays one value on another: objects member by member, everything else as a whole.
fn overlay(base: &mut Node, over: Node) {
    match (&mut base.value, over) {
        (Content::Map(members), Node { value: Content::Map(more), origin: _ }) => {
            overlay_members(members, more)
        }
        (_, over) => *base = over,
    }
}

/// An existing key keeps its position, as in OpenCode; a new key comes last.
pub(crate) fn overlay_members(members: &mut Vec<Member>, more: Vec<Member>) {
    let index: HashMap<_, _> =
        members.iter().enumerate().map(|(at, member)| (Arc::clone(&member.key), at)).collect();
    for member in more {
        match index.get(&member.key) {
            Some(at) => overlay(&mut members[*at].node, member.node),
            None => members.push(member),
        }
    }
}
