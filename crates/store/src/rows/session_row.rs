//! A stored session: its descriptive row, joined with its control row.

use crate::{
    Tx,
    column::{parse_id, timestamp, unsigned},
    error::{Entity, Error},
    phase::{self, IDLE, RUNNABLE},
    pool::Statement,
    tenant::{
        settings::{self, StoredSettings},
        worktrees::SessionArea,
    },
};
use domain::{
    conversation::message::ModelRef,
    ids::{MessageId, PartId, SessionId, TenantId, Timestamp},
    money::{Tokens, UsdPicos},
    policy::permission::{OnAsk, Rules},
    session::{Class, ExplicitChoices, Info, InfoModel, InfoTime, Outcome, Phase, Source, WORKSPACE},
};
use sqlx::{AssertSqlSafe, PgConnection, Row as _, postgres::PgRow, types::Json};

/// A session with its current state.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    /// The session as clients see it.
    pub info: Info,
    /// The name by which clients know where it works: the directory of its worktree, or else the name of its project.
    pub directory: String,
    /// The source of its files.
    pub source: Source,
    /// Its root session, or itself.
    pub root_id: SessionId,
    /// The session whose workspace it uses: itself or one above it, mostly the root.
    pub workspace_id: SessionId,
    /// Whether the files of that workspace were opened on a sandbox machine.
    pub has_workspace: bool,
    /// How often these files started from their source again after they were lost.
    pub workspace_opening: u32,
    /// Generations below its root.
    pub depth: i16,
    /// The tool call that it answers, for a child.
    pub call: Option<ParentCall>,
    /// Lists of rules in addition to those of its agent; the strictest verdict counts.
    pub permissions: Vec<Rules>,
    /// What it does instead of asking a person.
    pub on_ask: OnAsk,
    /// Whether a person chose its agent and its model.
    pub chosen: ExplicitChoices,
    pub class: Class,
    /// The branch of its files when a worker last checked.
    pub branch: Option<String>,
    pub phase: Phase,
    /// What it waits for, while it waits: see `domain::wait::Reason`.
    pub waiting_reason: Option<String>,
    /// Details of the wait, in one sentence.
    pub waiting_detail: Option<String>,
    /// When the wait ends at the latest.
    pub wake_at: Option<Timestamp>,
    pub queued_at: Option<Timestamp>,
    /// Its children, while it waits for them; otherwise zeros.
    pub children: ChildCounts,
    /// The budget of its root and all subtasks below the root.
    pub budget: Option<UsdPicos>,
    /// While it waits for its budget: the cost of its tree; otherwise 0.
    pub tree_cost: UsdPicos,
    /// Takeovers since the last progress.
    pub attempts: i16,
    /// Position in the tenant's queue while runnable, from 1; otherwise 0.
    pub queue_position: u32,
    /// The outcome of its last turn.
    pub last_outcome: Option<Outcome>,
    /// The error of that turn.
    pub last_error: Option<String>,
    /// The epoch: the number of the newest takeover.
    pub epoch: u64,
    /// Position of its newest event.
    pub event_seq: u64,
}

/// The further columns of a statement that selects the session `s` with its settings.
pub(crate) const SETTINGS_COLUMNS: &str =
    ", t.project_id as settings_of, t.document, t.changed_by, t.changed_at";
/// What such a statement joins.
pub(crate) const SETTINGS_JOIN: &str =
    "left join settings t on t.tenant_id = $1 and t.project_id in ('', s.project_id)";

/// A session with what its settings are read from.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionWithSettings {
    pub session: Session,
    /// The settings of its tenant, then those of its project; either may be missing.
    pub settings: Vec<StoredSettings>,
}

impl SessionWithSettings {
    /// Reads the rows of a statement with [`SETTINGS_COLUMNS`]: one for each settings, or one without any. `None`: there is no row.
    ///
    /// # Errors
    /// `Unreadable`; `Db`.
    pub(crate) fn from_rows(rows: &[PgRow]) -> Result<Option<Self>, Error> {
        let Some(first) = rows.first() else { return Ok(None) };
        let stored = rows.iter().map(settings::find_in_row).collect::<Result<Vec<_>, _>>()?;
        let mut settings: Vec<StoredSettings> = stored.into_iter().flatten().collect();
        settings.sort_by_key(|stored| stored.level);
        Ok(Some(Self { session: from_row(first)?, settings }))
    }
}

