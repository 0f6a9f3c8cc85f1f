//! Creates, reads, lists and changes sessions.

use crate::{
    Page, Store,
    column::unsigned,
    error::{Entity, Error},
    log::{
        change::{Change, Scope},
        projection,
    },
    phase::{QUARANTINED, RUNNABLE, WAITING},
    rows::session_row::{self, Session, SessionWithSettings},
    session::creation::{self, NewSession},
    tenant::worktrees::SessionArea,
};
use domain::{
    conversation::message::ModelRef,
    event::{Event, StoredEvent},
    ids::{EventId, SessionId, TenantId, Timestamp, WorktreeId},
};
use serde_json::{Value, json};
use sqlx::{Row as _, types::Json};

#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only sessions of this project or worktree.
    pub area: Option<SessionArea>,
    pub archived: bool,
    /// Only sessions that wait: for a worker, for a person, or for an operator.
    pub waiting: bool,
    /// Without subtasks.
    pub only_roots: bool,
    /// Only sessions with this text in their title, ignoring case.
    pub search: Option<String>,
    /// Only sessions that changed at this time or later.
    pub since: Option<Timestamp>,
}

impl From<SessionArea> for Filter {
    /// The sessions of a directory.
    fn from(area: SessionArea) -> Self {
        Self { area: Some(area), ..Self::default() }
    }
}

/// A change of a session's row. A field that is `None` stays as it is.
#[derive(Debug, Clone, Default)]
pub struct Patch {
    pub title: Option<String>,
    /// Whether lists omit the session from now on.
    pub archived: Option<bool>,
    /// The agent of later prompts.
    pub agent: Option<String>,
    /// The model of later prompts.
    pub model: Option<ModelRef>,
}

impl Store {
    /// Creates a session with its control row and its first event. If the key was already used, returns the session of
    /// that key and no events.
    ///
    /// # Errors
    /// `NotFound` for the project; `Conflict`: the key was used with a different body; `Deleted`; `Db`.
    pub async fn create_session(
        &self,
        tenant: TenantId,
        new: &NewSession,
        event_id: &EventId,
        at: Timestamp,
    ) -> Result<(Session, Vec<StoredEvent>), Error> {
        let mut tx = self.begin(tenant).await?;
        let Some(session) = creation::insert(&mut tx, tenant, new).await? else {
            return creation::get_existing(&mut tx, tenant, new).await.map(|session| (session, vec![]));
        };
        let created = Event::SessionCreated(Box::new(session.info.clone()));
        let scope = Scope { tenant, session: &new.id, epoch: 0, at };
        let created = [Change::event(event_id.clone(), created)];
        let events = projection::project(&mut tx, &scope, &created, 1).await?;
        tx.commit().await?;
        Ok((session, events))
    }

    /// Returns one session.
    ///
    /// # Errors
    /// `NotFound` or `Db`.
    pub async fn get_session(&self, tenant: TenantId, id: &SessionId) -> Result<Session, Error> {
        let mut statements = self.statements(tenant).await?;
        let session = session_row::read(&mut statements, tenant, id).await?;
        statements.end();
        Ok(session)
    }

    /// Returns a session with the settings of its tenant and of its project.
    ///
    /// # Errors
    /// `NotFound`; `Unreadable`; `Db`.
    pub async fn get_session_with_settings(
        &self,
        tenant: TenantId,
        id: &SessionId,
    ) -> Result<SessionWithSettings, Error> {
        let query =
            sqlx::query(session_row::select_one(session_row::SETTINGS_COLUMNS, session_row::SETTINGS_JOIN))
                .bind(tenant.0)
                .bind(id.as_str());
        let rows = self.statements(tenant).await?.fetch_all(query).await?;
        SessionWithSettings::from_rows(&rows)?.ok_or(Error::NotFound(Entity::Session))
    }

    /// Records that the files of a session with a workspace of its own were opened on a sandbox machine.
    ///
    /// # Errors
    /// `Db`: recorded or not.
    pub async fn note_workspace(&self, tenant: TenantId, owner: &SessionId) -> Result<(), Error> {
        let update = sqlx::query("update session set has_workspace = true where tenant_id = $1 and id = $2")
            .bind(tenant.0)
            .bind(owner.as_str());
        self.statements(tenant).await?.run(update).await?;
        Ok(())
    }

