//! Sessions: their descriptive row, joined with what their control row says.

use crate::{
    Page, Store,
    error::{Entity, Error},
    log::record,
    parsed,
    session::{
        children::{self, ParentCall},
        keyed::{self, Key},
    },
    signed, timestamp, unsigned,
};
use domain::{
    event::{Event, Stored},
    ids::{EventId, ProjectId, SessionId, TenantId, Timestamp},
    message::ModelRef,
    money::{Tokens, UsdPicos},
    permission::{OnAsk, Rules},
    session::{Chosen, Class, Info, InfoTime, Outcome, Phase, Source, WORKSPACE},
};
use sqlx::{Postgres, Row as _, Transaction, postgres::PgRow, types::Json};

/// A session with its present state.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    /// What clients see of it.
    pub info: Info,
    /// Where its files come from.
    pub source: Source,
    /// Whose files it works in: its root session, or itself.
    pub root_id: SessionId,
    /// Generations below its root.
    pub depth: i16,
    /// The tool call that it answers, for a child.
    pub call: Option<ParentCall>,
    /// Lists of rules beside those of its agent; the strictest verdict counts.
    pub rights: Vec<Rules>,
    /// What it does when a person would have to be asked.
    pub on_ask: OnAsk,
    /// What of its settings somebody chose.
    pub chosen: Chosen,
    /// How urgent it is.
    pub class: Class,
    /// The branch that its files were on at the last look.
    pub branch: Option<String>,
    /// What it is doing.
    pub phase: Phase,
    /// What it waits for, while it waits: see `domain::wait::Reason`.
    pub waiting_reason: Option<String>,
    /// More about that, in a sentence.
    pub waiting_detail: Option<String>,
    /// When its wait ends at the latest.
    pub wake_at: Option<Timestamp>,
    /// Since when it is runnable.
    pub queued_at: Option<Timestamp>,
    /// While it waits for its children: how many are over, and how many there are; otherwise 0.
    pub children: (u64, u64),
    /// What its root and all subtasks below that may spend together.
    pub budget: Option<UsdPicos>,
    /// While it waits for its budget: what they spent; otherwise 0.
    pub tree_cost: UsdPicos,
    /// Take-overs since the last progress.
    pub attempts: i16,
    /// Place in the tenant's queue while runnable, from 1; otherwise 0.
    pub queue_position: u32,
    /// How its last turn ended.
    pub last_outcome: Option<Outcome>,
    /// Why it failed.
    pub last_error: Option<String>,
    /// The number of the newest take-over.
    pub epoch: u64,
    /// Position of its newest event.
    pub event_seq: u64,
}

/// What a new session is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSession {
    /// Its id.
    pub id: SessionId,
    /// Its project.
    pub project_id: ProjectId,
    /// Its title.
    pub title: String,
    /// Its agent.
    pub agent: String,
    /// Its model.
    pub model: ModelRef,
    /// Which of both somebody chose.
    pub chosen: Chosen,
    /// Where its files come from.
    pub source: Source,
    /// How urgent it is.
    pub class: Class,
    /// Its rules beside those of its agent.
    pub rules: Rules,
    /// What it and its subtasks do when a person would have to be asked.
    pub on_ask: OnAsk,
    /// What it and its subtasks may spend together; `None`: no limit.
    pub budget: Option<UsdPicos>,
    /// The caller's idempotency key.
    pub key: Option<Key>,
}