/// The number of a session's children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChildCounts {
    /// Those that are idle again.
    pub finished: u64,
    pub all: u64,
}

/// The tool call of a parent that a child answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParentCall {
    pub session: SessionId,
    /// The step of the call.
    pub message_id: MessageId,
    pub part_id: PartId,
}

impl Session {
    /// Whether its files are a copy that was made for it or for a subtask above it.
    pub fn is_forked(&self) -> bool {
        self.workspace_id != self.root_id
    }

    /// The commit with the files that its copy began with. `None`: it has no copy, or the copy began with the source of the session above.
    pub fn forked_commit(&self) -> Option<&str> {
        self.source.revision.as_deref().filter(|_| self.is_forked() && self.source.uncommitted)
    }
}

/// The session whose workspace the session `s` uses. By `case`: under row-level security, Postgres uses no index for a comparison with `coalesce`.
pub(crate) const WORKSPACE_ID: &str = "case when s.workspace_id is not null then s.workspace_id when s.root_id is null then s.id else s.root_id end";

/// The name by which clients know where the session `s` works. A session without a worktree looks for none.
pub(crate) const DIRECTORY: &str = "coalesce(
      case when s.worktree_id is not null then (select t.directory from worktree t
        where t.tenant_id = s.tenant_id and t.project_id = s.project_id and t.id = s.worktree_id) end,
      (select p.name from project p where p.tenant_id = s.tenant_id and p.id = s.project_id))";

/// The columns of the session `s` that clients see: those of an [`Info`]. An update returns them, so that its event needs no further statement.
pub(crate) const INFO: &str = "s.id, s.project_id, s.parent_id, s.title, s.agent, s.provider_id, s.model_id, s.variant, s.rights, s.input_tokens,
    s.output_tokens, s.reasoning_tokens, s.cache_read_tokens, s.cache_write_tokens, s.cost_usd_picos, s.summary, s.revert, s.created_at, s.updated_at,
    s.archived_at";

/// The columns of [`from_row`], except the position in the queue. The root is found by `case` as well.
fn columns() -> String {
    format!(
        "{INFO}, s.source, s.last_outcome, s.last_error, s.root_id, s.workspace_id, s.depth, s.parent_message_id, s.parent_part_id, s.on_ask,
    s.agent_chosen, s.model_chosen, s.branch, {DIRECTORY} as directory, r.class,
    r.phase, r.waiting_reason, r.waiting_detail, r.wake_at, r.queued_at, r.attempts, r.epoch, r.event_seq,
    case when r.waiting_reason = 'children' then (select count(*) from session c
      where c.tenant_id = s.tenant_id and c.parent_id = s.id) else 0 end as children,
    case when r.waiting_reason = 'children' then (select count(*) from session c
      join session_run x on x.tenant_id = c.tenant_id and x.session_id = c.id and x.phase = {IDLE}
      where c.tenant_id = s.tenant_id and c.parent_id = s.id) else 0 end as children_over,
    (select w.has_workspace from session w where w.tenant_id = s.tenant_id and w.id = {WORKSPACE_ID}) as has_workspace,
    (select w.workspace_opening from session w where w.tenant_id = s.tenant_id and w.id = {WORKSPACE_ID}) as workspace_opening,
    (select b.budget_usd_picos from session b
      where b.tenant_id = s.tenant_id and b.id = case when s.root_id is null then s.id else s.root_id end) as budget,
    case when r.waiting_reason = 'budget' then (select coalesce(sum(l.cost_usd_picos), 0)::bigint from ledger l
      where l.tenant_id = s.tenant_id and l.root_id = case when s.root_id is null then s.id else s.root_id end)
      else 0 end as tree_cost"
    )
}

/// The condition of the index `session_updated`. It holds for every session `s`.
const LISTED: &str = "s.updated_at > '-infinity'";

