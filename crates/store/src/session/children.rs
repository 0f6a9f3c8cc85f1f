//! Child sessions: a tool call of a parent as a job of its own. Whoever locks both control rows locks the parent's
//! first: an abort that goes down and an answer that comes up never wait for each other.
// Continues in worker::claim: any worker may take the child.

use crate::{
    Store,
    error::Error,
    log::record::{self, Change, Fence, Progress, Written},
    parsed,
    session::{
        inputs::{self, Locked, Prompt},
        sessions,
    },
    signed, unsigned,
};
use domain::{
    event::{Event, Stored},
    ids::{EventId, MessageId, PartId, SessionId, TenantId, Timestamp},
    limits,
    message::ModelRef,
    part::{Body, Part, ToolState},
    permission::Rules,
    session::Outcome,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sqlx::{Postgres, Row as _, Transaction, types::Json};

/// The tool call of a parent that a child answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParentCall {
    /// The parent.
    pub session: SessionId,
    /// The step of the call.
    pub message_id: MessageId,
    /// The part of the call.
    pub part_id: PartId,
}

/// What a child says to its parent: the body of an input of kind `child`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The child.
    pub child: SessionId,
    /// The part of the tool call that it answers.
    pub part_id: PartId,
    /// How its turn ended.
    pub outcome: Outcome,
    /// What it said last, or why it failed.
    pub text: String,
    /// Its newest tool calls, as its reports show them; null when it could not say.
    #[serde(default)]
    pub summary: Value,
}

/// A child to be made.
#[derive(Debug, Clone)]
pub struct NewChild {
    /// Whom it answers.
    pub call: ParentCall,
    /// Its title.
    pub title: String,
    /// Its agent.
    pub agent: String,
    /// Its model.
    pub model: ModelRef,
    /// Whether somebody chose that.
    pub is_model_chosen: bool,
    /// The rules of its ancestors, each list on its own.
    pub rights: Vec<Rules>,
    /// What it is to do; its session id is the child's.
    pub prompt: Prompt,
    /// The id of its first event.
    pub event_id: EventId,
}

/// A session below another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Below {
    /// Which.
    pub session: SessionId,
    /// Whether it has work.
    pub works: bool,
    /// The number of the right to write it.
    pub epoch: u64,
}

/// What became of a dispatch.
#[derive(Debug, Clone, PartialEq)]
pub enum Dispatched {
    /// The child waits for a worker. The second are the child's own events.
    Yes(Written, Vec<Stored>),
    /// The tree of sessions has too many already; nothing is written.
    TooMany,
    /// The child that is to go on is not there, or is at work; nothing is written.
    NotFree,
}

impl Store {
    /// Makes a child and stores `changes` of its parent, in one fenced write of the parent. With `resumes`, an idle child
    /// of the same parent goes on with a new prompt instead.
    ///
    /// # Errors
    /// As [`Store::append`].
    pub async fn dispatch_child(
        &self,
        fence: &Fence,
        changes: &[Change],
        child: &NewChild,
        resumes: bool,
        at: Timestamp,
    ) -> Result<Dispatched, Error> {
        let mut tx = self.begin(fence.tenant).await?;
        if !resumes {
            lock_root(&mut tx, fence.tenant, &fence.session).await?;
        }
        let progress = (0, Progress::None);
        let Some(advanced) = record::advance(&mut tx, fence, changes.len() as u64, progress).await? else {
            let written = record::already_written(tx, fence, changes).await?;
            return Ok(Dispatched::Yes(written, vec![]));
        };
        let made = if resumes {
            resume(&mut tx, fence.tenant, child).await?
        } else {
            insert(&mut tx, fence.tenant, child, at).await?
        };
        let mut events = match made {
            Ok(events) => events,
            Err(refused) => return Ok(refused),
        };
        let run = inputs::lock(&mut tx, fence.tenant, &child.prompt.user.session_id).await?;
        events.extend(inputs::accept(&mut tx, fence.tenant, &child.prompt, &run, at).await?);
        let written = advanced.write(&mut tx, fence, changes, at).await?;
        tx.commit().await?;
        Ok(Dispatched::Yes(written, events))
    }

