//! The stored session with which a loop begins.

use crate::{
    conversation::{kept::KeptConversation, memory::Conversation},
    process::deps::Deps,
    repository::above::SettingsAbove,
};
use store::{
    loop_start::LoopStart,
    rows::session_row::{self, SessionWithSettings},
    session::mailbox::MailboxInput,
};

/// A stored session with its conversation and its waiting inputs, and the settings above its repository.
pub(super) struct StoredSession {
    pub(super) above: SettingsAbove,
    pub(super) session: session_row::Session,
    pub(super) inputs: Vec<MailboxInput>,
    pub(super) conversation: Conversation,
}

impl StoredSession {
    /// Reads the stored settings. `kept` is the conversation with which the loop may continue.
    ///
    /// # Errors
    /// `Unreadable` for settings of a newer version.
    pub(super) fn new(
        deps: &Deps,
        start: LoopStart,
        kept: Option<KeptConversation>,
    ) -> Result<Self, store::error::Error> {
        let LoopStart { stored, inputs, left_out, messages, continues_kept } = start;
        let SessionWithSettings { session, settings } = stored;
        // The gateway checked the settings when it accepted them. If they are invalid here, a newer version accepted them.
        let above = SettingsAbove::of(&deps.platform, &settings).map_err(|problems| {
            store::error::Error::Unreadable { what: "settings", source: Box::new(problems) }
        })?;
        let kept = kept.filter(|_| continues_kept).map(|kept| kept.conversation);
        let conversation = Conversation::begin(kept, messages, left_out);
        Ok(Self { above, session, inputs, conversation })
    }
}
