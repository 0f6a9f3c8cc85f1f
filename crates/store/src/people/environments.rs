//! The environments that repositories propose, and the decisions of admins about them. The crate `settings` interprets them.

use crate::{
    Store, Tx,
    column::{parse_id, timestamp},
    error::{Entity, Error},
};
use domain::ids::{ProjectId, SessionId, TenantId, Timestamp};
use sqlx::{AssertSqlSafe, Row as _, postgres::PgRow, types::time::OffsetDateTime};

/// Environments of one project that an admin has not allowed, and as many that one has: the oldest make room. A session proposes again what was removed.
pub const PROPOSED_ENVIRONMENTS_MAX: i64 = 50;

/// An environment that a repository proposes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProposedEnvironment {
    /// SHA-256 of the document: 64 hexadecimal digits.
    pub digest: String,
    /// The file of the repository.
    pub file: String,
    /// `{"environment":{…}}`.
    pub document: String,
    /// Sentences about what the file has and Flotilla does not use.
    pub unused: Vec<String>,
    /// The session that first had it. It may be gone.
    pub session: SessionId,
    /// When that session had it.
    pub proposed_at: Timestamp,
    /// `None`: it waits for an admin.
    pub decision: Option<EnvironmentDecision>,
}

/// The decision of an admin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvironmentDecision {
    /// Whether sessions use it.
    pub is_allowed: bool,
    /// The name of the admin's key.
    pub by: String,
    /// When it was made.
    pub at: Timestamp,
}

/// An environment that a session of a project found in its repository.
#[derive(Debug, Clone, Copy)]
pub struct NewProposal<'a> {
    /// The project.
    pub project: &'a ProjectId,
    /// The session.
    pub session: &'a SessionId,
    /// The file.
    pub file: &'a str,
    /// `{"environment":{…}}`.
    pub document: &'a str,
    /// Sentences about what has no effect.
    pub unused: &'a [String],
}

/// A decision of an admin about an environment that a repository proposed to a project.
#[derive(Debug, Clone, Copy)]
pub struct NewDecision<'a> {
    /// The project.
    pub project: &'a ProjectId,
    /// The digest of the environment.
    pub digest: &'a str,
    /// Whether sessions use it.
    pub is_allowed: bool,
    /// The name of the admin's key.
    pub by: &'a str,
}

/// What is known of an environment that a repository proposes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvironmentChoice {
    /// SHA-256 of its document.
    pub digest: String,
    /// `None`: it is new to the project.
    pub own: Option<ProposedEnvironment>,
    /// The one that sessions use: it, if it is allowed, else the one that was allowed last in the project.
    pub allowed: Option<ProposedEnvironment>,
}

const COLUMNS: &str =
    "digest, file, document, unused, session_id, proposed_at, is_allowed, decided_by, decided_at";

impl Store {
    /// Finds the environment with which sessions work whose repository proposes `document`.
    ///
    /// # Errors
    /// `Unreadable`; `Db`.
    pub async fn find_environment(
        &self,
        tenant: TenantId,
        project: &ProjectId,
        document: &str,
    ) -> Result<EnvironmentChoice, Error> {
        let sql = format!(
            "with own as (select encode(sha256(convert_to($3, 'UTF8')), 'hex') as own_digest)
             select own_digest, {COLUMNS} from own left join lateral (
               select * from proposed_environment
                where tenant_id = $1 and project_id = $2 and (digest = own_digest or is_allowed)
                order by digest = own_digest desc, decided_at desc limit 2) as known on true"
        );
        let query = sqlx::query(AssertSqlSafe(sql)).bind(tenant.0).bind(project.as_str()).bind(document);
        let rows = self.statements(tenant).await?.fetch_all(query).await?;
        let digest: String = rows.first().map_or(Ok(String::new()), |row| row.try_get("own_digest"))?;
        let is_known =
            |row: &&PgRow| row.try_get::<Option<&str>, _>("digest").is_ok_and(|known| known.is_some());
        let known = rows.iter().filter(is_known).map(from_row).collect::<Result<Vec<_>, _>>()?;
        let own = known.iter().find(|known| known.digest == digest).cloned();
        let is_allowed =
            |known: &ProposedEnvironment| known.decision.as_ref().is_some_and(|it| it.is_allowed);
        let allowed = known.into_iter().find(is_allowed);
        Ok(EnvironmentChoice { digest, own, allowed })
    }

