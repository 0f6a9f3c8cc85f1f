//! What sessions changed in their files, and sessions that begin with the history of another one.

use crate::{
    Store,
    error::Error,
    log::record::{self, Change, Scope, What},
    session::{
        keyed,
        sessions::{self, NewSession, Session},
    },
};
use domain::{
    event::{Event, Stored},
    ids::{EventId, SessionId, TenantId, Timestamp},
    session::{Changes, Info},
};
use sqlx::{Postgres, Transaction, types::Json};

impl Store {
    /// Makes a session that begins with `history` and has the rules of the session that this was taken from, or gives the one
    /// that was made with the same key before. The events are empty in that case.
    ///
    /// # Errors
    /// `NotFound` for that session or the project; `Conflict`: something else was made with the key; `Db`: made or not.
    pub async fn fork_session(
        &self,
        tenant: TenantId,
        (origin, new): (&SessionId, &NewSession),
        event_id: &EventId,
        history: &[Change],
        at: Timestamp,
    ) -> Result<(Session, Vec<Stored>), Error> {
        let mut tx = self.begin(tenant).await?;
        sessions::read(&mut tx, tenant, origin).await?;
        if !sessions::insert(&mut tx, tenant, new, 1 + history.len() as u64).await? {
            return keyed::get(&mut tx, tenant, new).await.map(|session| (session, vec![]));
        }
        sqlx::query(
            "update session set rights = o.rights from session o
              where session.tenant_id = $1 and session.id = $2 and o.tenant_id = $1 and o.id = $3",
        )
        .bind(tenant.0)
        .bind(new.id.as_str())
        .bind(origin.as_str())
        .execute(&mut *tx)
        .await?;
        let session = sessions::read(&mut tx, tenant, &new.id).await?;
        let created = What::Event(Event::SessionCreated(Box::new(session.info.clone())));
        let created = Change { id: event_id.clone(), what: created };
        let changes: Vec<Change> = std::iter::once(created).chain(history.iter().cloned()).collect();
        let scope = Scope { tenant, session: &new.id, epoch: 0, at };
        let events = record::project(&mut tx, &scope, &changes, 1).await?;
        tx.commit().await?;
        Ok((session, events))
    }

    /// Gives the oldest known state of a session's files.
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

/// Says how much the files of a session changed, and gives the session as it is then.
pub(crate) async fn summarize(
    tx: &mut Transaction<'static, Postgres>,
    scope: &Scope<'_>,
    changes: &Changes,
) -> Result<Info, Error> {
    sqlx::query(
        "update session set summary = $3, updated_at = date_trunc('milliseconds', now())
          where tenant_id = $1 and id = $2",
    )
    .bind(scope.tenant.0)
    .bind(scope.session.as_str())
    .bind(Json(changes))
    .execute(&mut **tx)
    .await?;
    Ok(sessions::read(tx, scope.tenant, scope.session).await?.info)
}

/// Says on which branch the files of a session are.
pub(crate) async fn set_branch(
    tx: &mut Transaction<'static, Postgres>,
    scope: &Scope<'_>,
    branch: Option<&str>,
) -> Result<(), Error> {
    sqlx::query("update session set branch = $3 where tenant_id = $1 and id = $2")
        .bind(scope.tenant.0)
        .bind(scope.session.as_str())
        .bind(branch)
        .execute(&mut **tx)
        .await?;
    Ok(())
}
