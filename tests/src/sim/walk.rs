//! Random walks: the seed determines a scenario and all of its actions. Faults happen in the first part of a walk. After
//! that none happens, and the system must settle.

use super::{
    action::Action,
    observer::Property,
    postgres::{Attempts, Session},
    rules::Rules,
    scenario::{ClientAction, Faults, Scenario},
    system::System,
};
use std::fmt;

/// Number of steps with faults.
const WILD_STEPS: usize = 150;
/// One of this number of steps is a fault.
const FAULT_EVERY: usize = 6;
/// Number of steps without faults after which a walk counts as not settling: about ten times as many as the longest walk
/// needs.
const CALM_STEPS_MAX: usize = 2_000;

/// A walk that violated a property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub seed: u64,
    pub property: Property,
    /// The session or slot that did not settle, if that is the violation.
    pub unsettled: Option<String>,
    pub trace: Vec<Action>,
}

/// The generator SplitMix64. It is not from a crate, because a seed must give the same walk after an update.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number below `count`, which must not be 0.
    pub fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let wide = u128::from(mixed ^ mixed >> 31) * count as u128;
        usize::try_from(wide >> 64).unwrap_or(0)
    }

    fn up_to(&mut self, most: u8) -> u8 {
        u8::try_from(self.below(usize::from(most) + 1)).unwrap_or(0)
    }
}

/// Makes a random scenario: up to six sessions, alone or in a tree, on up to three workers.
pub fn scenario(dice: &mut Dice, rules: Rules) -> Scenario {
    let children = tree(dice);
    let roots: Vec<Session> = (0..children.len())
        .filter(|session| !children.iter().flatten().any(|child| child == session))
        .collect();
    let mut client_actions: Vec<ClientAction> =
        roots.iter().map(|root| ClientAction::Prompt(*root)).collect();
    for _ in 0..dice.below(6) {
        let session = dice.below(children.len());
        client_actions.push(if dice.below(3) == 0 {
            ClientAction::Abort(session)
        } else {
            ClientAction::Prompt(session)
        });
    }
    let faults = Faults {
        crashes: dice.up_to(3),
        pauses: dice.up_to(3),
        flushes: dice.up_to(2),
        lost_commits: dice.up_to(4),
        lost_calls: dice.up_to(3),
        lost_hints: dice.up_to(4),
        repeated_hints: dice.up_to(3),
        drains: dice.up_to(2),
        yields: dice.up_to(3),
        direct_claims: dice.up_to(3),
    };
    let workers = 1 + dice.below(3);
    let slots = 1 + dice.below(2);
    let cap = if dice.below(2) == 0 { 1 + dice.below(2) } else { usize::MAX };
    let alone = Scenario { rules, workers, slots, cap, ..Scenario::simple(1, 0, 1, faults) };
    let scenario = Scenario { children, client_actions, ..alone };
    if dice.below(4) == 0 { poisoned(dice, scenario) } else { scenario }
}

/// Adds a poison to a scenario, and limits the other faults so that no other session can use all attempts.
fn poisoned(dice: &mut Dice, scenario: Scenario) -> Scenario {
    let leaves: Vec<Session> =
        (0..scenario.children.len()).filter(|session| scenario.children[*session].is_empty()).collect();
    let poison = Some(leaves[dice.below(leaves.len())]);
    let attempts = Attempts { suspect: 2, most: 5 };
    let faults = Faults {
        crashes: dice.up_to(1),
        pauses: dice.up_to(1),
        lost_commits: 0,
        direct_claims: 0,
        ..scenario.faults
    };
    Scenario { poison, attempts, faults, ..scenario }
}

fn tree(dice: &mut Dice) -> Vec<Vec<Session>> {
    match dice.below(5) {
        0 => vec![vec![]; 1 + dice.below(4)],
        1 => Scenario::chain(2 + dice.below(4)),
        2 => vec![vec![1, 2], vec![], vec![]],
        3 => vec![vec![1, 2], vec![3], vec![], vec![4], vec![]],
        _ => vec![vec![1], vec![], vec![3, 4], vec![], vec![], vec![]],
    }
}

/// Walks once. Returns the actions, and the violated property with a description, if any.
pub fn walk(seed: u64, rules: Rules) -> (Vec<Action>, Option<(Property, Option<String>)>) {
    let mut dice = Dice::from_seed(seed);
    let scenario = scenario(&mut dice, rules);
    let mut system = System::initial(&scenario);
    let (mut actions, mut trace) = (vec![], vec![]);
    for step in 0..WILD_STEPS + CALM_STEPS_MAX {
        if step >= WILD_STEPS && system.find_unsettled(&scenario).is_none() {
            return (trace, None);
        }
        system.list_actions(&scenario, &mut actions);
        // In most states more faults than other actions are possible. Without weights, all faults would happen at the start.
        let is_calm = step >= WILD_STEPS || dice.below(FAULT_EVERY) > 0;
        if is_calm && (step >= WILD_STEPS || actions.iter().any(|action| !action.is_fault())) {
            actions.retain(|action| !action.is_fault());
        }
        if actions.is_empty() {
            break;
        }
        let action = actions[dice.below(actions.len())];
        trace.push(action);
        system.apply(&scenario, action);
        if let Some(property) = system.violated() {
            return (trace, Some((property, None)));
        }
    }
    let failed = system.find_unsettled(&scenario).map(|unsettled| (Property::Settles, Some(unsettled)));
    (trace, failed)
}

/// Walks with each of the seeds, and returns the first walk that fails.
pub fn find_failure(mut seeds: std::ops::Range<u64>, rules: Rules) -> Option<Failure> {
    seeds.find_map(|seed| match walk(seed, rules) {
        (trace, Some((property, unsettled))) => Some(Failure { seed, property, unsettled, trace }),
        (_, None) => None,
    })
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scenario = scenario(&mut Dice::from_seed(self.seed), Rules::SOUND);
        writeln!(f, "seed {}: {:?} is violated", self.seed, self.property)?;
        if let Some(unsettled) = &self.unsettled {
            writeln!(f, "{unsettled}")?;
        }
        writeln!(f, "{scenario:?}")?;
        self.trace.iter().zip(1..).try_for_each(|(action, number)| writeln!(f, "{number:4} {action:?}"))
    }
}
