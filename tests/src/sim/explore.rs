//! Every state within the bounds of a scenario, breadth first: the shortest way to a violation, and whether rest can be
//! reached from everywhere without a further fault.

use super::{System, action::Action, observer::Property, scenario::Scenario};
use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
};

/// What the exploration found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// States that can be reached.
    pub states: usize,
    /// The property that does not hold, and the shortest way to where it does not.
    pub violation: Option<(Property, Vec<Action>)>,
}

/// How a state was first reached: from which one, by which of its actions.
type Way = (u32, u16);

/// Explores all states, until one violates a property.
///
/// # Panics
/// When there are more than `states_max`: the bounds of the scenario are too wide.
pub fn explore(scenario: &Scenario, states_max: usize) -> Found {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let initial = System::initial(scenario);
    let mut known = HashMap::from([(hasher.hash_one(&initial), 0_u32)]);
    let mut ways: Vec<Way> = vec![(0, 0)];
    let mut rests = vec![initial.find_unrest(scenario).is_none()];
    let mut sound_edges: Vec<(u32, u32)> = vec![];
    let mut waiting = VecDeque::from([(0_u32, initial)]);
    let mut actions = vec![];
    while let Some((from, system)) = waiting.pop_front() {
        system.list_actions(scenario, &mut actions);
        for (number, action) in (0_u16..).zip(&actions) {
            let mut next = system.clone();
            next.apply(scenario, *action);
            let place = u32::try_from(ways.len()).unwrap_or(u32::MAX);
            let to = match known.entry(hasher.hash_one(&next)) {
                Entry::Occupied(entry) => *entry.get(),
                Entry::Vacant(entry) => {
                    assert!(ways.len() < states_max, "the scenario has more than {states_max} states");
                    entry.insert(place);
                    ways.push((from, number));
                    rests.push(next.find_unrest(scenario).is_none());
                    if let Some(property) = next.violated() {
                        let violation = Some((property, trace(scenario, &ways, place)));
                        return Found { states: ways.len(), violation };
                    }
                    waiting.push_back((place, next));
                    place
                }
            };
            if !action.is_fault() {
                sound_edges.push((from, to));
            }
        }
    }
    let stuck = find_stuck(&sound_edges, rests);
    let violation = stuck.map(|place| (Property::ComesToRest, trace(scenario, &ways, place)));
    Found { states: ways.len(), violation }
}

/// Gives the first state from which no way leads to rest.
fn find_stuck(edges: &[(u32, u32)], mut rests: Vec<bool>) -> Option<u32> {
    // For each state, where the states that lead to it begin in `sources`.
    let mut starts = vec![0_usize; rests.len() + 1];
    edges.iter().for_each(|(_, to)| starts[*to as usize + 1] += 1);
    (1..starts.len()).for_each(|place| starts[place] += starts[place - 1]);
    let mut free = starts.clone();
    let mut sources = vec![0_u32; edges.len()];
    for (from, to) in edges {
        sources[free[*to as usize]] = *from;
        free[*to as usize] += 1;
    }
    let mut waiting: Vec<usize> = (0..rests.len()).filter(|place| rests[*place]).collect();
    while let Some(place) = waiting.pop() {
        for from in &sources[starts[place]..starts[place + 1]] {
            if !std::mem::replace(&mut rests[*from as usize], true) {
                waiting.push(*from as usize);
            }
        }
    }
    rests.iter().position(|rests| !rests).and_then(|place| u32::try_from(place).ok())
}

/// The actions that first led to a state.
fn trace(scenario: &Scenario, ways: &[Way], place: u32) -> Vec<Action> {
    let mut numbers = vec![];
    let mut at = place;
    while at != 0 {
        let (from, number) = ways[at as usize];
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
