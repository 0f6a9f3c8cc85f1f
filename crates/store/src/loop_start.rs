//! What a loop reads before its first step, in one transaction.

use crate::{
    Store,
    error::Error,
    log::messages::{self, MessageWithParts},
    people::settings::{self, StoredSettings},
    session::{
        mailbox::{self, MailboxInput},
        row::{self, Session},
        runs::TakeOver,
    },
};

/// What a loop reads before its first step.
#[derive(Debug)]
pub struct LoopStart {
    /// Those of the tenant, then those of the project; either may be missing.
    pub settings: Vec<StoredSettings>,
    /// The session.
    pub session: Session,
    /// The inputs that no loop has acknowledged, oldest first.
    pub inputs: Vec<MailboxInput>,
    /// The position up to which the newest summary replaces the conversation; 0: nothing is left out.
    pub left_out: u64,
    /// The messages after it, oldest first. Every prompt among the inputs is one of them.
    pub messages: Vec<MessageWithParts>,
}

impl Store {
    /// Reads what the loop of a taken session needs.
    ///
    /// # Errors
    /// `NotFound`: the session was deleted; `Unreadable` for data of a newer version; `Db`.
    pub async fn read_loop_start(&self, taken: &TakeOver) -> Result<LoopStart, Error> {
        let (tenant, id) = (taken.fence.tenant, &taken.fence.session);
        let mut tx = self.begin(tenant).await?;
        let settings = settings::list_of(&mut tx, tenant, id).await?;
        let session = row::read(&mut tx, tenant, id).await?;
        // Before the messages: a prompt that is accepted in between is then only among the messages, and is read again.
        let inputs = mailbox::list(&mut tx, tenant, id, taken.input_ack).await?;
        let left_out = messages::find_horizon(&mut tx, tenant, id).await?;
        let messages = messages::load(&mut tx, tenant, id, left_out).await?;
        Ok(LoopStart { settings, session, inputs, left_out, messages })
    }
}
