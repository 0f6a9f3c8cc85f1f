//! The conversations of sessions that this worker has parked, for their next turn. The store compares each with the log before a loop uses it, so one that
//! is missing or out of date costs only the time to load it.

use super::memory::Conversation;
use chassis::lock;
use domain::ids::{SessionId, TenantId};
use std::{collections::VecDeque, sync::Mutex, time::Duration};
use store::loop_start::KeptPosition;
use tokio::time::Instant;

/// Bytes of all kept conversations. Beyond that, the oldest ones are dropped.
const KEPT_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Bytes of the kept conversations of one tenant. Beyond that, its oldest ones are dropped: it does not displace those of others.
const TENANT_KEPT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes of one kept conversation. A larger one is loaded for each turn.
const CONVERSATION_KEPT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Conversations that are kept. Beyond that, the oldest ones are dropped.
const CONVERSATIONS_KEPT_MAX: usize = 1_000;
/// Time for which a conversation is kept. Most people answer within it, or not for hours.
const KEPT_FOR: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
pub(crate) struct KeptConversations(Mutex<Shelf>);

/// The kept conversations, oldest first.
#[derive(Debug, Default)]
struct Shelf {
    all: VecDeque<KeptConversation>,
    bytes: usize,
}

#[derive(Debug)]
pub(crate) struct KeptConversation {
    pub(crate) tenant: TenantId,
    pub(crate) session: SessionId,
    /// What of the session it includes.
    pub(crate) position: KeptPosition,
    pub(crate) conversation: Conversation,
    pub(crate) kept_at: Instant,
}

impl KeptConversations {
    /// Keeps a conversation, unless it is too large.
    pub(crate) fn put(&self, kept: KeptConversation) {
        let mut shelf = lock(&self.0);
        shelf.remove(|other| other.is_of(kept.tenant, &kept.session) || other.is_old(kept.kept_at));
        if kept.bytes() > CONVERSATION_KEPT_BYTES_MAX {
            return;
        }
        let tenant = kept.tenant;
        let own = shelf.all.iter().filter(|other| other.tenant == tenant).map(KeptConversation::bytes);
        let mut excess = (own.sum::<usize>() + kept.bytes()).saturating_sub(TENANT_KEPT_BYTES_MAX);
        shelf.remove(|other| {
            let is_displaced = excess > 0 && other.tenant == tenant;
            excess = excess.saturating_sub(if is_displaced { other.bytes() } else { 0 });
            is_displaced
        });
        shelf.bytes += kept.bytes();
        shelf.all.push_back(kept);
        while shelf.all.len() > CONVERSATIONS_KEPT_MAX || shelf.bytes > KEPT_BYTES_MAX {
            let Some(oldest) = shelf.all.pop_front() else { break };
            shelf.bytes -= oldest.bytes();
        }
    }

    /// Takes the conversation of a session out; `None`: it is not kept.
    pub(crate) fn take(
        &self,
        tenant: TenantId,
        session: &SessionId,
        now: Instant,
    ) -> Option<KeptConversation> {
        let mut shelf = lock(&self.0);
        let at = shelf.all.iter().position(|kept| kept.is_of(tenant, session))?;
        let kept = shelf.all.remove(at)?;
        shelf.bytes -= kept.bytes();
        (!kept.is_old(now)).then_some(kept)
    }

    /// Drops what has been kept for too long.
    pub(crate) fn drop_old(&self, now: Instant) {
        lock(&self.0).remove(|kept| kept.is_old(now));
    }
}

impl Shelf {
    /// Removes what a condition holds for. It is asked for each one once, from the oldest on.
    fn remove(&mut self, mut is_removed: impl FnMut(&KeptConversation) -> bool) {
        let bytes = &mut self.bytes;
        self.all.retain(|kept| {
            let is_removed = is_removed(kept);
            *bytes -= if is_removed { kept.bytes() } else { 0 };
            !is_removed
        });
    }
}

impl KeptConversation {
    fn bytes(&self) -> usize {
        self.conversation.memory_bytes()
    }

    fn is_of(&self, tenant: TenantId, session: &SessionId) -> bool {
        self.tenant == tenant && self.session == *session
    }

