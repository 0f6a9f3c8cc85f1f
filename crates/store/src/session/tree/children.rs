//! Child sessions: a tool call of a parent, run as a separate job.
// Continues in worker::claim: any worker may take the child.

use crate::{
    Store, Tx,
    column::signed,
    error::{Entity, Error},
    log::{
        change::{Change, Scope},
        projection,
        record::{self, Acknowledgement, Fence, Progress, WriteReceipt},
    },
    rows::{
        control_row,
        session_row::{self, ParentCall},
    },
    session::{
        creation::IS_DELETED,
        inputs::{self, Answerer, Prompt, PromptEntry},
        tree::family,
    },
};
use domain::{
    conversation::{
        message::{ModelChoice, ModelRef},
        part::{Body, Part, ToolState},
    },
    event::{Event, StoredEvent},
    ids::{EventId, TenantId, Timestamp},
    limits,
    policy::permission::Rules,
    session::Source,
};
use serde_json::{Map, Value};
use sqlx::{AssertSqlSafe, Row as _, types::Json};

/// A child to create or to resume.
#[derive(Debug, Clone)]
pub struct NewChild {
    /// The call that it answers.
    pub call: ParentCall,
    pub title: String,
    pub agent: String,
    pub model: ModelRef,
    /// Whether a person or a setting chose its model.
    pub is_model_chosen: bool,
    /// The rules of its ancestors, as separate lists.
    pub permissions: Vec<Rules>,
    /// What a workspace of its own starts from; `None`: it uses the workspace of its parent. A child that is resumed keeps its workspace.
    pub own_source: Option<Source>,
    /// Its task; the session id in it is the child's.
    pub prompt: Prompt,
    /// The ids of the two events that announce it.
    pub event_ids: [EventId; 2],
}

/// Whether a dispatch creates a child or resumes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dispatch {
    New,
    /// It resumes an idle child of the same parent with a new prompt.
    Resumed,
}

/// The result of a dispatch.
#[derive(Debug, Clone, PartialEq)]
pub enum DispatchOutcome {
    /// The child waits for a worker.
    Dispatched {
        parent: WriteReceipt,
        /// The events of the child, for publishing; empty if the write was stored before.
        child: Vec<StoredEvent>,
    },
    /// The tree has reached its limit of sessions; nothing is written.
    TooMany,
    /// The child to resume does not exist or is not idle; nothing is written.
    NotFree,
}

/// The events of a child's rows, or the reason for refusing it.
type ChildRows = Result<Vec<StoredEvent>, DispatchOutcome>;

impl Store {
    /// Creates or resumes a child and stores `changes` of its parent, in one fenced write of the parent.
    ///
    /// # Errors
    /// Like [`Store::append`]; `Deleted` if the id of the child was used before.
    pub async fn dispatch_child(
        &self,
        fence: &Fence,
        changes: &[Change],
        child: &NewChild,
        dispatch: Dispatch,
        at: Timestamp,
    ) -> Result<DispatchOutcome, Error> {
        let mut tx = self.begin(fence.tenant).await?;
        match dispatch {
            Dispatch::New => family::lock_root(&mut tx, fence.tenant, &fence.session).await?,
            Dispatch::Resumed => {}
        }
        let nothing_new = Acknowledgement { input: 0, progress: Progress::None };
        let Some(advanced) = record::advance(&mut tx, fence, changes.len() as u64, nothing_new).await? else {
            let parent = record::read_earlier_write(&mut tx, fence, changes).await?;
            return Ok(DispatchOutcome::Dispatched { parent, child: vec![] });
        };
        let rows = match dispatch {
            Dispatch::New => insert(&mut tx, fence.tenant, child, at).await?,
            Dispatch::Resumed => resume(&mut tx, fence.tenant, child).await?,
        };
        let mut events = match rows {
            Ok(events) => events,
            Err(refused) => return Ok(refused),
        };
        let run = control_row::lock(&mut tx, fence.tenant, &child.prompt.session_id).await?;
        let prompt = &child.prompt;
        let variant = prompt.variant.name().map(str::to_owned);
        let model = ModelChoice { model: child.model.clone(), variant };
        let answerer = Answerer { agent: child.agent.clone(), model };
        let entry = PromptEntry { prompt, answerer, bytes: inputs::bytes(prompt) };
        events.extend(inputs::insert(&mut tx, fence.tenant, entry, &run, at).await?.events);
        let parent = advanced.write(&mut tx, fence, changes, at).await?;
        tx.commit().await?;
        Ok(DispatchOutcome::Dispatched { parent, child: events })
    }