/// The condition that a session belongs to an area: the parameter `$2` is its project, and `worktree` its worktree. In one condition for all areas, Postgres
/// could not read the sessions of a project or of a worktree alone.
pub(crate) fn in_area(area: Option<&SessionArea>, worktree: &str) -> String {
    match area {
        Some(SessionArea { worktree: Some(_), .. }) => {
            format!("s.project_id = $2 and s.worktree_id = {worktree}")
        }
        Some(_) => format!("s.project_id = $2 and {worktree}::text is null"),
        None => format!("$2::text is null and {worktree}::text is null and {LISTED}"),
    }
}

/// Selects one session. Its position in the queue is the number of sessions that are not behind it. `more` are further columns, which `joins` add.
pub(crate) fn select_one(more: &str, joins: &str) -> AssertSqlSafe<String> {
    AssertSqlSafe(format!(
        "select {}{more}, {} as queue_position
           from session s join session_run r on r.tenant_id = s.tenant_id and r.session_id = s.id {joins}
          where s.tenant_id = $1 and s.id = $2",
        columns(),
        phase::queue_position()
    ))
}

/// Writes the control row of a session that then waits in no queue, and selects the session. `more` are further columns, which `joins` add.
pub(crate) fn write_and_select(write: &str, more: &str, joins: &str) -> AssertSqlSafe<String> {
    AssertSqlSafe(format!(
        "with r as ({write} returning *)
         select {}{more}, 0::bigint as queue_position
           from session s join r on r.tenant_id = s.tenant_id and r.session_id = s.id {joins}
          where s.tenant_id = $1 and s.id = $2",
        columns()
    ))
}

/// Selects a page of sessions of the tenant `$1`. It reads the queue once for the whole page, and not at all if no session
/// of the page is queued.
pub(crate) fn select_page(condition: &str, order: &str) -> AssertSqlSafe<String> {
    AssertSqlSafe(format!(
        "with s as materialized (
           select {} from session s join session_run r on r.tenant_id = s.tenant_id and r.session_id = s.id
            where {condition} order by {order}),
         queue as (
           select session_id, row_number() over (order by class, queued_at, session_id) as place from session_run
            where tenant_id = $1 and phase = {RUNNABLE} and exists (select 1 from s where phase = {RUNNABLE}))
         select s.*, coalesce(queue.place, 0) as queue_position
           from s left join queue on queue.session_id = s.id order by {order}",
        columns()
    ))
}

/// Reads one session.
///
/// # Errors
/// `NotFound`; `Unreadable`; `Db`.
pub(crate) async fn read(
    connection: &mut PgConnection,
    tenant: TenantId,
    id: &SessionId,
) -> Result<Session, Error> {
    let row = sqlx::query(select_one("", ""))
        .bind(tenant.0)
        .bind(id.as_str())
        .fetch_optional(connection)
        .await?
        .ok_or(Error::NotFound(Entity::Session))?;
    from_row(&row)
}

