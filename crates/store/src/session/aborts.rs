//! Aborts: inputs that end a turn, of one session and of every working session below it.

use crate::{
    Store, Tx,
    column::signed,
    error::Error,
    log::record::Fence,
    rows::control_row,
    session::mailbox::{Kind, Mailbox, NewInput},
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
        let receipt = accept(&mut tx, tenant, session, dedupe).await?;
        tx.commit().await?;
        Ok(receipt)
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
            if descendant.works {
                let accepted = self.accept_abort(tenant, &descendant.session, dedupe).await;
                aborted.extend(unless_gone(accepted)?);
            }
        }
        Ok(aborted)
    }

    /// Like [`Store::abort_below`], for the loop of the session: a loop that was replaced aborts no subtask of its successor.
    ///
    /// # Errors
    /// `Fenced`: another worker owns the session; `Db`: forwarded to some sessions; repeat the call.
    pub async fn abort_below_fenced(&self, fence: &Fence, dedupe: &str) -> Result<Vec<AbortReceipt>, Error> {
        let mut aborted = vec![];
        for descendant in self.list_descendants(fence.tenant, &fence.session).await? {
            if !descendant.works {
                continue;
            }
            let mut tx = self.begin(fence.tenant).await?;
            hold_fence(&mut tx, fence).await?;
            let accepted = accept(&mut tx, fence.tenant, &descendant.session, dedupe).await;
            aborted.extend(unless_gone(accepted)?);
            tx.commit().await?;
        }
        Ok(aborted)
    }
}

/// Puts an abort into the mailbox of a session that works.
async fn accept(
    tx: &mut Tx,
    tenant: TenantId,
    session: &SessionId,
    dedupe: &str,
) -> Result<Option<AbortReceipt>, Error> {
    let run = control_row::lock(tx, tenant, session).await?;
    run.refuse_quarantined()?;
    if run.is_idle() {
        return Ok(None);
    }
    if !run.ends_with_abort() {
        let input = NewInput::new(Kind::Abort, dedupe);
        Mailbox { tenant, session, run: &run }.put(tx, input).await?;
    }
    Ok(Some(AbortReceipt { session: session.clone(), class: run.class }))
}

/// Keeps the session from being taken over until the transaction ends.
async fn hold_fence(tx: &mut Tx, fence: &Fence) -> Result<(), Error> {
    let row = sqlx::query(
        "select 1 from session_run where tenant_id = $1 and session_id = $2 and epoch = $3 for share",
    )
    .bind(fence.tenant.0)
    .bind(fence.session.as_str())
    .bind(signed(fence.epoch))
    .fetch_optional(&mut **tx)
    .await?;
    row.map(|_| ()).ok_or(Error::Fenced)
}

/// A session that was deleted or quarantined after it was listed needs no abort.
fn unless_gone(accepted: Result<Option<AbortReceipt>, Error>) -> Result<Option<AbortReceipt>, Error> {
    match accepted {
        Err(Error::NotFound(_) | Error::Quarantined) => Ok(None),
        other => other,
    }
}
