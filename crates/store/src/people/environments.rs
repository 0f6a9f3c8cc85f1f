//! The environments that repositories propose, and the decisions of admins about them. The crate `settings` interprets them.

use crate::{
    Store, Tx,
    audit::AuditNote,
    column::{parse_id, timestamp},
    error::{Entity, Error},
};
use domain::ids::{ProjectId, SessionId, TenantId, Timestamp};
use sqlx::{AssertSqlSafe, Row as _, postgres::PgRow, types::time::OffsetDateTime};

/// Environments of one project that wait for an admin, as many that one has allowed, and as many that one has denied: the oldest of each make room. A session proposes
/// again what was removed.
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
    pub is_allowed: bool,
    /// The name of the admin's key.
    pub by: String,
    /// When it was made.
    pub at: Timestamp,
}

/// The files whose environment is wanted.
#[derive(Debug, Clone, Copy)]
pub struct EnvironmentQuery<'a> {
    pub project: &'a ProjectId,
    /// The session that owns them.
    pub session: &'a SessionId,
    /// `{"environment":{…}}`: what their repository proposes.
    pub document: &'a str,
    /// The name of their repository. Then a decision about `document` in another project counts that the same repository proposed it to, unless this project has
    /// one of its own.
    pub repository: Option<&'a str>,
}

/// An environment that a session of a project found in its repository.
#[derive(Debug, Clone, Copy)]
pub struct NewProposal<'a> {
    pub project: &'a ProjectId,
    /// The session that owns the files.
    pub session: &'a SessionId,
    pub file: &'a str,
    /// `{"environment":{…}}`.
    pub document: &'a str,
    /// Sentences about what has no effect.
    pub unused: &'a [String],
    /// The name of the repository, as in [`EnvironmentQuery`].
    pub repository: Option<&'a str>,
}

/// A decision of an admin about an environment that a repository proposed to a project.
#[derive(Debug, Clone, Copy)]
pub struct NewDecision<'a> {
    pub project: &'a ProjectId,
    pub digest: &'a str,
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
    /// The one that the session uses: its own, if that is allowed in the project or for its repository, or the session tries it; else the one that was allowed last
    /// in the project.
    pub allowed: Option<ProposedEnvironment>,
}

const COLUMNS: &str =
    "digest, file, document, unused, session_id, proposed_at, is_allowed, decided_by, decided_at";