    /// Shows in the tool call of the parent how far its child is. Nothing happens when the call is over, or when the
    /// child has another owner than `epoch` by now. Gives the event of the parent, if there is one.
    ///
    /// # Errors
    /// `Db`: shown or not; the next report shows it.
    pub async fn report_child(
        &self,
        child: &Fence,
        call: &ParentCall,
        summary: &Value,
        event_id: &EventId,
        at: Timestamp,
    ) -> Result<Option<Stored>, Error> {
        let mut tx = self.begin(child.tenant).await?;
        let Some(parent) = lock_parent(&mut tx, child.tenant, &call.session).await? else { return Ok(None) };
        let row = sqlx::query(
            "select p.data from part p
               join session_run r on r.tenant_id = p.tenant_id and r.session_id = $5 and r.epoch = $6
              where p.tenant_id = $1 and p.session_id = $2 and p.message_id = $3 and p.id = $4",
        )
        .bind(child.tenant.0)
        .bind(call.session.as_str())
        .bind(call.message_id.as_str())
        .bind(call.part_id.as_str())
        .bind(child.session.as_str())
        .bind(signed(child.epoch))
        .fetch_optional(&mut *tx)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let part = row.try_get::<Json<Part>, _>("data").map_err(|error| Error::unreadable("part", error))?.0;
        let Some(part) = with_summary(part, summary) else { return Ok(None) };
        sqlx::query(
            "update session_run set event_seq = event_seq + 1 where tenant_id = $1 and session_id = $2",
        )
        .bind(child.tenant.0)
        .bind(call.session.as_str())
        .execute(&mut *tx)
        .await?;
        let what = record::What::Event(Event::PartUpdated { part: Box::new(part), at });
        let scope =
            record::Scope { tenant: child.tenant, session: &call.session, epoch: parent.run.epoch, at };
        let change = Change { id: event_id.clone(), what };
        let events = record::project(&mut tx, &scope, &[change], parent.run.event_seq + 1).await?;
        tx.commit().await?;
        Ok(events.into_iter().next())
    }

    /// Gives the answers of children that came for these tool calls, whether or not a loop has seen them.
    ///
    /// # Errors
    /// `Unreadable`; `Db`.
    pub async fn list_answers(
        &self,
        tenant: TenantId,
        session: &SessionId,
        parts: &[&PartId],
    ) -> Result<Vec<Answer>, Error> {
        let keys: Vec<String> = parts.iter().map(|part| format!("child:{part}")).collect();
        let mut tx = self.begin(tenant).await?;
        let rows = sqlx::query(
            "select body from session_input where tenant_id = $1 and session_id = $2 and dedupe = any($3) order by seq",
        )
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(&keys)
        .fetch_all(&mut *tx)
        .await?;
        let answer = |row: &sqlx::postgres::PgRow| row.try_get::<Json<Answer>, _>("body");
        let answers = rows.iter().map(|row| answer(row).map(|json| json.0)).collect::<Result<_, _>>();
        answers.map_err(|error| Error::unreadable("answer", error))
    }

    /// Lists the sessions below one, nearest first: whom an abort or a deletion reaches.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_descendants(&self, tenant: TenantId, session: &SessionId) -> Result<Vec<Below>, Error> {
        let mut tx = self.begin(tenant).await?;
        let rows = sqlx::query(
            "with recursive tree as (
               select id, depth from session where tenant_id = $1 and parent_id = $2
               union all
               select s.id, s.depth from session s join tree t on s.parent_id = t.id where s.tenant_id = $1)
             select t.id, r.phase <> 0 as works, r.epoch from tree t
               join session_run r on r.tenant_id = $1 and r.session_id = t.id order by t.depth limit $3",
        )
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(limits::SUBTASKS_PER_TREE_MAX)
        .fetch_all(&mut *tx)
        .await?;
        let below = |row: &sqlx::postgres::PgRow| {
            Ok(Below {
                session: parsed(row.try_get("id")?)?,
                works: row.try_get("works")?,
                epoch: unsigned(row.try_get("epoch")?),
            })
        };
        rows.iter().map(below).collect()
    }
}

/// The control row of a parent, held by this transaction.
pub(crate) struct Parent {
    pub(crate) session: SessionId,
    pub(crate) run: Locked,
}

