//! What a run begins with, and the faults that may happen in it.

use super::{
    postgres::{Attempts, Session},
    rules::Rules,
};

/// What a client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// That this session answers a prompt.
    Prompt(Session),
    /// That this session and all below it stop.
    Abort(Session),
}

/// How often each fault may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Faults {
    /// A worker ends without a word.
    pub crashes: u8,
    /// A worker is frozen until its leases are over, and then goes on.
    pub pauses: u8,
    /// Redis loses everything.
    pub flushes: u8,
    /// Postgres commits and the answer is lost.
    pub lost_commits: u8,
    /// Redis does what it is asked and the answer is lost, or it does not.
    pub lost_calls: u8,
    /// A hint is lost, or the gateway dies before it is sent.
    pub lost_hints: u8,
    /// A hint is delivered again.
    pub repeated_hints: u8,
    /// A worker is asked to stop.
    pub drains: u8,
    /// A loop gives its slot up at a step boundary, or waits for its provider.
    pub yields: u8,
    /// A session is claimed without Redis.
    pub direct_claims: u8,
}

/// What a run begins with.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The rules that it keeps.
    pub rules: Rules,
    /// Workers alive when nothing fails.
    pub workers: usize,
    /// Loops of each worker.
    pub slots: usize,
    /// Sessions that may be held at once.
    pub cap: usize,
    /// For each session, which ones its first turn makes; the others are there from the start.
    pub children: Vec<Vec<Session>>,
    /// What clients want, in any order.
    pub wishes: Vec<Wish>,
    /// A session whose effects end the worker.
    pub poison: Option<Session>,
    /// When a session that fails is set apart and given up.
    pub attempts: Attempts,
    /// What may happen.
    pub faults: Faults,
}

impl Scenario {
    /// Limits on attempts that no run reaches.
    pub const PATIENT: Attempts = Attempts { suspect: 200, most: 201 };

    /// `sessions` without children that each get these prompts, on workers with one slot.
    pub fn simple(sessions: usize, prompts: usize, workers: usize, faults: Faults) -> Self {
        let wishes = (0..sessions * prompts).map(|place| Wish::Prompt(place % sessions)).collect();
        Self {
            rules: Rules::SOUND,
            workers,
            slots: 1,
            cap: usize::MAX,
            children: vec![vec![]; sessions],
            wishes,
            poison: None,
            attempts: Self::PATIENT,
            faults,
        }
    }

    /// One prompt to the root of a tree, on one worker with one slot.
    pub fn tree(children: Vec<Vec<Session>>, faults: Faults) -> Self {
        Self { children, wishes: vec![Wish::Prompt(0)], ..Self::simple(1, 1, 1, faults) }
    }

    /// A chain of so many sessions, each the child of the one before.
    pub fn chain(length: usize) -> Vec<Vec<Session>> {
        (1..=length).map(|next| if next < length { vec![next] } else { vec![] }).collect()
    }
}
