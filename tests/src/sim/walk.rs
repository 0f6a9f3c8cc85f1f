//! Random walks: a scenario and everything that happens in it follow from a seed. First faults happen as they come, then
//! none any more, and everything must come to rest.

use super::{
    System,
    action::Action,
    observer::Property,
    postgres::{Attempts, Session},
    rules::Rules,
    scenario::{Faults, Scenario, Wish},
};
use std::fmt;

/// Steps with faults.
const WILD_STEPS: usize = 150;
/// One step in so many is a fault.
const FAULT_EVERY: usize = 6;
/// Steps without faults beyond which a walk counts as not coming to rest: some ten times what the longest one needs.
const CALM_STEPS_MAX: usize = 2_000;

/// A walk that violated a property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What gives this walk again.
    pub seed: u64,
    /// What did not hold.
    pub property: Property,
    /// What was not at rest, if that is what did not hold.
    pub unrest: Option<String>,
    /// Everything that happened.
    pub trace: Vec<Action>,
}

/// SplitMix64. Not a crate's generator: a seed must give the same walk also after an update.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// The numbers that follow from a seed.
    pub fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `count`, which is not 0.
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

/// Makes the scenario of a seed: up to six sessions, alone or in a tree, on up to three workers.
pub fn scenario(dice: &mut Dice, rules: Rules) -> Scenario {
    let children = tree(dice);
    let roots: Vec<Session> = (0..children.len())
        .filter(|session| !children.iter().flatten().any(|child| child == session))
        .collect();
    let mut wishes: Vec<Wish> = roots.iter().map(|root| Wish::Prompt(*root)).collect();
    for _ in 0..dice.below(6) {
        let session = dice.below(children.len());
        wishes.push(if dice.below(3) == 0 { Wish::Abort(session) } else { Wish::Prompt(session) });
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
    let scenario = Scenario { children, wishes, ..alone };
    if dice.below(4) == 0 { poisoned(dice, scenario) } else { scenario }
}

/// The same with a session that ends its workers, and so few other faults that nobody else can run out of attempts.
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

/// Walks once, and gives everything that happened, and what did not hold.
pub fn walk(seed: u64, rules: Rules) -> (Vec<Action>, Option<(Property, Option<String>)>) {
    let mut dice = Dice::from_seed(seed);
    let scenario = scenario(&mut dice, rules);
    let mut system = System::initial(&scenario);
    let (mut actions, mut trace) = (vec![], vec![]);
    for step in 0..WILD_STEPS + CALM_STEPS_MAX {
        if step >= WILD_STEPS && system.find_unrest(&scenario).is_none() {
            return (trace, None);
        }
        system.list_actions(&scenario, &mut actions);
        // Most moments offer more faults than anything else; unweighted, all of them would happen at the beginning.
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
    let failed = system.find_unrest(&scenario).map(|unrest| (Property::ComesToRest, Some(unrest)));
    (trace, failed)
}

/// Walks with each of the seeds, and gives the first walk that fails.
pub fn find_failure(mut seeds: std::ops::Range<u64>, rules: Rules) -> Option<Failure> {
    seeds.find_map(|seed| match walk(seed, rules) {
        (trace, Some((property, unrest))) => Some(Failure { seed, property, unrest, trace }),
        (_, None) => None,
    })
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scenario = scenario(&mut Dice::from_seed(self.seed), Rules::SOUND);
        writeln!(f, "seed {}: {:?} does not hold", self.seed, self.property)?;
        if let Some(unrest) = &self.unrest {
            writeln!(f, "{unrest}")?;
        }
        writeln!(f, "{scenario:?}")?;
        self.trace.iter().zip(1..).try_for_each(|(action, number)| writeln!(f, "{number:4} {action:?}"))
    }
}