    /// As [`Store::find_environment`], and keeps the proposal for an admin if it is new.
    ///
    /// # Errors
    /// `Unreadable`; `Db`.
    pub async fn propose_environment(
        &self,
        tenant: TenantId,
        new: NewProposal<'_>,
    ) -> Result<EnvironmentChoice, Error> {
        let found = self.find_environment(tenant, new.project, new.document).await?;
        if found.own.is_some() {
            return Ok(found);
        }
        let mut tx = self.begin(tenant).await?;
        let inserted = sqlx::query(
            "insert into proposed_environment (tenant_id, project_id, digest, file, document, unused, session_id)
             select $1, $2, $3, $4, $5, $6, $7 where exists (select from project where tenant_id = $1 and id = $2)
             on conflict do nothing",
        )
        .bind(tenant.0)
        .bind(new.project.as_str())
        .bind(&found.digest)
        .bind(new.file)
        .bind(new.document)
        .bind(new.unused)
        .bind(new.session.as_str())
        .execute(&mut *tx)
        .await?;
        if inserted.rows_affected() > 0 {
            remove_oldest(&mut tx, tenant, new.project, false).await?;
        }
        tx.commit().await?;
        Ok(found)
    }

    /// Lists the environments that repositories have proposed to a project, the newest first; at most twice [`PROPOSED_ENVIRONMENTS_MAX`].
    ///
    /// # Errors
    /// `Unreadable`; `Db`.
    pub async fn list_proposed_environments(
        &self,
        tenant: TenantId,
        project: &ProjectId,
    ) -> Result<Vec<ProposedEnvironment>, Error> {
        let sql = format!(
            "select {COLUMNS} from proposed_environment where tenant_id = $1 and project_id = $2
              order by proposed_at desc, digest"
        );
        let query = sqlx::query(AssertSqlSafe(sql)).bind(tenant.0).bind(project.as_str());
        let rows = self.statements(tenant).await?.fetch_all(query).await?;
        rows.iter().map(from_row).collect()
    }

    /// Notes the decision of an admin. A later decision replaces it, and counts for sessions that have not opened their files.
    ///
    /// # Errors
    /// `NotFound` if no session has proposed it; `Unreadable`; `Db`.
    pub async fn decide_environment(
        &self,
        tenant: TenantId,
        decision: NewDecision<'_>,
    ) -> Result<ProposedEnvironment, Error> {
        let NewDecision { project, digest, is_allowed, by } = decision;
        let mut tx = self.begin(tenant).await?;
        let sql = format!(
            "update proposed_environment set is_allowed = $4, decided_by = $5, decided_at = now()
              where tenant_id = $1 and project_id = $2 and digest = $3 returning {COLUMNS}"
        );
        let row = sqlx::query(AssertSqlSafe(sql))
            .bind(tenant.0)
            .bind(project.as_str())
            .bind(digest)
            .bind(is_allowed)
            .bind(by)
            .fetch_optional(&mut *tx)
            .await?
            .ok_or(Error::NotFound(Entity::ProposedEnvironment))?;
        let decided = from_row(&row)?;
        remove_oldest(&mut tx, tenant, project, is_allowed).await?;
        tx.commit().await?;
        Ok(decided)
    }
}

/// Removes the oldest of the allowed environments of a project, or of the others.
async fn remove_oldest(
    tx: &mut Tx,
    tenant: TenantId,
    project: &ProjectId,
    are_allowed: bool,
) -> Result<(), Error> {
    sqlx::query(
        "delete from proposed_environment where tenant_id = $1 and project_id = $2 and digest in (
           select digest from proposed_environment
            where tenant_id = $1 and project_id = $2 and coalesce(is_allowed, false) = $3
            order by coalesce(decided_at, proposed_at) desc, digest offset $4)",
    )
    .bind(tenant.0)
    .bind(project.as_str())
    .bind(are_allowed)
    .bind(PROPOSED_ENVIRONMENTS_MAX)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

fn from_row(row: &PgRow) -> Result<ProposedEnvironment, Error> {
    let time = |name: &str| row.try_get::<Option<OffsetDateTime>, _>(name);
    let decision = match (row.try_get("is_allowed")?, row.try_get("decided_by")?, time("decided_at")?) {
        (Some(is_allowed), Some(by), Some(at)) => {
            Some(EnvironmentDecision { is_allowed, by, at: timestamp(at) })
        }
        _ => None,
    };
    Ok(ProposedEnvironment {
        digest: row.try_get("digest")?,
        file: row.try_get("file")?,
        document: row.try_get("document")?,
        unused: row.try_get("unused")?,
        session: parse_id("environment", row.try_get("session_id")?)?,
        proposed_at: timestamp(row.try_get::<OffsetDateTime, _>("proposed_at")?),
        decision,
    })
}
