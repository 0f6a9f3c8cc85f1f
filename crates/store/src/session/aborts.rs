//! Aborts: inputs that end a turn, of one session and of everything that works below it.

use crate::{Store, error::Error, session::inputs};
use domain::{
    ids::{SessionId, TenantId},
    session::Class,
};

/// An abort that stands in a mailbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// Whose turn is to end.
    pub session: SessionId,
    /// Its class: where a worker looks for it.
    pub class: Class,
}

impl Store {
    /// Accepts an abort. `None` when there is nothing to stop; an idle session stays idle. While the newest input is an
    /// abort that no loop has taken, another one is the same: it would stop nothing more, and nobody fills a mailbox with
    /// them. One that comes after a later input counts, because that input is a turn of its own.
    ///
    /// # Errors
    /// `NotFound`; `Quarantined`, because nothing runs and nobody would take it; `Db`: accepted or not, repeat it with the
    /// same key.
    pub async fn accept_abort(
        &self,
        tenant: TenantId,
        session: &SessionId,
        dedupe: &str,
    ) -> Result<Option<Accepted>, Error> {
        let mut tx = self.begin(tenant).await?;
        let run = inputs::lock(&mut tx, tenant, session).await?;
        run.refuse_quarantined()?;
        if run.is_idle() {
            return Ok(None);
        }
        if !run.ends_with_abort() {
            inputs::put(&mut tx, tenant, (session, &run), (inputs::Kind::Abort, dedupe, None)).await?;
            tx.commit().await?;
        }
        Ok(Some(Accepted { session: session.clone(), class: run.class }))
    }

    /// Passes an abort on to every session below one that works, each with an input of its own, and gives those. Under the
    /// key of the abort itself: the gateway does so, and the loop of each session that it reaches, and each takes it once.
    ///
    /// # Errors
    /// `Db`: passed on to some; repeat it.
    pub async fn abort_below(
        &self,
        tenant: TenantId,
        session: &SessionId,
        dedupe: &str,
    ) -> Result<Vec<Accepted>, Error> {
        let mut aborted = vec![];
        for below in self.list_descendants(tenant, session).await? {
            if !below.works {
                continue;
            }
            match self.accept_abort(tenant, &below.session, dedupe).await {
                Ok(accepted) => aborted.extend(accepted),
                // Deleted, or quarantined, since it was listed.
                Err(Error::NotFound(_) | Error::Quarantined) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(aborted)
    }
}
