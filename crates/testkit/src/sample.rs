//! Sample values of the domain. Ids come from a seed, so that a failing test fails again.

use domain::{
    conversation::{
        message::{Assistant, MessageTime, ModelRef, Path, User},
        part::{Body, Part, Text},
    },
    ids::{EventId, Ids, MessageId, PartId, ProjectId, SessionId, TenantId, Timestamp},
    money::{Tokens, UsdPicos},
    session::{DEFAULT_AGENT, WORKSPACE},
};

/// The time of every sample; milliseconds since 1970.
pub const NOW: Timestamp = Timestamp(1_795_292_980_519);

#[derive(Debug)]
pub struct Sample {
    pub ids: Ids,
    seed: u8,
    tenants: u8,
}

impl Sample {
    /// Creates a sample from a seed; equal seeds give equal ids.
    pub fn new(seed: u8) -> Self {
        Self { ids: Ids::new([seed; 32]), seed, tenants: 0 }
    }

    /// A new tenant each time.
    pub fn tenant(&mut self) -> TenantId {
        self.tenants += 1;
        let mut bytes = [self.seed; 16];
        bytes[15] = self.tenants;
        TenantId(uuid::Builder::from_random_bytes(bytes).into_uuid())
    }

    pub fn session(&mut self) -> SessionId {
        SessionId::make(&mut self.ids, NOW)
    }

    pub fn project(&mut self) -> ProjectId {
        ProjectId::make(&mut self.ids, NOW)
    }

    pub fn event(&mut self) -> EventId {
        EventId::make(&mut self.ids, NOW)
    }

    pub fn message(&mut self) -> MessageId {
        MessageId::make(&mut self.ids, NOW)
    }

    pub fn user(&mut self, session: &SessionId) -> User {
        User {
            id: self.message(),
            session_id: session.clone(),
            time: MessageTime { created: NOW, completed: None },
            agent: DEFAULT_AGENT.to_owned(),
            model: model().into(),
            system: None,
            tools: None,
            format: None,
            summary: None,
        }
    }

    /// An answer to `parent` that has just started.
    pub fn assistant(&mut self, session: &SessionId, parent: &MessageId) -> Assistant {
        Assistant {
            id: MessageId::make(&mut self.ids, NOW),
            session_id: session.clone(),
            time: MessageTime { created: NOW, completed: None },
            parent_id: parent.clone(),
            model: model().into(),
            mode: DEFAULT_AGENT.to_owned(),
            agent: DEFAULT_AGENT.to_owned(),
            path: Path { cwd: WORKSPACE.to_owned(), root: WORKSPACE.to_owned() },
            cost: UsdPicos::default(),
            tokens: Tokens::default(),
            finish: None,
            error: None,
            summary: None,
            structured: None,
        }
    }

    pub fn text(&mut self, session: &SessionId, message: &MessageId, text: &str) -> Part {
        Part {
            id: PartId::make(&mut self.ids, NOW),
            session_id: session.clone(),
            message_id: message.clone(),
            body: Body::Text(Text { text: text.to_owned(), ..Text::default() }),
        }
    }
}

pub fn model() -> ModelRef {
    ModelRef { provider_id: "scripted".to_owned(), model_id: "scripted".to_owned() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;

    #[test]
    fn a_seed_determines_the_values_and_no_value_repeats() {
        let (mut first, mut second) = (Sample::new(1), Sample::new(1));
        let (tenant, session) = (first.tenant(), first.session());
        assert_eq!((tenant, &session), (second.tenant(), &second.session()));
        assert_ne!(tenant, first.tenant());
        assert_ne!(session, first.session());
        assert_ne!(tenant, Sample::new(2).tenant());
    }
}
