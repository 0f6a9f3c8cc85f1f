//! Requests to people: permissions and questions. The first answer counts; it wakes the session through its mailbox.

use crate::{
    Page, Store, Tx,
    audit::AuditNote,
    column::{parse_id, timestamp},
    error::{Entity, Error},
    log::{
        change::{Change, Scope},
        projection,
    },
    people::approvals::{self, NewApproval},
    rows::control_row,
    session::mailbox::{Kind, Mailbox, NewInput},
    tenant::worktrees::SessionArea,
};
use domain::{
    conversation::request::{Answer, Id, Request, RequestBody},
    event::{Event, StoredEvent},
    ids::{EventId, PartId, SessionId, TenantId, Timestamp, WorktreeId},
    session::Class,
};
use sqlx::{
    AssertSqlSafe, PgConnection, Row as _,
    postgres::PgRow,
    types::{Json, time::OffsetDateTime},
};

/// A request with its answer, if it has one.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestRecord {
    pub request: Request,
    pub asked_at: Timestamp,
    pub answer: Option<Answer>,
    /// Whether its deadline has passed by the clock of Postgres. The same clock wakes the session.
    pub is_over: bool,
}

/// The sessions whose requests are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestScope<'a> {
    /// All sessions of the tenant.
    Tenant,
    Session(&'a SessionId),
    /// One session and all sessions below it.
    Tree(&'a SessionId),
    /// The sessions of a directory.
    Area(&'a SessionArea),
}

#[derive(Debug, Clone, Copy)]
pub struct NewAnswer<'a> {
    pub answer: &'a Answer,
    /// The name of the person, or what answers in place of a person.
    pub by: &'a str,
    /// The epoch of the loop that answers in place of a person; `None` for a person.
    pub epoch: Option<u64>,
}

/// The result of answering a request.
#[derive(Debug, Clone, PartialEq)]
pub enum AnswerOutcome {
    /// It is the first one.
    Accepted {
        /// The session that made the request.
        session: SessionId,
        /// Its class. A worker needs it to find the session in the queue.
        class: Class,
        events: Vec<StoredEvent>,
        /// Whether the gateway must enqueue the session.
        runnable: bool,
    },
    /// Another answer came first.
    AlreadyAnswered {
        /// The person who gave it.
        by: String,
        /// The time of that answer.
        at: Timestamp,
        answer: Answer,
    },
}

const COLUMNS: &str = "id, session_id, message_id, part_id, call_id, asked, asked_at, expires_at, answer, answered_by, answered_at,
    coalesce(expires_at <= now(), false) as is_over";

/// Selects requests by a condition. Those of deleted sessions stay until workers have removed them.
fn select(condition: &'static str, order: &'static str) -> AssertSqlSafe<String> {
    AssertSqlSafe(format!("select {COLUMNS} from request q where {condition} and {SESSION_EXISTS} {order}"))
}

/// The condition that the session of the request `q` exists. With `exists` it would join both tables, so that an index by session could serve the
/// look-up of a request by its id.
const SESSION_EXISTS: &str =
    "(select true from session_run r where r.tenant_id = q.tenant_id and r.session_id = q.session_id)";

#[derive(Debug, thiserror::Error)]
#[error("unknown id {0}")]
struct UnknownId(String);

fn from_row(row: &PgRow) -> Result<RequestRecord, Error> {
    let id: String = row.try_get("id")?;
    Ok(RequestRecord {
        request: Request {
            id: Id::parse(&id).ok_or_else(|| Error::unreadable("request", UnknownId(id)))?,
            session_id: parse_id("request", row.try_get("session_id")?)?,
            message_id: parse_id("request", row.try_get("message_id")?)?,
            part_id: parse_id("request", row.try_get("part_id")?)?,
            call_id: row.try_get("call_id")?,
            body: body(row)?,
            expires_at: row.try_get::<Option<_>, _>("expires_at")?.map(timestamp),
        },
        asked_at: timestamp(row.try_get("asked_at")?),
        answer: row.try_get::<Option<Json<Answer>>, _>("answer")?.map(|answer| answer.0),
        is_over: row.try_get("is_over")?,
    })
}

fn body(row: &PgRow) -> Result<RequestBody, Error> {
    let body = row.try_get::<Json<RequestBody>, _>("asked");
    body.map(|json| json.0).map_err(|error| Error::unreadable("request", error))
}

impl Store {
    /// Lists open requests, oldest first; the cursor is the last id. `prefix` selects the kind: `per` or `que`.
    ///
    /// # Errors
    /// `Unreadable`; `Db`.
    pub async fn list_requests(
        &self,
        tenant: TenantId,
        scope: RequestScope<'_>,
        prefix: &str,
        page: &Page,
    ) -> Result<Vec<RequestRecord>, Error> {
        let (session, goes_down, area) = match scope {
            RequestScope::Tenant => (None, false, None),
            RequestScope::Session(session) => (Some(session), false, None),
            RequestScope::Tree(session) => (Some(session), true, None),
            RequestScope::Area(area) => (None, false, Some(area)),
        };
        let query = sqlx::query(select(
            "tenant_id = $1 and answer is null and (expires_at is null or expires_at > now())
               and ($2::text is null or session_id in (
                     with recursive tree as (
                       select $2::text collate \"C\" as id
                       union all
                       select s.id from session s join tree t on s.parent_id = t.id where s.tenant_id = $1 and $6)
                     select id from tree))
               and ($7::text is null or exists (
                     select 1 from session s where s.tenant_id = $1 and s.id = q.session_id and s.project_id = $7 and ($8::text is null or s.worktree_id = $8)))
               and id > $3 and starts_with(id, $4)",
            "order by id limit $5",
        ))
        .bind(tenant.0)
        .bind(session.map(SessionId::as_str))
        .bind(page.cursor.as_deref().unwrap_or_default())
        .bind(prefix)
        .bind(page.limit())
        .bind(goes_down)
        .bind(area.map(|area| area.project.as_str()))
        .bind(area.and_then(|area| area.worktree.as_ref()).map(WorktreeId::as_str));
        let rows = self.statements(tenant).await?.fetch_all(query).await?;
        rows.iter().map(from_row).collect()
    }

    /// Returns the requests of these tool calls, open or not.
    ///
    /// # Errors
    /// `Unreadable`; `Db`.
    pub async fn list_requests_of(
        &self,
        tenant: TenantId,
        session: &SessionId,
        parts: &[&PartId],
    ) -> Result<Vec<RequestRecord>, Error> {
        let ids: Vec<&str> = parts.iter().map(|part| part.as_str()).collect();
        let of_parts = "tenant_id = $1 and session_id = $2 and part_id = any($3)";
        let query =
            sqlx::query(select(of_parts, "order by id")).bind(tenant.0).bind(session.as_str()).bind(&ids);
        let rows = self.statements(tenant).await?.fetch_all(query).await?;
        rows.iter().map(from_row).collect()
    }

    /// Returns the session that asks, or asked.
    ///
    /// # Errors
    /// `NotFound`; `Db`.
    pub async fn get_session_of_request(&self, tenant: TenantId, id: &Id) -> Result<SessionId, Error> {
        let mut statements = self.statements(tenant).await?;
        let session = get_session_of(&mut statements, tenant, id).await?;
        statements.end();
        Ok(session)
    }

    /// Answers a request, unless it has an answer or its deadline has passed.
    ///
    /// # Errors
    /// `NotFound`; `Fenced`: another worker owns the session of the loop that answers; `Db`: answered or not; repeat the call to find
    /// out.
    pub async fn answer_request(
        &self,
        tenant: TenantId,
        id: &Id,
        new: NewAnswer<'_>,
        event_id: &EventId,
        at: Timestamp,
    ) -> Result<AnswerOutcome, Error> {
        let NewAnswer { answer, by, epoch } = new;
        let mut tx = self.begin(tenant).await?;
        let session = get_session_of(&mut tx, tenant, id).await?;
        let run = control_row::lock(&mut tx, tenant, &session).await?;
        if epoch.is_some_and(|epoch| epoch != run.epoch) {
            return Err(Error::Fenced);
        }
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
        let Some(row) = row else { return read_first_answer(tx, tenant, id).await };
        if let (Answer::Always { scope }, RequestBody::Permission { permission, always, .. }) =
            (answer, &body(&row)?)
        {
            let (session, scope) = (&session, *scope);
            let approval = NewApproval { session, request: id, by, scope, permission, patterns: always };
            approvals::insert(&mut tx, tenant, &approval).await?;
            let object = approval.object();
            self.note(&mut tx, AuditNote::of(tenant, "approval.create", &object)).await?;
        }
        let input = NewInput::new(Kind::Reply, id.as_str());
        Mailbox { tenant, session: &session, run: &run }.put(&mut tx, input).await?;
        let answered = Event::RequestAnswered { id: id.clone(), answer: answer.clone() };
        let changes = [Change::event(event_id.clone(), answered)];
        let scope = Scope { tenant, session: &session, epoch: run.epoch, at };
        let events = projection::append(&mut tx, &scope, &run, &changes).await?;
        tx.commit().await?;
        Ok(AnswerOutcome::Accepted { events, runnable: run.needs_worker(), class: run.class, session })
    }
}

async fn get_session_of(
    connection: &mut PgConnection,
    tenant: TenantId,
    id: &Id,
) -> Result<SessionId, Error> {
    let sql =
        format!("select session_id from request q where tenant_id = $1 and id = $2 and {SESSION_EXISTS}");
    let row = sqlx::query(AssertSqlSafe(sql))
        .bind(tenant.0)
        .bind(id.as_str())
        .fetch_optional(connection)
        .await?
        .ok_or(Error::NotFound(Entity::Request))?;
    parse_id("request", row.try_get("session_id")?)
}

/// Returns the first answer. An expired deadline counts as one.
async fn read_first_answer(mut tx: Tx, tenant: TenantId, id: &Id) -> Result<AnswerOutcome, Error> {
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
    Ok(AnswerOutcome::AlreadyAnswered { by: row.try_get("by")?, at, answer })
}
