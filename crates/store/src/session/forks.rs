//! Forks: sessions that begin with the history of another session.

use crate::{
    Store,
    error::Error,
    log::{
        change::{Change, Scope},
        projection,
    },
    session::{
        creation::{self, NewSession},
        row::{self, Session},
    },
};
use domain::{
    event::{Event, StoredEvent},
    ids::{EventId, SessionId, TenantId, Timestamp},
};

/// A new fork.
#[derive(Debug, Clone, Copy)]
pub struct NewFork<'a> {
    /// The origin: the session whose history it copies.
    pub origin: &'a SessionId,
    /// The new session.
    pub session: &'a NewSession,
    /// The id of its first event.
    pub event_id: &'a EventId,
    /// Its messages and parts.
    pub history: &'a [Change],
}

impl Store {
    /// Creates a session that begins with a history and has the permissions of its origin. If the key was already used,
    /// returns the session of that key and no events.
    ///
    /// # Errors
    /// `NotFound` for the origin or the project; `Conflict`: the key was used with a different body; `Db`: created or
    /// not.
    pub async fn fork_session(
        &self,
        tenant: TenantId,
        fork: NewFork<'_>,
        at: Timestamp,
    ) -> Result<(Session, Vec<StoredEvent>), Error> {
        let NewFork { origin, session: new, event_id, history } = fork;
        let mut tx = self.begin(tenant).await?;
        row::read(&mut tx, tenant, origin).await?;
        if !creation::insert(&mut tx, tenant, new, 1 + history.len() as u64).await? {
            return creation::get_existing(&mut tx, tenant, new).await.map(|session| (session, vec![]));
        }
        sqlx::query(
            "update session set rights = o.rights, variant = o.variant from session o
              where session.tenant_id = $1 and session.id = $2 and o.tenant_id = $1 and o.id = $3",
        )
        .bind(tenant.0)
        .bind(new.id.as_str())
        .bind(origin.as_str())
        .execute(&mut *tx)
        .await?;
        let session = row::read(&mut tx, tenant, &new.id).await?;
        let created = Event::SessionCreated(Box::new(session.info.clone()));
        let created = Change::event(event_id.clone(), created);
        let changes: Vec<Change> = std::iter::once(created).chain(history.iter().cloned()).collect();
        let scope = Scope { tenant, session: &new.id, epoch: 0, at };
        let events = projection::project(&mut tx, &scope, &changes, 1).await?;
        tx.commit().await?;
        Ok((session, events))
    }

    /// Returns the oldest snapshot of a session's files.
    ///
    /// # Errors
    /// `Db`.
    pub async fn find_first_state(
        &self,
        tenant: TenantId,
        session: &SessionId,
    ) -> Result<Option<String>, Error> {
        let mut tx = self.begin(tenant).await?;
        let state = sqlx::query_scalar(
            "select data->>'snapshot' from part
              where tenant_id = $1 and session_id = $2 and kind in ('step-start', 'snapshot')
                and data->>'snapshot' is not null
              order by seq limit 1",
        );
        Ok(state.bind(tenant.0).bind(session.as_str()).fetch_optional(&mut *tx).await?)
    }
}