    /// Shows the progress of a child in the tool call of its parent, and returns the parent's event. Returns `None` and
    /// changes nothing if the call is over or another worker owns the child now.
    ///
    /// # Errors
    /// `Db`: stored or not; the next report repeats it.
    pub async fn report_child(
        &self,
        child: &Fence,
        call: &ParentCall,
        summary: &Value,
        event_id: &EventId,
        at: Timestamp,
    ) -> Result<Option<StoredEvent>, Error> {
        let mut tx = self.begin(child.tenant).await?;
        let Some(parent) = family::lock_parent(&mut tx, child.tenant, &call.session).await? else {
            return Ok(None);
        };
        let row = sqlx::query(
            // The lock orders this report against a takeover of the child.
            "select p.data from part p
               join session_run r on r.tenant_id = p.tenant_id and r.session_id = $5 and r.epoch = $6
              where p.tenant_id = $1 and p.session_id = $2 and p.message_id = $3 and p.id = $4 for share of r",
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
        let scope = Scope { tenant: child.tenant, session: &call.session, epoch: parent.run.epoch, at };
        let updated = Event::PartUpdated { part: Box::new(part), at };
        let changes = [Change::event(event_id.clone(), updated)];
        let events = projection::append(&mut tx, &scope, &parent.run, &changes).await?;
        tx.commit().await?;
        Ok(events.into_iter().next())
    }
}

/// Inserts the rows of a new child, unless its tree is full. A copy of a workspace has the same image.
async fn insert(tx: &mut Tx, tenant: TenantId, child: &NewChild, at: Timestamp) -> Result<ChildRows, Error> {
    let id = &child.prompt.session_id;
    let result = sqlx::query(
        "insert into session (tenant_id, id, project_id, parent_id, root_id, depth, parent_message_id, parent_part_id,
                              title, agent, provider_id, model_id, source, rights, on_ask, dedupe, model_chosen, updated_at,
                              workspace_id, image, worktree_id)
         select $1, $2, p.project_id, p.id, coalesce(p.root_id, p.id), p.depth + 1, $4, $5,
                $6, $7, $8, $9, coalesce($13::json, p.source), $10, p.on_ask, 'task:' || $5, $12, date_trunc('milliseconds', now()),
                case when $13 is null then p.workspace_id else $2 end, case when $13 is null then null else w.image end, p.worktree_id
           from session p
           join session w on w.tenant_id = p.tenant_id and w.id =
                case when p.workspace_id is not null then p.workspace_id when p.root_id is null then p.id else p.root_id end
          where p.tenant_id = $1 and p.id = $3
            and (select count(*) from session s
                  where s.tenant_id = $1 and s.root_id = case when p.root_id is null then p.id else p.root_id end) < $11",
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
    .bind(Json(&child.permissions))
    .bind(limits::SUBTASKS_PER_TREE_MAX)
    .bind(child.is_model_chosen)
    .bind(child.own_source.as_ref().map(Json))
    .execute(&mut **tx)
    .await?;
    if result.rows_affected() == 0 {
        return Ok(Err(DispatchOutcome::TooMany));
    }
    let sql = format!(
        "insert into session_run (tenant_id, session_id, event_seq, class, epoch)
         select $1, $2, 2, r.class, t.epoch_floor from session_run r join tenant t on t.id = $1
          where r.tenant_id = $1 and r.session_id = $3 and not {IS_DELETED}"
    );
    let result = sqlx::query(AssertSqlSafe(sql))
        .bind(tenant.0)
        .bind(id.as_str())
        .bind(child.call.session.as_str())
        .execute(&mut **tx)
        .await?;
    if result.rows_affected() == 0 {
        return Err(Error::Deleted);
    }
    let info = Box::new(session_row::read(tx, tenant, id).await?.info);
    let scope = Scope { tenant, session: id, epoch: 0, at };
    let [created, updated] = child.event_ids.clone();
    // OpenCode's TUI learns of a session from `session.updated` only. It shows the requests of a child that it knows.
    let changes = [
        Change::event(created, Event::SessionCreated(info.clone())),
        Change::event(updated, Event::SessionUpdated(info)),
    ];
    projection::project(tx, &scope, &changes, 1).await.map(Ok)
}

/// Gives an idle child of the same parent a new call to answer. The child receives the permissions of that call: the rules of
/// its ancestors may have changed since its last one.
async fn resume(tx: &mut Tx, tenant: TenantId, child: &NewChild) -> Result<ChildRows, Error> {
    let id = &child.prompt.session_id;
    // A model may name any session. Lock only a child of this parent, because locks are taken from the root to the
    // leaves.
    let call = family::find_call(tx, tenant, id).await?;
    if call.is_none_or(|call| call.session != child.call.session) {
        return Ok(Err(DispatchOutcome::NotFree));
    }
    let is_free = match control_row::lock(tx, tenant, id).await {
        Ok(run) => run.is_idle() && run.refuse_held().is_ok(),
        Err(Error::NotFound(Entity::Session)) => false,
        Err(error) => return Err(error),
    };
    let result = sqlx::query(
        "update session set parent_message_id = $4, parent_part_id = $5, rights = $7
          where tenant_id = $1 and id = $2 and parent_id = $3 and $6",
    )
    .bind(tenant.0)
    .bind(id.as_str())
    .bind(child.call.session.as_str())
    .bind(child.call.message_id.as_str())
    .bind(child.call.part_id.as_str())
    .bind(is_free)
    .bind(Json(&child.permissions))
    .execute(&mut **tx)
    .await?;
    Ok(if result.rows_affected() == 0 { Err(DispatchOutcome::NotFree) } else { Ok(vec![]) })
}

/// Returns the part with the child's progress; `None` if the call is over.
fn with_summary(mut part: Part, summary: &Value) -> Option<Part> {
    let Body::Tool(tool) = &mut part.body else { return None };
    let ToolState::Running { metadata, .. } = &mut tool.state else { return None };
    metadata.get_or_insert_with(Map::new).insert("summary".to_owned(), summary.clone());
    Some(part)
}