/// The root is told by `case`: below row-level security, Postgres looks nothing up in an index by a `coalesce`.
const COLUMNS: &str = "s.id, s.project_id, s.parent_id, s.title, s.agent, s.provider_id, s.model_id, s.source,
    s.last_outcome, s.last_error, s.input_tokens, s.output_tokens, s.reasoning_tokens, s.cache_read_tokens,
    s.cache_write_tokens, s.cost_usd_picos, s.created_at, s.updated_at, s.archived_at,
    s.summary, s.revert, s.root_id, s.depth, s.parent_message_id, s.parent_part_id, s.rights, s.on_ask, s.agent_chosen,
    s.model_chosen, s.branch, r.class,
    r.phase, r.waiting_reason, r.waiting_detail, r.wake_at, r.queued_at, r.attempts, r.epoch, r.event_seq,
    case when r.waiting_reason = 'children' then (select count(*) from session c
      where c.tenant_id = s.tenant_id and c.parent_id = s.id) else 0 end as children,
    case when r.waiting_reason = 'children' then (select count(*) from session c
      join session_run x on x.tenant_id = c.tenant_id and x.session_id = c.id and x.phase = 0
      where c.tenant_id = s.tenant_id and c.parent_id = s.id) else 0 end as children_over,
    (select b.budget_usd_picos from session b
      where b.tenant_id = s.tenant_id and b.id = case when s.root_id is null then s.id else s.root_id end) as budget,
    case when r.waiting_reason = 'budget' then (select sum(t.cost_usd_picos)::bigint from session t
      where t.tenant_id = s.tenant_id and (t.id = case when s.root_id is null then s.id else s.root_id end
         or t.root_id = case when s.root_id is null then s.id else s.root_id end))
      else 0 end as tree_cost";

/// One session: its place in the queue is how many are not behind it.
fn query(tail: &'static str) -> sqlx::AssertSqlSafe<String> {
    sqlx::AssertSqlSafe(format!(
        "select {COLUMNS}, case when r.phase = 1 then (select count(*) from session_run q
                   where q.tenant_id = r.tenant_id and q.phase = 1
                     and (q.class, q.queued_at, q.session_id) <= (r.class, r.queued_at, r.session_id)) else 0
                 end as queue_position
           from session s join session_run r on r.tenant_id = s.tenant_id and r.session_id = s.id {tail}"
    ))
}

/// A page of the tenant `$1`. The queue is read once for all of it, and not at all when no session of it is queued.
fn page_query(tail: &'static str, order: &'static str) -> sqlx::AssertSqlSafe<String> {
    sqlx::AssertSqlSafe(format!(
        "with s as materialized (
           select {COLUMNS} from session s join session_run r on r.tenant_id = s.tenant_id and r.session_id = s.id
            where {tail} order by {order}),
         queue as (
           select session_id, row_number() over (order by class, queued_at, session_id) as place from session_run
            where tenant_id = $1 and phase = 1 and exists (select 1 from s where phase = 1))
         select s.*, coalesce(queue.place, 0) as queue_position
           from s left join queue on queue.session_id = s.id order by {order}"
    ))
}

fn info(row: &PgRow, rights: &[Rules]) -> Result<Info, Error> {
    let parent: Option<String> = row.try_get("parent_id")?;
    let count = |column| row.try_get::<i64, _>(column).map(unsigned);
    let tokens = Tokens {
        input: count("input_tokens")?,
        output: count("output_tokens")?,
        reasoning: count("reasoning_tokens")?,
        cache_read: count("cache_read_tokens")?,
        cache_write: count("cache_write_tokens")?,
    };
    let model = ModelRef { provider_id: row.try_get("provider_id")?, model_id: row.try_get("model_id")? };
    Ok(Info {
        id: parsed(row.try_get("id")?)?,
        project_id: parsed(row.try_get("project_id")?)?,
        directory: WORKSPACE.to_owned(),
        parent_id: parent.as_deref().map(parsed).transpose()?,
        title: row.try_get("title")?,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        agent: row.try_get("agent")?,
        model: model.into(),
        cost: UsdPicos(row.try_get("cost_usd_picos")?),
        tokens,
        summary: row.try_get::<Option<Json<_>>, _>("summary")?.map(|it| it.0),
        revert: row.try_get::<Option<Json<_>>, _>("revert")?.map(|it| it.0),
        permission: rights.iter().flat_map(|rules| &rules.0).filter(|it| !it.is_approval).cloned().collect(),
        time: InfoTime {
            created: timestamp(row.try_get("created_at")?),
            updated: timestamp(row.try_get("updated_at")?),
            archived: row.try_get::<Option<_>, _>("archived_at")?.map(timestamp),
        },
    })
}

