//! Breadth-first exploration of every state within the bounds of a scenario. Finds the shortest path to a violation, and
//! checks that the system can settle from every state without a further fault.

use super::{action::Action, observer::Property, scenario::Scenario, system::System};
use foldhash::quality::FixedState;
use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    hash::BuildHasher as _,
};

/// The result of an exploration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exploration {
    /// The number of reachable states.
    pub states: usize,
    /// The violated property, and the shortest path to the violation.
    pub violation: Option<(Property, Vec<Action>)>,
}

/// The predecessor of a state on the shortest path, and the number of the action that leads from there.
type Predecessor = (u32, u16);

/// Explores all states, until one violates a property.
///
/// # Panics
/// If there are more than `states_max` states: the bounds of the scenario are too wide.
pub fn explore(scenario: &Scenario, states_max: usize) -> Exploration {
    let hasher = FixedState::default();
    let initial = System::initial(scenario);
    let mut known = HashMap::from([(hasher.hash_one(&initial), 0_u32)]);
    let mut predecessors: Vec<Predecessor> = vec![(0, 0)];
    let mut settled = vec![initial.find_unsettled(scenario).is_none()];
    let mut sound_edges: Vec<(u32, u32)> = vec![];
    let mut waiting = VecDeque::from([(0_u32, initial)]);
    let mut actions = vec![];
    while let Some((from, system)) = waiting.pop_front() {
        system.list_actions(scenario, &mut actions);
        for (number, action) in (0_u16..).zip(&actions) {
            let mut next = system.clone();
            next.apply(scenario, *action);
            let state = u32::try_from(predecessors.len()).unwrap_or(u32::MAX);
            let to = match known.entry(hasher.hash_one(&next)) {
                Entry::Occupied(entry) => *entry.get(),
                Entry::Vacant(entry) => {
                    assert!(
                        predecessors.len() < states_max,
                        "the scenario has more than {states_max} states"
                    );
                    entry.insert(state);
                    predecessors.push((from, number));
                    settled.push(next.find_unsettled(scenario).is_none());
                    if let Some(property) = next.violated() {
                        let violation = Some((property, trace(scenario, &predecessors, state)));
                        return Exploration { states: predecessors.len(), violation };
                    }
                    waiting.push_back((state, next));
                    state
                }
            };
            if !action.is_fault() {
                sound_edges.push((from, to));
            }
        }
    }
    let stuck = find_stuck(&sound_edges, settled);
    let violation = stuck.map(|state| (Property::Settles, trace(scenario, &predecessors, state)));
    Exploration { states: predecessors.len(), violation }
}

/// Finds a state from which the system cannot settle.
fn find_stuck(edges: &[(u32, u32)], mut settled: Vec<bool>) -> Option<u32> {
    // For each state, the position in `sources` of the first state that leads to it.
    let mut starts = vec![0_usize; settled.len() + 1];
    edges.iter().for_each(|(_, to)| starts[*to as usize + 1] += 1);
    (1..starts.len()).for_each(|state| starts[state] += starts[state - 1]);
    let mut free = starts.clone();
    let mut sources = vec![0_u32; edges.len()];
    for (from, to) in edges {
        sources[free[*to as usize]] = *from;
        free[*to as usize] += 1;
    }
    let mut waiting: Vec<usize> = (0..settled.len()).filter(|state| settled[*state]).collect();
    while let Some(state) = waiting.pop() {
        for from in &sources[starts[state]..starts[state + 1]] {
            if !std::mem::replace(&mut settled[*from as usize], true) {
                waiting.push(*from as usize);
            }
        }
    }
    settled.iter().position(|is_settled| !is_settled).and_then(|state| u32::try_from(state).ok())
}

/// Returns the actions on the shortest path to a state.
fn trace(scenario: &Scenario, predecessors: &[Predecessor], state: u32) -> Vec<Action> {
    let mut numbers = vec![];
    let mut at = state;
    while at != 0 {
        let (from, number) = predecessors[at as usize];
        numbers.push(number);
        at = from;
    }
    let mut system = System::initial(scenario);
    let mut actions = vec![];
    let follow = |number: u16| {
        system.list_actions(scenario, &mut actions);
        let action = actions[usize::from(number)];
        system.apply(scenario, action);
        action
    };
    numbers.into_iter().rev().map(follow).collect()
}
