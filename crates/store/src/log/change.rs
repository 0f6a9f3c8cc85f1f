//! The types of a change to a session. `projection` writes a change into the tables.

use crate::rows::ledger::LedgerEntry;
use domain::{
    conversation::{
        message::{Message, User},
        part::Part,
    },
    event::Event,
    ids::{EventId, SessionId, TenantId, Timestamp},
    money::{Tokens, UsdPicos},
    session::{Changes, Info},
};

/// One change; each produces exactly one event.
#[derive(Debug, Clone)]
pub struct Change {
    pub id: EventId,
    pub body: ChangeBody,
}

impl Change {
    /// A change that consists only of a fact.
    pub fn event(id: EventId, event: Event) -> Self {
        Self { id, body: ChangeBody::Event(event) }
    }

    /// Changes that consist only of facts, with ids that follow from `id`.
    pub(crate) fn events(id: &EventId, events: Vec<Event>) -> Vec<Self> {
        let numbered = events.into_iter().enumerate();
        numbered.map(|(number, event)| Self::event(id.numbered(number), event)).collect()
    }
}

#[derive(Debug, Clone)]
pub enum ChangeBody {
    /// A fact, projected into the table for its kind.
    Event(Event),
    /// The whole answer of a model: its message, and the cost of the call. The entry counts against the budget from now on; the
    /// session shows it once the step closes.
    Answer {
        /// The message of the step.
        message: Box<Message>,
        /// `None`: the provider reported no usage.
        entry: Option<LedgerEntry>,
    },
    /// The cost of model calls, as clients see it in the session. An entry that is already stored is not counted twice against
    /// the budget.
    Spend(Charge),
    /// The sum of all differences between the session's files and their initial state.
    FileSummary(Changes),
    /// A model named the session.
    Title(Title),
}

/// What a session is charged with.
#[derive(Debug, Clone, Default)]
pub struct Charge {
    pub entries: Vec<LedgerEntry>,
    /// The session as the caller knows it. If nothing has changed it since, the write needs no transaction, because the sums that its event shows are known.
    pub known: Option<KnownSession>,
}

/// What model calls cost together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sums {
    pub(crate) tokens: Tokens,
    pub(crate) cost: UsdPicos,
}

/// A session as clients see it.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownSession {
    /// Position of the newest event that it includes. Every change that clients see comes with an event.
    pub event_seq: u64,
    pub info: Box<Info>,
}

impl Charge {
    /// A charge of a session that the caller does not know.
    pub fn new(entries: Vec<LedgerEntry>) -> Self {
        Self { entries, known: None }
    }

    /// What the charge adds to the session.
    pub(crate) fn sums(&self) -> Sums {
        Sums {
            tokens: self.entries.iter().fold(Tokens::default(), |sum, entry| sum.plus(entry.tokens)),
            cost: self.entries.iter().fold(UsdPicos(0), |sum, entry| sum.plus(entry.cost)),
        }
    }
}

/// A message that needs no answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Note {
    pub message: Box<User>,
    pub text: Box<Part>,
}

impl Note {
    /// The events that store it.
    pub(crate) fn events(&self, at: Timestamp) -> [Event; 2] {
        let message = Message::User((*self.message).clone());
        [Event::MessageUpdated(Box::new(message)), Event::PartUpdated { part: self.text.clone(), at }]
    }
}

/// The title that a model made from the first prompt of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Title {
    /// The session's title when the worker asked the model. If the title is different now, a person has renamed the
    /// session, and the person's title stays.
    pub instead_of: String,
    /// The new title; `None` if the model returned none.
    pub title: Option<String>,
    /// The cost of the model calls.
    pub entries: Vec<LedgerEntry>,
}

/// The session that a batch of changes belongs to, and the epoch and time that its events carry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scope<'a> {
    pub(crate) tenant: TenantId,
    pub(crate) session: &'a SessionId,
    pub(crate) epoch: u64,
    pub(crate) at: Timestamp,
}