fn from_row(row: &PgRow) -> Result<Session, Error> {
    let phase: i16 = row.try_get("phase")?;
    let outcome: Option<String> = row.try_get("last_outcome")?;
    let rights =
        row.try_get::<Json<Vec<_>>, _>("rights").map_err(|error| Error::unreadable("session", error))?.0;
    let info = info(row, &rights)?;
    let root: Option<String> = row.try_get("root_id")?;
    Ok(Session {
        root_id: root.as_deref().map_or_else(|| Ok(info.id.clone()), parsed)?,
        depth: row.try_get("depth")?,
        call: children::call_from_row(row)?,
        rights,
        // What a newer version knows beyond these asks people, as the default does.
        chosen: Chosen { agent: row.try_get("agent_chosen")?, model: row.try_get("model_chosen")? },
        on_ask: OnAsk::parse(row.try_get("on_ask")?).unwrap_or_default(),
        class: Class::from_i16(row.try_get("class")?).unwrap_or_default(),
        branch: row.try_get("branch")?,
        waiting_detail: row.try_get("waiting_detail")?,
        wake_at: row.try_get::<Option<_>, _>("wake_at")?.map(timestamp),
        queued_at: row.try_get::<Option<_>, _>("queued_at")?.map(timestamp),
        budget: row.try_get::<Option<_>, _>("budget")?.map(UsdPicos),
        tree_cost: UsdPicos(row.try_get("tree_cost")?),
        attempts: row.try_get("attempts")?,
        children: (unsigned(row.try_get("children_over")?), unsigned(row.try_get("children")?)),
        info,
        source: row.try_get::<Json<Source>, _>("source")?.0,
        phase: Phase::from_i16(phase)
            .ok_or_else(|| Error::unreadable("session", std::io::Error::other(format!("phase {phase}"))))?,
        waiting_reason: row.try_get("waiting_reason")?,
        queue_position: u32::try_from(row.try_get::<i64, _>("queue_position")?).unwrap_or(u32::MAX),
        last_outcome: outcome.as_deref().and_then(Outcome::parse),
        last_error: row.try_get("last_error")?,
        epoch: unsigned(row.try_get("epoch")?),
        event_seq: unsigned(row.try_get("event_seq")?),
    })
}

/// Where the page before ended: a time in milliseconds and an id.
fn place(page: &Page) -> Option<(i64, &str)> {
    let (ms, id) = page.cursor.as_deref()?.split_once('.')?;
    Some((ms.parse().ok()?, id))
}

/// Reads one session in a transaction.
pub(crate) async fn read(
    tx: &mut Transaction<'static, Postgres>,
    tenant: TenantId,
    id: &SessionId,
) -> Result<Session, Error> {
    let row = sqlx::query(query("where s.tenant_id = $1 and s.id = $2"))
        .bind(tenant.0)
        .bind(id.as_str())
        .fetch_optional(&mut **tx)
        .await?
        .ok_or(Error::NotFound(Entity::Session))?;
    from_row(&row)
}

impl Store {
    /// Makes a session with its control row and its first event, or gives the one that was made with the same key before.
    /// The events are empty in that case.
    ///
    /// # Errors
    /// `NotFound` for the project; `Conflict`: something else was made with the key; `Db`.
    pub async fn create_session(
        &self,
        tenant: TenantId,
        new: &NewSession,
        event_id: &EventId,
        at: Timestamp,
    ) -> Result<(Session, Vec<Stored>), Error> {
        let mut tx = self.begin(tenant).await?;
        if !insert(&mut tx, tenant, new, 1).await? {
            return keyed::get(&mut tx, tenant, new).await.map(|session| (session, vec![]));
        }
        let session = read(&mut tx, tenant, &new.id).await?;
        let event = record::What::Event(Event::SessionCreated(Box::new(session.info.clone())));
        let scope = record::Scope { tenant, session: &new.id, epoch: 0, at };
        let change = record::Change { id: event_id.clone(), what: event };
        let events = record::project(&mut tx, &scope, &[change], 1).await?;
        tx.commit().await?;
        Ok((session, events))
    }

