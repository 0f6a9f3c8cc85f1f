//! Aborts: inputs that end a turn, of one session and of every working session below it.

use crate::{
    Store,
    error::Error,
    session::{
        control_row,
        mailbox::{Kind, Mailbox, NewInput},
    },
};
use domain::{
    ids::{SessionId, TenantId},
    session::Class,
};

/// An abort in a mailbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AbortReceipt {
    /// The session whose turn ends.
    pub session: SessionId,
    /// Its class. A worker needs it to find the session in the queue.
    pub class: Class,
}

impl Store {
    /// Accepts an abort. Returns `None` if there is nothing to stop; an idle session stays idle.
    ///
    /// While the newest input is an abort that no loop has taken, a further abort is merged with it: it would stop nothing
    /// more, and no client can fill a mailbox with aborts. An abort after a later input counts, because that input starts a
    /// turn of its own.
    ///
    /// # Errors
    /// `NotFound`; `Quarantined`, because nothing runs and no worker would take the abort; `Db`: accepted or not; repeat it
    /// with the same key.
    pub async fn accept_abort(
        &self,
        tenant: TenantId,
        session: &SessionId,
        dedupe: &str,
    ) -> Result<Option<AbortReceipt>, Error> {
        let mut tx = self.begin(tenant).await?;
        let run = control_row::lock(&mut tx, tenant, session).await?;
        run.refuse_quarantined()?;
        if run.is_idle() {
            return Ok(None);
        }
        if !run.ends_with_abort() {
            let input = NewInput { kind: Kind::Abort, dedupe, body: None };
            Mailbox { tenant, session, run: &run }.put(&mut tx, input).await?;
            tx.commit().await?;
        }
        Ok(Some(AbortReceipt { session: session.clone(), class: run.class }))
    }

    /// Forwards an abort to every working session below one session, each with its own input, and returns those sessions. The
    /// inputs have the key of the abort itself: the gateway and the loop of each ancestor forward it, and each session takes
    /// it once.
    ///
    /// # Errors
    /// `Db`: forwarded to some sessions; repeat the call.
    pub async fn abort_below(
        &self,
        tenant: TenantId,
        session: &SessionId,
        dedupe: &str,
    ) -> Result<Vec<AbortReceipt>, Error> {
        let mut aborted = vec![];
        for descendant in self.list_descendants(tenant, session).await? {
            if !descendant.works {
                continue;
            }
            match self.accept_abort(tenant, &descendant.session, dedupe).await {
                Ok(receipt) => aborted.extend(receipt),
                // The session was deleted or quarantined after it was listed.
                Err(Error::NotFound(_) | Error::Quarantined) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(aborted)
    }
}
