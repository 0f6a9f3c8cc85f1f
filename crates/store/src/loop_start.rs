//! What a loop reads before its first step, in the transaction that takes the session.

use crate::{
    Tx,
    error::Error,
    log::messages::{self, MessageWithParts},
    people::settings::{self, StoredSettings},
    session::{
        mailbox::{self, MailboxInput},
        row::{self, Session},
    },
};
use domain::ids::{SessionId, TenantId};

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

/// Reads what the loop of a session needs that has taken the inputs up to `input_ack`. The caller holds the control row, so no input is accepted
/// meanwhile.
///
/// # Errors
/// `NotFound`: the session was deleted; `Unreadable` for data of a newer version; `Db`.
pub(crate) async fn read(
    tx: &mut Tx,
    tenant: TenantId,
    session: &SessionId,
    input_ack: u64,
) -> Result<LoopStart, Error> {
    let settings = settings::list_of(tx, tenant, session).await?;
    let inputs = mailbox::list(tx, tenant, session, input_ack).await?;
    let left_out = messages::find_horizon(tx, tenant, session).await?;
    let messages = messages::load(tx, tenant, session, left_out).await?;
    let session = row::read(tx, tenant, session).await?;
    Ok(LoopStart { settings, session, inputs, left_out, messages })
}