impl Store {
    /// Finds the environment with which a session works.
    ///
    /// # Errors
    /// `Unreadable`; `Db`.
    pub async fn find_environment(
        &self,
        tenant: TenantId,
        EnvironmentQuery { project, session, document, repository }: EnvironmentQuery<'_>,
    ) -> Result<EnvironmentChoice, Error> {
        let sql = format!(
            "with own as (select encode(sha256(convert_to($3, 'UTF8')), 'hex') as own_digest,
                                 exists (select 1 from session where tenant_id = $1 and id = $4 and tries_environment) as is_tried)
             select own_digest, is_tried, is_elsewhere, {COLUMNS} from own left join lateral (
               (select *, false as is_elsewhere from proposed_environment
                 where tenant_id = $1 and project_id = $2 and (digest = own_digest or is_allowed)
                 order by digest = own_digest desc, decided_at desc limit 2)
               union all
               (select *, true as is_elsewhere from proposed_environment
                 where tenant_id = $1 and digest = own_digest and proposed_at > '-infinity' and repository = $5 and project_id <> $2 and is_allowed is not null
                 order by decided_at desc limit 1)) as known on true"
        );
        let query = sqlx::query(AssertSqlSafe(sql)).bind(tenant.0).bind(project.as_str());
        let query = query.bind(document).bind(session.as_str()).bind(repository);
        let rows = self.statements(tenant).await?.fetch_all(query).await?;
        let is_tried = rows.first().map_or(Ok(false), |row| row.try_get("is_tried"))?;
        let digest: String = rows.first().map_or(Ok(String::new()), |row| row.try_get("own_digest"))?;
        let mut known = KnownEnvironments::default();
        for row in &rows {
            match row.try_get::<Option<bool>, _>("is_elsewhere")? {
                Some(true) => known.elsewhere = Some(from_row(row)?),
                Some(false) => known.of_project.push(from_row(row)?),
                None => {}
            }
        }
        let own = known.of_project.iter().find(|known| known.digest == digest).cloned();
        let allowed = if is_tried { own.clone() } else { known.find_allowed(own.as_ref()) };
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
        let NewProposal { project, session, document, repository, .. } = new;
        let query = EnvironmentQuery { project, session, document, repository };
        let found = self.find_environment(tenant, query).await?;
        if found.own.is_some() {
            return Ok(found);
        }
        let mut tx = self.begin(tenant).await?;
        let inserted = sqlx::query(
            "insert into proposed_environment (tenant_id, project_id, digest, file, document, unused, session_id, repository)
             select $1, $2, $3, $4, $5, $6, $7, $8 where exists (select from project where tenant_id = $1 and id = $2)
             on conflict do nothing",
        )
        .bind(tenant.0)
        .bind(new.project.as_str())
        .bind(&found.digest)
        .bind(new.file)
        .bind(new.document)
        .bind(new.unused)
        .bind(new.session.as_str())
        .bind(new.repository)
        .execute(&mut *tx)
        .await?;
        if inserted.rows_affected() > 0 {
            remove_oldest(&mut tx, tenant, new.project, None).await?;
        }
        tx.commit().await?;
        self.find_environment(tenant, query).await
    }

    /// Lists the environments that repositories have proposed to a project, the newest first; at most three times [`PROPOSED_ENVIRONMENTS_MAX`]. One that is not decided in
    /// the project has the decision that counts for its repository.
    ///
    /// # Errors
    /// `Unreadable`; `Db`.
    pub async fn list_proposed_environments(
        &self,
        tenant: TenantId,
        project: &ProjectId,
    ) -> Result<Vec<ProposedEnvironment>, Error> {
        let sql = format!(
            "select {COLUMNS} from (
               select p.digest, p.file, p.document, p.unused, p.session_id, p.proposed_at, coalesce(p.is_allowed, d.is_allowed) as is_allowed,
                      coalesce(p.decided_by, d.decided_by) as decided_by, coalesce(p.decided_at, d.decided_at) as decided_at
                 from proposed_environment p left join lateral (
                      select is_allowed, decided_by, decided_at from proposed_environment
                       where p.is_allowed is null and tenant_id = $1 and digest = p.digest and proposed_at > '-infinity' and repository = p.repository
                         and is_allowed is not null
                       order by decided_at desc limit 1) as d on true
                where p.tenant_id = $1 and p.project_id = $2) as known
              order by proposed_at desc, digest"
        );
        let query = sqlx::query(AssertSqlSafe(sql)).bind(tenant.0).bind(project.as_str());
        let rows = self.statements(tenant).await?.fetch_all(query).await?;
        rows.iter().map(from_row).collect()
    }

    /// Lists the environments that were proposed to any project and whose digest begins so, each once, without decisions; at most
    /// [`PROPOSED_ENVIRONMENTS_MAX`].
    ///
    /// # Errors
    /// `Unreadable`; `Db`.
    pub async fn find_proposed_environments(
        &self,
        tenant: TenantId,
        beginning: &str,
    ) -> Result<Vec<ProposedEnvironment>, Error> {
        // A letter behind all digits ends the range.
        let sql = format!(
            "select distinct on (digest) {COLUMNS} from proposed_environment
              where tenant_id = $1 and digest >= $2 and proposed_at > '-infinity' and digest < $2 || 'g' order by digest, proposed_at desc limit $3"
        );
        let query = sqlx::query(AssertSqlSafe(sql)).bind(tenant.0).bind(beginning);
        let query = query.bind(PROPOSED_ENVIRONMENTS_MAX);
        let rows = self.statements(tenant).await?.fetch_all(query).await?;
        let undecided = |row: &PgRow| Ok(ProposedEnvironment { decision: None, ..from_row(row)? });
        rows.iter().map(undecided).collect()
    }

    /// Notes the decision of an admin about an environment that was proposed to the project or to another one of the tenant. A later decision replaces it, and
    /// counts for sessions that have not opened their files.
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
            "insert into proposed_environment as kept (tenant_id, project_id, digest, file, document, unused, session_id, repository,
                                                       is_allowed, decided_by, decided_at)
             select $1, $2, $3, file, document, unused, session_id, repository, $4, $5, now() from proposed_environment
              where tenant_id = $1 and digest = $3 and proposed_at > '-infinity' and exists (select 1 from project where tenant_id = $1 and id = $2)
              order by project_id = $2 desc, proposed_at desc limit 1
             on conflict (tenant_id, project_id, digest) do update
                set is_allowed = excluded.is_allowed, decided_by = excluded.decided_by, decided_at = excluded.decided_at
             returning {COLUMNS}"
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
        remove_oldest(&mut tx, tenant, project, Some(is_allowed)).await?;
        let action = if is_allowed { "environment.allow" } else { "environment.deny" };
        let object = format!("{digest} in {project}");
        self.note(&mut tx, AuditNote::of(tenant, action, &object)).await?;
        tx.commit().await?;
        Ok(decided)
    }
}

/// What is known of the environments of a project.
#[derive(Default)]
struct KnownEnvironments {
    /// The one in question, and the one that was allowed last.
    of_project: Vec<ProposedEnvironment>,
    /// The one in question, as it was decided last in another project of the same repository.
    elsewhere: Option<ProposedEnvironment>,
}

impl KnownEnvironments {
    /// The one that sessions use. The decision of the project itself wins over that of another one.
    fn find_allowed(self, own: Option<&ProposedEnvironment>) -> Option<ProposedEnvironment> {
        let is_allowed =
            |known: &ProposedEnvironment| known.decision.as_ref().is_some_and(|it| it.is_allowed);
        let is_decided = own.is_some_and(|own| own.decision.is_some());
        let elsewhere = self.elsewhere.filter(|known| !is_decided && is_allowed(known));
        elsewhere.or_else(|| self.of_project.into_iter().find(is_allowed))
    }
}

/// Removes the oldest environments of a project with this decision; `None`: of those that wait for one. So proposals, which any branch can make, push out no decision.
async fn remove_oldest(
    tx: &mut Tx,
    tenant: TenantId,
    project: &ProjectId,
    decision: Option<bool>,
) -> Result<(), Error> {
    sqlx::query(
        "delete from proposed_environment where tenant_id = $1 and project_id = $2 and digest in (
           select digest from proposed_environment
            where tenant_id = $1 and project_id = $2 and is_allowed is not distinct from $3
            order by coalesce(decided_at, proposed_at) desc, digest offset $4)",
    )
    .bind(tenant.0)
    .bind(project.as_str())
    .bind(decision)
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
