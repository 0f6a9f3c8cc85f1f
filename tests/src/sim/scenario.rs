//! The initial state of a run, and the faults that may happen in it.

use super::{
    postgres::{Attempts, Session},
    rules::Rules,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAction {
    Prompt(Session),
    /// It aborts this session and all sessions below it.
    Abort(Session),
}

impl ClientAction {
    /// Returns the session that it concerns.
    pub(super) fn session(self) -> Session {
        match self {
            Self::Prompt(session) | Self::Abort(session) => session,
        }
    }
}

/// The number of times that each fault may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Faults {
    pub crashes: u8,
    /// The lease of a living worker expires.
    pub pauses: u8,
    pub flushes: u8,
    /// Postgres commits, but the answer is lost.
    pub lost_commits: u8,
    /// A call to Redis or its answer is lost.
    pub lost_calls: u8,
    /// A hint is lost, or the gateway crashes before it sends the hint.
    pub lost_hints: u8,
    /// A hint is delivered again.
    pub repeated_hints: u8,
    pub drains: u8,
    /// A loop yields its slot at a step boundary, or waits for its provider.
    pub yields: u8,
    /// A session is claimed without Redis.
    pub direct_claims: u8,
}

/// The initial state of a run.
#[derive(Debug, Clone)]
pub struct Scenario {
    pub rules: Rules,
    pub workers: usize,
    /// Number of slots of each worker.
    pub slots: usize,
    /// Limit of sessions that are held at once.
    pub cap: usize,
    /// The children that the first turn of each session creates. All other sessions exist from the start.
    pub children: Vec<Vec<Session>>,
    /// The actions of the clients, which happen in any order.
    pub client_actions: Vec<ClientAction>,
    /// A session that crashes its worker.
    pub poison: Option<Session>,
    /// The limits of attempts.
    pub attempts: Attempts,
    /// The faults that may happen.
    pub faults: Faults,
}

impl Scenario {
    /// Limits of attempts that no run reaches.
    pub const PATIENT: Attempts = Attempts { suspect: 200, most: 201 };

    /// `sessions` without children that each receive this number of prompts, on workers with one slot.
    pub fn simple(sessions: usize, prompts: usize, workers: usize, faults: Faults) -> Self {
        let client_actions =
            (0..sessions * prompts).map(|number| ClientAction::Prompt(number % sessions)).collect();
        Self {
            rules: Rules::SOUND,
            workers,
            slots: 1,
            cap: usize::MAX,
            children: vec![vec![]; sessions],
            client_actions,
            poison: None,
            attempts: Self::PATIENT,
            faults,
        }
    }

    /// One prompt to the root of a tree, on one worker with one slot.
    pub fn tree(children: Vec<Vec<Session>>, faults: Faults) -> Self {
        Self { children, client_actions: vec![ClientAction::Prompt(0)], ..Self::simple(1, 1, 1, faults) }
    }

    /// A chain of sessions, each the child of the previous one.
    pub fn chain(length: usize) -> Vec<Vec<Session>> {
        (1..=length).map(|next| if next < length { vec![next] } else { vec![] }).collect()
    }
}
