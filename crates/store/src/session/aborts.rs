//! Aborts: inputs that end a turn, of one session and of everything that works below it.

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
    /// Its class, which tells a worker where to look for it.
    pub class: Class,
}

impl Store {
    /// Accepts an abort. Gives `None` when there is nothing to stop; an idle session stays idle.
    ///
    /// While the newest input is an abort that no loop has taken, a further abort is the same one: it would stop nothing more,
    /// and no client can fill a mailbox with aborts. An abort after a later input counts, because that input is a turn of its
    /// own.
    ///
    /// # Errors
    /// `NotFound`; `Quarantined`, because nothing runs and no worker would take the abort; `Db`: accepted or not, repeat it
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

    /// Passes an abort on to every session below one that works, each with an input of its own, and gives those. The inputs
    /// have the key of the abort itself: the gateway and the loop of each ancestor pass it on, and each session takes it once.
    ///
    /// # Errors
    /// `Db`: passed on to some; repeat it.
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
                // Deleted, or quarantined, since it was listed.
                Err(Error::NotFound(_) | Error::Quarantined) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(aborted)
    }
}
