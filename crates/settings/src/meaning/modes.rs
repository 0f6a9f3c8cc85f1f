//! OpenCode's older key `mode`, which it still reads: each member is an agent for prompts.

use crate::{
    node::{Content, Member, Node},
    overlay::overlay_members,
};
use std::sync::Arc;

pub(crate) const AGENT: &str = "agent";
/// The older key, and the key of an agent that says where it may be used.
pub(crate) const MODE: &str = "mode";

/// Moves the members of `mode` to `agent`, where they win, as in OpenCode. A `mode` that is no object stays.
pub(crate) fn to_agents(root: &mut Node) {
    let Content::Map(members) = &mut root.value else { return };
    let is_modes = |member: &Member| &*member.key == MODE && matches!(member.node.value, Content::Map(_));
    let Some(at) = members.iter().position(is_modes) else { return };
    let Member { origin, mut node, .. } = members.remove(at);
    if let Content::Map(modes) = &mut node.value {
        modes.iter_mut().for_each(|mode| make_primary(&mut mode.node));
    }
    overlay_members(members, vec![Member { key: Arc::from(AGENT), origin, node }]);
}

fn make_primary(agent: &mut Node) {
    let origin = agent.origin.clone();
    if let Content::Map(members) = &mut agent.value {
        members.retain(|member| &*member.key != MODE);
        let node = Node::text(origin.clone(), "primary".to_owned());
        members.push(Member { key: Arc::from(MODE), origin, node });
    }
}