/// Locks a parent, before its child is locked. `None` when it is gone.
pub(crate) async fn lock_parent(
    tx: &mut Transaction<'static, Postgres>,
    tenant: TenantId,
    session: &SessionId,
) -> Result<Option<Parent>, Error> {
    match inputs::lock(tx, tenant, session).await {
        Ok(run) => Ok(Some(Parent { session: session.clone(), run })),
        Err(Error::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Locks the root above a session, if it is not the root itself: who makes a child counts the tree, and two that count at
/// once would both find room for one. The root is locked before everything below it, as everywhere.
async fn lock_root(
    tx: &mut Transaction<'static, Postgres>,
    tenant: TenantId,
    session: &SessionId,
) -> Result<(), Error> {
    // The id of a root never changes. A tree that is being deleted is found missing by the fence.
    sqlx::query(
        "select 1 from session_run r where r.tenant_id = $1 and r.session_id =
           (select s.root_id from session s where s.tenant_id = $1 and s.id = $2) for update",
    )
    .bind(tenant.0)
    .bind(session.as_str())
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Locks the parent of a session, if it has one, and gives the call that the session answers from then on: only who holds
/// the parent gives a child another call. `None` also when the parent is gone.
pub(crate) async fn lock_call(
    tx: &mut Transaction<'static, Postgres>,
    tenant: TenantId,
    session: &SessionId,
) -> Result<Option<(Parent, ParentCall)>, Error> {
    let Some(before) = find_call(tx, tenant, session).await? else { return Ok(None) };
    let Some(parent) = lock_parent(tx, tenant, &before.session).await? else { return Ok(None) };
    Ok(find_call(tx, tenant, session).await?.map(|call| (parent, call)))
}

/// Locks every control row below a session, nearest first: what deletes the rows waits for no loop that waits for it.
pub(crate) async fn lock_tree(
    tx: &mut Transaction<'static, Postgres>,
    tenant: TenantId,
    session: &SessionId,
) -> Result<(), Error> {
    // A session that was waited for may have made a child meanwhile. Who is locked makes none, so this ends.
    let mut locked = None;
    loop {
        let now = lock_below(tx, tenant, session).await?;
        if locked == Some(now) {
            return Ok(());
        }
        locked = Some(now);
    }
}

/// Locks what is below a session by now, and gives how many rows that are.
async fn lock_below(
    tx: &mut Transaction<'static, Postgres>,
    tenant: TenantId,
    session: &SessionId,
) -> Result<u64, Error> {
    let done = sqlx::query(
        "with recursive tree as (
           select id, depth from session where tenant_id = $1 and parent_id = $2
           union all
           select s.id, s.depth from session s join tree t on s.parent_id = t.id where s.tenant_id = $1)
         select 1 from session_run r join tree t on t.id = r.session_id
          where r.tenant_id = $1 order by t.depth for update of r",
    )
    .bind(tenant.0)
    .bind(session.as_str())
    .execute(&mut **tx)
    .await?;
    Ok(done.rows_affected())
}

/// Puts a child's answer into its parent's mailbox, once for each call, unless the call is over already: then nobody
/// waits for it.
pub(crate) async fn deliver(
    tx: &mut Transaction<'static, Postgres>,
    tenant: TenantId,
    parent: &Parent,
    answer: &Answer,
) -> Result<(), Error> {
    let open = sqlx::query(
        "select 1 from tool_exec where tenant_id = $1 and session_id = $2 and exec_id = $3 and state = 'executing'",
    )
    .bind(tenant.0)
    .bind(parent.session.as_str())
    .bind(answer.part_id.as_str())
    .fetch_optional(&mut **tx)
    .await?;
    if open.is_none() {
        return Ok(());
    }
    let body = serde_json::to_value(answer).map_err(|error| Error::unreadable("answer", error))?;
    let dedupe = format!("child:{}", answer.part_id);
    inputs::put(tx, tenant, (&parent.session, &parent.run), (inputs::Kind::Child, &dedupe, Some(body)))
        .await?;
    Ok(())
}

/// The parent's call that a session answers, if it is a child.
pub(crate) async fn find_call(
    tx: &mut Transaction<'static, Postgres>,
    tenant: TenantId,
    session: &SessionId,
) -> Result<Option<ParentCall>, Error> {
    let row = sqlx::query(
        "select parent_id, parent_message_id, parent_part_id from session where tenant_id = $1 and id = $2",
    )
    .bind(tenant.0)
    .bind(session.as_str())
    .fetch_optional(&mut **tx)
    .await?;
    row.map_or(Ok(None), |row| call_from_row(&row))
}

pub(crate) fn call_from_row(row: &sqlx::postgres::PgRow) -> Result<Option<ParentCall>, Error> {
    let column = |name| row.try_get::<Option<String>, _>(name);
    let (Some(session), Some(message_id), Some(part_id)) =
        (column("parent_id")?, column("parent_message_id")?, column("parent_part_id")?)
    else {
        return Ok(None);
    };
    Ok(Some(ParentCall {
        session: parsed(&session)?,
        message_id: parsed(&message_id)?,
        part_id: parsed(&part_id)?,
    }))
}

type Made = Result<Vec<Stored>, Dispatched>;

async fn insert(
    tx: &mut Transaction<'static, Postgres>,
    tenant: TenantId,
    child: &NewChild,
    at: Timestamp,
) -> Result<Made, Error> {
    let id = &child.prompt.user.session_id;
    let made = sqlx::query(
        "insert into session (tenant_id, id, project_id, parent_id, root_id, depth, parent_message_id, parent_part_id,
                              title, agent, provider_id, model_id, source, rights, on_ask, dedupe, model_chosen, updated_at)
         select $1, $2, p.project_id, p.id, coalesce(p.root_id, p.id), p.depth + 1, $4, $5,
                $6, $7, $8, $9, p.source, $10, p.on_ask, 'task:' || $5, $12, date_trunc('milliseconds', now())
           from session p where p.tenant_id = $1 and p.id = $3
            and (select count(*) from session s where s.tenant_id = $1 and s.root_id = case when p.root_id is null then p.id else p.root_id end) < $11",
    )
    .bind(tenant.0)
    .bind(id.as_str())
    .bind(child.call.session.as_str())
    .bind(child.call.message_id.as_str())
    .bind(child.call.part_id.as_str())
    .bind(&child.title)
    .bind(&child.agent)
    .bind(&child.model.provider_id)
    .bind(&child.model.model_id)
    .bind(Json(&child.rights))
    .bind(limits::SUBTASKS_PER_TREE_MAX)
    .bind(child.is_model_chosen)
    .execute(&mut **tx)
    .await?;
    if made.rows_affected() == 0 {
        return Ok(Err(Dispatched::TooMany));
    }
    sqlx::query(
        "insert into session_run (tenant_id, session_id, event_seq, class)
         select $1, $2, 1, r.class from session_run r where r.tenant_id = $1 and r.session_id = $3",
    )
    .bind(tenant.0)
    .bind(id.as_str())
    .bind(child.call.session.as_str())
    .execute(&mut **tx)
    .await?;
    let session = sessions::read(tx, tenant, id).await?;
    let what = record::What::Event(Event::SessionCreated(Box::new(session.info)));
    let scope = record::Scope { tenant, session: id, epoch: 0, at };
    let change = Change { id: child.event_id.clone(), what };
    record::project(tx, &scope, &[change], 1).await.map(Ok)
}

/// Gives an idle child of the same parent a new call to answer. It may do what that call may: the rules of its ancestors
/// can be others by now.
async fn resume(
    tx: &mut Transaction<'static, Postgres>,
    tenant: TenantId,
    child: &NewChild,
) -> Result<Made, Error> {
    let id = &child.prompt.user.session_id;
    // A model may name any session. Only a child is locked here: its parent before it, never after it.
    let is_child = find_call(tx, tenant, id).await?.is_some_and(|call| call.session == child.call.session);
    if !is_child {
        return Ok(Err(Dispatched::NotFree));
    }
    let free = match inputs::lock(tx, tenant, id).await {
        Ok(run) => run.is_idle() && run.refuse_held().is_ok(),
        Err(Error::NotFound(_)) => false,
        Err(error) => return Err(error),
    };
    let resumed = sqlx::query(
        "update session set parent_message_id = $4, parent_part_id = $5, rights = $7
          where tenant_id = $1 and id = $2 and parent_id = $3 and $6",
    )
    .bind(tenant.0)
    .bind(id.as_str())
    .bind(child.call.session.as_str())
    .bind(child.call.message_id.as_str())
    .bind(child.call.part_id.as_str())
    .bind(free)
    .bind(Json(&child.rights))
    .execute(&mut **tx)
    .await?;
    Ok(if resumed.rows_affected() == 0 { Err(Dispatched::NotFree) } else { Ok(vec![]) })
}

/// The part with the child's progress, unless the call is over.
fn with_summary(mut part: Part, summary: &Value) -> Option<Part> {
    let Body::Tool(tool) = &mut part.body else { return None };
    let ToolState::Running { metadata, .. } = &mut tool.state else { return None };
    metadata.get_or_insert_with(Map::new).insert("summary".to_owned(), summary.clone());
    Some(part)
}

/// How a child's answer is seen by a transaction that has no answer of the child itself.
pub(crate) fn failed(call: &ParentCall, child: &SessionId, text: &str) -> Answer {
    Answer {
        child: child.clone(),
        part_id: call.part_id.clone(),
        outcome: Outcome::Failed,
        text: text.to_owned(),
        summary: Value::Null,
    }
}
