//! Requests to people. The first answer counts; it wakes the session through its mailbox.

use crate::{
    Page, Store,
    error::{Entity, Error},
    log::record::{self, Change, Scope},
    parsed,
    people::approvals,
    session::inputs,
    timestamp,
};
use domain::{
    event::{Event, Stored},
    ids::{EventId, PartId, ProjectId, SessionId, TenantId, Timestamp},
    request::{Answer, Asked, Id, Request},
    session::Class,
};
use sqlx::{
    Postgres, Row as _, Transaction,
    postgres::PgRow,
    types::{Json, time::OffsetDateTime},
};

/// A request with how it ended, if it did.
#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    /// The request.
    pub request: Request,
    /// When it was made.
    pub asked_at: Timestamp,
    /// How it ended.
    pub answer: Option<Answer>,
    /// Whether its deadline is over by the clock of Postgres, which also wakes who waits for it.
    pub is_over: bool,
}

/// Whose requests to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose<'a> {
    /// Of all sessions of the tenant.
    Tenant,
    /// Of one session.
    Session(&'a SessionId),
    /// Of one session and all below it.
    Tree(&'a SessionId),
    /// Of all sessions of a project.
    Project(&'a ProjectId),
}

/// What became of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Answered {
    /// It is the first one.
    Yes {
        /// Whose request it was.
        session: SessionId,
        /// Its class: where a worker looks for it.
        class: Class,
        /// The event, for publishing.
        events: Vec<Stored>,
        /// Whether the session must be enqueued.
        runnable: bool,
    },
    /// Another one came first.
    Before {
        /// Who gave it.
        by: String,
        /// When.
        at: Timestamp,
        /// What it says.
        answer: Answer,
    },
}

const COLUMNS: &str = "id, session_id, message_id, part_id, call_id, asked, asked_at, expires_at, answer, answered_by, answered_at,
    coalesce(expires_at <= now(), false) as is_over";

fn query(tail: &'static str) -> sqlx::AssertSqlSafe<String> {
    sqlx::AssertSqlSafe(format!("select {COLUMNS} from request {tail}"))
}

fn from_row(row: &PgRow) -> Result<Known, Error> {
    let id: String = row.try_get("id")?;
    let unknown = || Error::unreadable("request", std::io::Error::other(format!("id {id}")));
    let asked = row.try_get::<Json<Asked>, _>("asked").map_err(|e| Error::unreadable("request", e))?.0;
    Ok(Known {
        request: Request {
            id: Id::parse(&id).ok_or_else(unknown)?,
            session_id: parsed(row.try_get("session_id")?)?,
            message_id: parsed(row.try_get("message_id")?)?,
            part_id: parsed(row.try_get("part_id")?)?,
            call_id: row.try_get("call_id")?,
            asked,
            expires_at: row.try_get::<Option<_>, _>("expires_at")?.map(timestamp),
        },
        asked_at: timestamp(row.try_get("asked_at")?),
        answer: row.try_get::<Option<Json<Answer>>, _>("answer")?.map(|answer| answer.0),
        is_over: row.try_get("is_over")?,
    })
}

impl Store {
    /// Lists open requests, oldest first; the cursor is the last id. `prefix` says of which kind: `per` or `que`.
    ///
    /// # Errors
    /// `Unreadable`; `Db`.
    pub async fn list_requests(
        &self,
        tenant: TenantId,
        whose: Whose<'_>,
        prefix: &str,
        page: &Page,
    ) -> Result<Vec<Known>, Error> {
        let (session, goes_down, project) = match whose {
            Whose::Tenant => (None, false, None),
            Whose::Session(session) => (Some(session), false, None),
            Whose::Tree(session) => (Some(session), true, None),
            Whose::Project(project) => (None, false, Some(project)),
        };
        let mut tx = self.begin(tenant).await?;
        let rows = sqlx::query(query(
            "where tenant_id = $1 and answer is null and (expires_at is null or expires_at > now())
               and ($2::text is null or session_id in (
                     with recursive tree as (
                       select $2::text collate \"C\" as id
                       union all
                       select s.id from session s join tree t on s.parent_id = t.id where s.tenant_id = $1 and $6)
                     select id from tree))
               and ($7::text is null or session_id in (select id from session where tenant_id = $1 and project_id = $7))
               and id > $3 and starts_with(id, $4) order by id limit $5",
        ))
        .bind(tenant.0)
        .bind(session.map(SessionId::as_str))
        .bind(page.cursor.as_deref().unwrap_or_default())
        .bind(prefix)
        .bind(page.limit())
        .bind(goes_down)
        .bind(project.map(ProjectId::as_str))
        .fetch_all(&mut *tx)
        .await?;
        rows.iter().map(from_row).collect()
    }

    /// Gives the requests that were made for these tool calls, open or not.
    ///
    /// # Errors
    /// `Unreadable`; `Db`.
    pub async fn list_requests_of(
        &self,
        tenant: TenantId,
        session: &SessionId,
        parts: &[&PartId],
    ) -> Result<Vec<Known>, Error> {
        let ids: Vec<&str> = parts.iter().map(|part| part.as_str()).collect();
        let mut tx = self.begin(tenant).await?;
        let rows =
            sqlx::query(query("where tenant_id = $1 and session_id = $2 and part_id = any($3) order by id"))
                .bind(tenant.0)
                .bind(session.as_str())
                .bind(&ids)
                .fetch_all(&mut *tx)
                .await?;
        rows.iter().map(from_row).collect()
    }

    /// Answers a request, in the name of `by`, unless it was answered or its time is over.
    ///
    /// # Errors
    /// `NotFound`; `Db`: answered or not, a repeated answer finds out.
    pub async fn answer_request(
        &self,
        tenant: TenantId,
        id: &Id,
        (answer, by): (&Answer, &str),
        event_id: &EventId,
        at: Timestamp,
    ) -> Result<Answered, Error> {
        let mut tx = self.begin(tenant).await?;
        let session = find_session(&mut tx, tenant, id).await?;
        let run = inputs::lock(&mut tx, tenant, &session).await?;
        let row = sqlx::query(
            "update request set answer = $3, answered_by = $4, answered_at = now()
              where tenant_id = $1 and id = $2 and answer is null
                and ($5 or expires_at is null or expires_at > now())
             returning asked",
        )
        .bind(tenant.0)
        .bind(id.as_str())
        .bind(Json(answer))
        .bind(by)
        .bind(*answer == Answer::Expired)
        .fetch_optional(&mut *tx)
        .await?;
        let Some(row) = row else { return before(tx, tenant, id).await };
        let asked = row.try_get::<Json<Asked>, _>("asked").map_err(|e| Error::unreadable("request", e))?.0;
        if let (Answer::Always { scope }, Asked::Permission { permission, always, .. }) = (answer, &asked) {
            approvals::insert(&mut tx, (tenant, &session), (id, by, *scope), (permission, always)).await?;
        }
        inputs::put(&mut tx, tenant, (&session, &run), (inputs::Kind::Reply, id.as_str(), None)).await?;
        sqlx::query(
            "update session_run set event_seq = event_seq + 1 where tenant_id = $1 and session_id = $2",
        )
        .bind(tenant.0)
        .bind(session.as_str())
        .execute(&mut *tx)
        .await?;
        let event = Event::RequestAnswered { id: id.clone(), answer: answer.clone() };
        let change = Change { id: event_id.clone(), what: record::What::Event(event) };
        let scope = Scope { tenant, session: &session, epoch: run.epoch, at };
        let events = record::project(&mut tx, &scope, &[change], run.event_seq + 1).await?;
        tx.commit().await?;
        Ok(Answered::Yes { events, runnable: run.needs_worker(), class: run.class, session })
    }
}

/// Stores a request; asking again is the same request.
pub(crate) async fn insert(
    tx: &mut Transaction<'static, Postgres>,
    scope: &Scope<'_>,
    request: &Request,
) -> Result<(), Error> {
    sqlx::query(
        "insert into request (tenant_id, session_id, id, message_id, part_id, call_id, asked, expires_at)
         values ($1, $2, $3, $4, $5, $6, $7, to_timestamp($8::float8 / 1000)) on conflict do nothing",
    )
    .bind(scope.tenant.0)
    .bind(scope.session.as_str())
    .bind(request.id.as_str())
    .bind(request.message_id.as_str())
    .bind(request.part_id.as_str())
    .bind(&request.call_id)
    .bind(Json(&request.asked))
    .bind(request.expires_at.map(|at| at.0))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Closes a request that its own loop needs no more, and gives the answer that counts: one that came first stays.
pub(crate) async fn close(
    tx: &mut Transaction<'static, Postgres>,
    scope: &Scope<'_>,
    id: &Id,
    answer: &Answer,
) -> Result<Answer, Error> {
    let row = sqlx::query(
        "update request set answer = coalesce(answer, $3::json), answered_at = coalesce(answered_at, now()),
                answered_by = coalesce(answered_by, 'the end of the tool call')
          where tenant_id = $1 and id = $2 returning answer",
    )
    .bind(scope.tenant.0)
    .bind(id.as_str())
    .bind(Json(answer))
    .fetch_optional(&mut **tx)
    .await?;
    // A call that never came to its request has nothing that could have been answered.
    let Some(row) = row else { return Ok(answer.clone()) };
    let stored = row.try_get::<Json<Answer>, _>("answer").map_err(|e| Error::unreadable("request", e))?;
    Ok(stored.0)
}

async fn find_session(
    tx: &mut Transaction<'static, Postgres>,
    tenant: TenantId,
    id: &Id,
) -> Result<SessionId, Error> {
    let row = sqlx::query("select session_id from request where tenant_id = $1 and id = $2")
        .bind(tenant.0)
        .bind(id.as_str())
        .fetch_optional(&mut **tx)
        .await?
        .ok_or(Error::NotFound(Entity::Request))?;
    parsed(row.try_get("session_id")?)
}

/// Who answered first; the deadline is somebody too.
async fn before(
    mut tx: Transaction<'static, Postgres>,
    tenant: TenantId,
    id: &Id,
) -> Result<Answered, Error> {
    let row = sqlx::query(
        "select coalesce(answered_by, 'its deadline') as by, coalesce(answered_at, expires_at) as at, answer
           from request where tenant_id = $1 and id = $2",
    )
    .bind(tenant.0)
    .bind(id.as_str())
    .fetch_one(&mut *tx)
    .await?;
    let at = timestamp(row.try_get::<OffsetDateTime, _>("at")?);
    let answer = row.try_get::<Option<Json<Answer>>, _>("answer")?.map_or(Answer::Expired, |answer| answer.0);
    Ok(Answered::Before { by: row.try_get("by")?, at, answer })
}