    /// Lists sessions, last updated first. The cursor is `<updated_at in ms>.<id>` of the last one: every update time is
    /// stored in whole milliseconds, so no session is skipped between two pages.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_sessions(
        &self,
        tenant: TenantId,
        filter: &Filter,
        page: &Page,
    ) -> Result<Vec<Session>, Error> {
        let before = Cursor::of(page).unwrap_or(Cursor { ms: i64::MAX / 2, id: "" });
        let area = filter.area.as_ref();
        let in_area = session_row::in_area(area, "$11");
        let waiting = format!("{RUNNABLE}, {WAITING}, {QUARANTINED}");
        let query = sqlx::query(session_row::select_page(
            &format!(
                "s.tenant_id = $1 and {in_area} and ($3 or s.archived_at is null)
               and (not $4 or r.phase in ({waiting})) and (not $8 or s.parent_id is null)
               and ($9::text is null or strpos(lower(s.title), lower($9)) > 0)
               and ($10::bigint is null or s.updated_at >= to_timestamp($10::bigint / 1000.0))
               and ((extract(epoch from s.updated_at) * 1000)::bigint, s.id) < ($5, $6)"
            ),
            "s.updated_at desc, s.id desc limit $7",
        ))
        .bind(tenant.0)
        .bind(area.map(|area| area.project.as_str()))
        .bind(filter.archived)
        .bind(filter.waiting)
        .bind(before.ms)
        .bind(before.id)
        .bind(page.limit())
        .bind(filter.only_roots)
        .bind(filter.search.as_deref())
        .bind(filter.since.map(|since| since.0))
        .bind(area.and_then(|area| area.worktree.as_ref()).map(WorktreeId::as_str));
        let rows = self.statements(tenant).await?.fetch_all(query).await?;
        rows.iter().map(session_row::from_row).collect()
    }

    /// Returns those of these sessions that belong to an area, in any order.
    ///
    /// # Errors
    /// `Db`.
    pub async fn find_sessions(
        &self,
        tenant: TenantId,
        area: &SessionArea,
        ids: &[SessionId],
    ) -> Result<Vec<Session>, Error> {
        let in_area = session_row::in_area(Some(area), "$4");
        let query = sqlx::query(session_row::select_page(
            &format!("s.tenant_id = $1 and {in_area} and s.id = any($3)"),
            "s.id",
        ))
        .bind(tenant.0)
        .bind(area.project.as_str())
        .bind(ids.iter().map(SessionId::as_str).collect::<Vec<_>>())
        .bind(area.worktree.as_ref().map(WorktreeId::as_str));
        let rows = self.statements(tenant).await?.fetch_all(query).await?;
        rows.iter().map(session_row::from_row).collect()
    }

    /// Lists the children of a session, oldest first. The cursor is `<created_at in ms>.<id>` of the last one. Neither
    /// value ever changes, so the pages show each child once even while the children work.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_children(
        &self,
        tenant: TenantId,
        parent: &SessionId,
        page: &Page,
    ) -> Result<Vec<Session>, Error> {
        let after = Cursor::of(page).unwrap_or(Cursor { ms: -1, id: "" });
        let query = sqlx::query(session_row::select_page(
            "s.tenant_id = $1 and s.parent_id = $2
               and ((extract(epoch from s.created_at) * 1000)::bigint, s.id) > ($3, $4)",
            "s.created_at, s.id limit $5",
        ))
        .bind(tenant.0)
        .bind(parent.as_str())
        .bind(after.ms)
        .bind(after.id)
        .bind(page.limit());
        let rows = self.statements(tenant).await?.fetch_all(query).await?;
        rows.iter().map(session_row::from_row).collect()
    }

    /// Changes the title, the archive mark, or the agent and model of later prompts.
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
    ) -> Result<(Session, Vec<StoredEvent>), Error> {
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
        let session = session_row::read(&mut tx, tenant, id).await?;
        let updated = Event::SessionUpdated(Box::new(session.info.clone()));
        let scope = Scope { tenant, session: id, epoch: unsigned(run.try_get("epoch")?), at };
        let first = unsigned(run.try_get("event_seq")?);
        let changes = [Change::event(event_id.clone(), updated)];
        let events = projection::project(&mut tx, &scope, &changes, first).await?;
        tx.commit().await?;
        Ok((session, events))
    }

    /// Returns the to-do list as the agent wrote it; an empty list if it wrote none.
    ///
    /// # Errors
    /// `NotFound` or `Db`.
    pub async fn get_todos(&self, tenant: TenantId, session: &SessionId) -> Result<Value, Error> {
        let query = sqlx::query("select todos from session where tenant_id = $1 and id = $2")
            .bind(tenant.0)
            .bind(session.as_str());
        let row = self.statements(tenant).await?.fetch_optional(query).await?;
        let row = row.ok_or(Error::NotFound(Entity::Session))?;
        Ok(row.try_get::<Option<Json<Value>>, _>("todos")?.map_or_else(|| json!([]), |todos| todos.0))
    }
}

/// The end of the previous page: a time in milliseconds and an id.
struct Cursor<'a> {
    ms: i64,
    id: &'a str,
}

impl<'a> Cursor<'a> {
    /// Reads the cursor of a page; `None` for the first page and for a malformed cursor.
    fn of(page: &'a Page) -> Option<Self> {
        let (ms, id) = page.cursor.as_deref()?.split_once('.')?;
        Some(Self { ms: ms.parse().ok()?, id })
    }
}