    /// Gives one session.
    ///
    /// # Errors
    /// `NotFound` or `Db`.
    pub async fn get_session(&self, tenant: TenantId, id: &SessionId) -> Result<Session, Error> {
        read(&mut self.begin(tenant).await?, tenant, id).await
    }

    /// Lists sessions, last updated first. The cursor is `<updated_at in ms>.<id>` of the last one. Times of update are
    /// written as whole milliseconds: no two sessions are between two cursors.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_sessions(
        &self,
        tenant: TenantId,
        filter: &Filter,
        page: &Page,
    ) -> Result<Vec<Session>, Error> {
        let (before_ms, before_id) = place(page).unwrap_or((i64::MAX / 2, ""));
        let mut tx = self.begin(tenant).await?;
        let rows = sqlx::query(page_query(
            "s.tenant_id = $1 and ($2::text is null or s.project_id = $2) and ($3 or s.archived_at is null)
               and (not $4 or r.phase in (1, 3, 4)) and (not $8 or s.parent_id is null)
               and ($9::text is null or strpos(lower(s.title), lower($9)) > 0)
               and ($10::bigint is null or s.updated_at >= to_timestamp($10::bigint / 1000.0))
               and ((extract(epoch from s.updated_at) * 1000)::bigint, s.id) < ($5, $6)",
            "s.updated_at desc, s.id desc limit $7",
        ))
        .bind(tenant.0)
        .bind(filter.project.as_ref().map(ProjectId::as_str))
        .bind(filter.archived)
        .bind(filter.waiting)
        .bind(before_ms)
        .bind(before_id)
        .bind(page.limit())
        .bind(filter.only_roots)
        .bind(filter.search.as_deref())
        .bind(filter.since.map(|since| since.0))
        .fetch_all(&mut *tx)
        .await?;
        rows.iter().map(from_row).collect()
    }

    /// Lists the children of a session, oldest first. The cursor is `<created_at in ms>.<id>` of the last one: neither
    /// changes, so a child that works meanwhile is neither left out nor shown twice.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_children(
        &self,
        tenant: TenantId,
        parent: &SessionId,
        page: &Page,
    ) -> Result<Vec<Session>, Error> {
        let (after_ms, after_id) = place(page).unwrap_or((-1, ""));
        let mut tx = self.begin(tenant).await?;
        let rows = sqlx::query(page_query(
            "s.tenant_id = $1 and s.parent_id = $2
               and ((extract(epoch from s.created_at) * 1000)::bigint, s.id) > ($3, $4)",
            "s.created_at, s.id limit $5",
        ))
        .bind(tenant.0)
        .bind(parent.as_str())
        .bind(after_ms)
        .bind(after_id)
        .bind(page.limit())
        .fetch_all(&mut *tx)
        .await?;
        rows.iter().map(from_row).collect()
    }

    /// Changes the title, the archive mark, or who answers later prompts; what is `None` stays.
    ///
    /// # Errors
    /// `NotFound` or `Db`.
    pub async fn update_session(
        &self,
        tenant: TenantId,
        id: &SessionId,
        patch: &Patch,
        event_id: &EventId,
        at: Timestamp,
    ) -> Result<(Session, Vec<Stored>), Error> {
        let mut tx = self.begin(tenant).await?;
        let run = sqlx::query(
            "update session_run set event_seq = event_seq + 1 where tenant_id = $1 and session_id = $2
             returning event_seq, epoch",
        )
        .bind(tenant.0)
        .bind(id.as_str())
        .fetch_optional(&mut *tx)
        .await?
        .ok_or(Error::NotFound(Entity::Session))?;
        sqlx::query(
            "update session set title = coalesce($3, title), updated_at = date_trunc('milliseconds', now()),
                    archived_at = case when $4 then coalesce(archived_at, now()) when not $4 then null else archived_at end,
                    agent = coalesce($5, agent), agent_chosen = agent_chosen or $5 is not null,
                    provider_id = coalesce($6, provider_id), model_id = coalesce($7, model_id),
                    model_chosen = model_chosen or $7 is not null
              where tenant_id = $1 and id = $2",
        )
        .bind(tenant.0)
        .bind(id.as_str())
        .bind(&patch.title)
        .bind(patch.archived)
        .bind(&patch.agent)
        .bind(patch.model.as_ref().map(|model| &model.provider_id))
        .bind(patch.model.as_ref().map(|model| &model.model_id))
        .execute(&mut *tx)
        .await?;
        let session = read(&mut tx, tenant, id).await?;
        let change = record::Change {
            id: event_id.clone(),
            what: record::What::Event(Event::SessionUpdated(Box::new(session.info.clone()))),
        };
        let scope = record::Scope { tenant, session: id, epoch: unsigned(run.try_get("epoch")?), at };
        let events = record::project(&mut tx, &scope, &[change], unsigned(run.try_get("event_seq")?)).await?;
        tx.commit().await?;
        Ok((session, events))
    }
}