    fn is_old(&self, now: Instant) -> bool {
        now.duration_since(self.kept_at) > KEPT_FOR
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use domain::{
        conversation::{
            message::{Message, MessageTime, ModelRef, User},
            part::{Body, Part, Text},
        },
        ids::Timestamp,
    };
    use store::log::messages::MessageWithParts;

    /// A conversation of one prompt with a text of so many bytes.
    fn kept(tenant: u128, session: &str, bytes: usize, kept_at: Instant) -> KeptConversation {
        let session: SessionId = session.parse().unwrap();
        let user = User {
            id: "msg_1".parse().unwrap(),
            session_id: session.clone(),
            time: MessageTime { created: Timestamp(1), completed: None },
            agent: "build".to_owned(),
            model: ModelRef { provider_id: "p".to_owned(), model_id: "m".to_owned() }.into(),
            system: None,
            tools: None,
            format: None,
            summary: None,
        };
        let part = Part {
            id: "prt_1".parse().unwrap(),
            session_id: session.clone(),
            message_id: user.id.clone(),
            body: Body::Text(Text { text: "x".repeat(bytes), ..Text::default() }),
        };
        let entry = MessageWithParts { seq: 1, message: Message::User(user), parts: vec![(2, part)] };
        KeptConversation {
            tenant: TenantId(uuid::Uuid::from_u128(tenant)),
            session,
            position: KeptPosition { event_seq: 1, event_id: "evt_1".to_owned(), read_after: 1 },
            conversation: Conversation::from_messages(vec![entry], 0),
            kept_at,
        }
    }

    fn take(all: &KeptConversations, tenant: u128, session: &str, now: Instant) -> bool {
        all.take(TenantId(uuid::Uuid::from_u128(tenant)), &session.parse().unwrap(), now).is_some()
    }

    #[test]
    fn a_conversation_is_kept_for_a_while_for_its_own_tenant_and_taken_once() {
        let (all, now) = (KeptConversations::default(), Instant::now());
        all.put(kept(1, "ses_1", 10, now));
        assert!(!take(&all, 2, "ses_1", now), "another tenant");
        assert!(take(&all, 1, "ses_1", now + KEPT_FOR));
        assert!(!take(&all, 1, "ses_1", now), "it was taken");
        all.put(kept(1, "ses_1", 10, now));
        assert!(!take(&all, 1, "ses_1", now + KEPT_FOR + Duration::from_secs(1)), "it is old");
        all.put(kept(1, "ses_1", 10, now));
        all.drop_old(now + KEPT_FOR);
        assert_eq!(lock(&all.0).all.len(), 1);
        all.drop_old(now + KEPT_FOR + Duration::from_secs(1));
        assert!(matches!(*lock(&all.0), Shelf { ref all, bytes: 0 } if all.is_empty()));
        all.put(kept(1, "ses_1", 10, now));
        all.put(kept(1, "ses_1", CONVERSATION_KEPT_BYTES_MAX, now));
        assert!(!take(&all, 1, "ses_1", now), "it is too large now, and what was kept before is out of date");
    }

    #[test]
    fn a_tenant_displaces_its_own_conversations_and_not_those_of_others() {
        let (all, now) = (KeptConversations::default(), Instant::now());
        all.put(kept(2, "ses_other", 10, now));
        let names: Vec<String> = (0..6).map(|number| format!("ses_{number}")).collect();
        for name in &names {
            all.put(kept(1, name, TENANT_KEPT_BYTES_MAX / 4, now));
        }
        let found: Vec<bool> = names.iter().map(|name| take(&all, 1, name, now)).collect();
        assert_eq!(found, [false, false, false, true, true, true]);
        assert!(take(&all, 2, "ses_other", now));
    }

    #[test]
    fn all_tenants_together_have_a_bound_too() {
        let (all, now) = (KeptConversations::default(), Instant::now());
        for tenant in 0..9 {
            all.put(kept(tenant, "ses_1", KEPT_BYTES_MAX / 8, now));
        }
        let found: Vec<bool> = (0..9).map(|tenant| take(&all, tenant, "ses_1", now)).collect();
        assert_eq!(found, [false, false, true, true, true, true, true, true, true]);
    }
}