/// Reads a row of [`select_page`].
pub(crate) fn from_row(row: &PgRow) -> Result<Session, Error> {
    let outcome: Option<String> = row.try_get("last_outcome")?;
    let permissions = permissions(row)?;
    let info = info(row, &permissions)?;
    let (root, workspace): (Option<String>, Option<String>) =
        (row.try_get("root_id")?, row.try_get("workspace_id")?);
    let root_id = root.as_deref().map_or_else(|| Ok(info.id.clone()), |id| parse_id("session", id))?;
    Ok(Session {
        workspace_id: workspace
            .as_deref()
            .map_or_else(|| Ok(root_id.clone()), |id| parse_id("session", id))?,
        root_id,
        has_workspace: row.try_get("has_workspace")?,
        workspace_opening: u32::try_from(row.try_get::<i32, _>("workspace_opening")?).unwrap_or_default(),
        depth: row.try_get("depth")?,
        call: parent_call(row)?,
        permissions,
        chosen: ExplicitChoices { agent: row.try_get("agent_chosen")?, model: row.try_get("model_chosen")? },
        // A value that only a newer version knows means the default: ask people.
        on_ask: OnAsk::parse(row.try_get("on_ask")?).unwrap_or_default(),
        class: Class::from_i16(row.try_get("class")?).unwrap_or_default(),
        branch: row.try_get("branch")?,
        waiting_detail: row.try_get("waiting_detail")?,
        wake_at: row.try_get::<Option<_>, _>("wake_at")?.map(timestamp),
        queued_at: row.try_get::<Option<_>, _>("queued_at")?.map(timestamp),
        budget: row.try_get::<Option<_>, _>("budget")?.map(UsdPicos),
        tree_cost: UsdPicos(row.try_get("tree_cost")?),
        attempts: row.try_get("attempts")?,
        children: ChildCounts {
            finished: unsigned(row.try_get("children_over")?),
            all: unsigned(row.try_get("children")?),
        },
        info,
        directory: row.try_get("directory")?,
        source: row.try_get::<Json<Source>, _>("source")?.0,
        phase: phase::from_column(row.try_get("phase")?)?,
        waiting_reason: row.try_get("waiting_reason")?,
        queue_position: u32::try_from(row.try_get::<i64, _>("queue_position")?).unwrap_or(u32::MAX),
        last_outcome: outcome.as_deref().and_then(Outcome::parse),
        last_error: row.try_get("last_error")?,
        epoch: unsigned(row.try_get("epoch")?),
        event_seq: unsigned(row.try_get("event_seq")?),
    })
}

/// Runs an update of one session that returns [`INFO`], and reads the session as it is now.
///
/// # Errors
/// `NotFound`; `Unreadable`; `Db`.
pub(crate) async fn update(tx: &mut Tx, update: Statement<'_>) -> Result<Info, Error> {
    let row = update.fetch_optional(&mut **tx).await?.ok_or(Error::NotFound(Entity::Session))?;
    read_info(&row)
}

/// Reads the columns of [`INFO`].
pub(crate) fn read_info(row: &PgRow) -> Result<Info, Error> {
    info(row, &permissions(row)?)
}

fn permissions(row: &PgRow) -> Result<Vec<Rules>, Error> {
    let rights = row.try_get::<Json<Vec<_>>, _>("rights");
    Ok(rights.map_err(|error| Error::unreadable("session", error))?.0)
}

fn info(row: &PgRow, permissions: &[Rules]) -> Result<Info, Error> {
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
    let model = InfoModel { variant: row.try_get("variant")?, ..model.into() };
    Ok(Info {
        id: parse_id("session", row.try_get("id")?)?,
        project_id: parse_id("session", row.try_get("project_id")?)?,
        directory: WORKSPACE.to_owned(),
        parent_id: parent.as_deref().map(|id| parse_id("session", id)).transpose()?,
        title: row.try_get("title")?,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        agent: row.try_get("agent")?,
        model,
        cost: UsdPicos(row.try_get("cost_usd_picos")?),
        tokens,
        summary: row.try_get::<Option<Json<_>>, _>("summary")?.map(|it| it.0),
        revert: row.try_get::<Option<Json<_>>, _>("revert")?.map(|it| it.0),
        permission: permissions
            .iter()
            .flat_map(|rules| &rules.0)
            .filter(|rule| !rule.is_approval)
            .cloned()
            .collect(),
        time: InfoTime {
            created: timestamp(row.try_get("created_at")?),
            updated: timestamp(row.try_get("updated_at")?),
            archived: row.try_get::<Option<_>, _>("archived_at")?.map(timestamp),
        },
    })
}

/// Reads the call of a parent from `parent_id`, `parent_message_id` and `parent_part_id`. A root has none.
pub(crate) fn parent_call(row: &PgRow) -> Result<Option<ParentCall>, Error> {
    let column = |name| row.try_get::<Option<String>, _>(name);
    let (Some(session), Some(message_id), Some(part_id)) =
        (column("parent_id")?, column("parent_message_id")?, column("parent_part_id")?)
    else {
        return Ok(None);
    };
    Ok(Some(ParentCall {
        session: parse_id("session", &session)?,
        message_id: parse_id("session", &message_id)?,
        part_id: parse_id("session", &part_id)?,
    }))
}