/// Writes the two rows of a new session whose first `events` are about to be written. `false` when there is no such project, or
/// the key was used before.
pub(crate) async fn insert(
    tx: &mut Transaction<'static, Postgres>,
    tenant: TenantId,
    new: &NewSession,
    events: u64,
) -> Result<bool, Error> {
    let made = sqlx::query(
        "insert into session (tenant_id, id, project_id, title, agent, provider_id, model_id, source, dedupe, rights,
                              budget_usd_picos, on_ask, agent_chosen, model_chosen, body_sha256, updated_at)
         select $1, $2, p.id, $4, $5, $6, $7, $8, 'key:' || $9, $10, $11, $12, $13, $14, $15, date_trunc('milliseconds', now())
           from project p where p.tenant_id = $1 and p.id = $3
         on conflict (tenant_id, dedupe) where dedupe is not null do nothing",
    )
    .bind(tenant.0)
    .bind(new.id.as_str())
    .bind(new.project_id.as_str())
    .bind(&new.title)
    .bind(&new.agent)
    .bind(&new.model.provider_id)
    .bind(&new.model.model_id)
    .bind(Json(&new.source))
    .bind(new.key.as_ref().map(|key| &key.name))
    .bind(Json([&new.rules]))
    .bind(new.budget.map(|budget| budget.0))
    .bind(new.on_ask.as_str())
    .bind(new.chosen.agent)
    .bind(new.chosen.model)
    .bind(new.key.as_ref().and_then(|key| key.body_sha256.as_ref()).map(<[u8; 32]>::as_slice))
    .execute(&mut **tx)
    .await?;
    if made.rows_affected() == 0 {
        return Ok(false);
    }
    sqlx::query("insert into session_run (tenant_id, session_id, event_seq, class) values ($1, $2, $3, $4)")
        .bind(tenant.0)
        .bind(new.id.as_str())
        .bind(signed(events))
        .bind(new.class.to_i16())
        .execute(&mut **tx)
        .await?;
    Ok(true)
}

/// Which sessions to list.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only those of this project.
    pub project: Option<ProjectId>,
    /// Archived ones too.
    pub archived: bool,
    /// Only those that wait: for a worker, for somebody, or for an operator.
    pub waiting: bool,
    /// No subtasks.
    pub only_roots: bool,
    /// Only those with this in their title, in whatever case.
    pub search: Option<String>,
    /// Only those that changed at this time or later.
    pub since: Option<Timestamp>,
}

/// What to change.
#[derive(Debug, Clone, Default)]
pub struct Patch {
    /// The new title.
    pub title: Option<String>,
    /// The new archive mark.
    pub archived: Option<bool>,
    /// The agent of later prompts.
    pub agent: Option<String>,
    /// The model of later prompts.
    pub model: Option<ModelRef>,
}
