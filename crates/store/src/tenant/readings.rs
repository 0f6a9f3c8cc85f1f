//! What commits of repositories have for agents, as it was read once from a clone: sessions of the project then need no files for their first model
//! call. Only what people have committed is stored. All of it can be read again.

use crate::{Store, error::Error};
use domain::{
    ids::{ProjectId, TenantId},
    session::{Origin, Source, files::PeoplesFiles},
};
use sha2::{Digest as _, Sha256};
use sqlx::Row as _;

/// Days for which a reading is kept. A commit that is still in use is read again.
const READING_KEPT_DAYS: f64 = 7.0;
/// Readings that a project keeps: commits of its branches, each with a few questions. The oldest go first.
const READINGS_PROJECT_MAX: i64 = 100;
/// Sources of which a project keeps the commit: branches, and uploads of its people. The oldest go first.
const SOURCES_PROJECT_MAX: i64 = 1_000;
/// Rows of each kind that one round of upkeep removes.
const FORGOTTEN_MAX: i64 = 10_000;
/// Changes with what a reading contains: those of earlier versions then count no longer.
const READING_VERSION: u8 = 1;

/// The source of a session, whose files no agent wrote.
#[derive(Debug, Clone, Copy)]
pub struct PeoplesSource<'a> {
    pub project: &'a ProjectId,
    pub source: &'a Source,
    /// The proof: what an agent wrote must not guide other sessions.
    pub files: PeoplesFiles,
}

/// What is known of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownCommit {
    /// The commit that its revision named.
    pub commit: String,
    /// Time since a reader saw that; milliseconds.
    pub age_ms: u64,
    /// What was read of it; `None`: nothing for this question.
    pub reading: Option<Vec<u8>>,
}

/// Something that was read of a commit.
#[derive(Debug, Clone, Copy)]
pub struct NewReading<'a> {
    pub commit: &'a str,
    /// Names what is read.
    pub question: &'a [String],
    /// An encoded `ReadSourceResponse`.
    pub reading: &'a [u8],
}

impl PeoplesSource<'_> {
    /// What tells it from the other sources of its project: the SHA-256 of its origin, its revision and its branch.
    pub fn digest(self) -> Vec<u8> {
        let Source { origin, revision, branch, .. } = self.source;
        let (kind, name) = match origin {
            Origin::Empty => ("empty", ""),
            Origin::GitUrl(url) => ("git", url.as_str()),
            Origin::Bundle(id) => ("bundle", id.as_str()),
        };
        let name_of = |name: &Option<String>| name.clone().unwrap_or_default();
        digest([kind.to_owned(), name.to_owned(), name_of(revision), name_of(branch)])
    }
}

fn question_digest(question: &[String]) -> Vec<u8> {
    digest(std::iter::once(READING_VERSION.to_string()).chain(question.iter().cloned()))
}

/// The SHA-256 of texts with their lengths.
fn digest(texts: impl IntoIterator<Item = String>) -> Vec<u8> {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    hash.finalize().to_vec()
}

impl Store {
    /// Finds the newest known commit of a source, and what was read of it for this question.
    ///
    /// # Errors
    /// `Db`.
    pub async fn find_source_commit(
        &self,
        tenant: TenantId,
        of: PeoplesSource<'_>,
        question: &[String],
    ) -> Result<Option<KnownCommit>, Error> {
        let mut statements = self.statements(tenant).await?;
        let found = sqlx::query(
            "select s.commit, greatest(extract(epoch from now() - s.seen_at) * 1000, 0)::bigint as age_ms, r.reading
               from source_commit s
               left join commit_reading r on r.tenant_id = s.tenant_id and r.project_id = s.project_id and r.commit = s.commit and r.question = $4
              where s.tenant_id = $1 and s.project_id = $2 and s.source = $3",
        )
        .bind(tenant.0)
        .bind(of.project.as_str())
        .bind(of.digest())
        .bind(question_digest(question))
        .fetch_optional(&mut *statements)
        .await?;
        statements.end();
        let Some(row) = found else { return Ok(None) };
        let age_ms: i64 = row.try_get("age_ms")?;
        let (commit, reading) = (row.try_get("commit")?, row.try_get("reading")?);
        Ok(Some(KnownCommit { commit, age_ms: age_ms.unsigned_abs(), reading }))
    }

    /// Records that a source names a commit now.
    ///
    /// # Errors
    /// `Db`: recorded or not. Also if the project is gone.
    pub async fn note_source_commit(
        &self,
        tenant: TenantId,
        of: PeoplesSource<'_>,
        commit: &str,
    ) -> Result<(), Error> {
        let upsert = sqlx::query(
            "insert into source_commit (tenant_id, project_id, source, commit) values ($1, $2, $3, $4)
             on conflict (tenant_id, project_id, source) do update set commit = excluded.commit, seen_at = now()",
        )
        .bind(tenant.0)
        .bind(of.project.as_str())
        .bind(of.digest())
        .bind(commit);
        self.statements(tenant).await?.run(upsert).await?;
        Ok(())
    }

    /// Records what was read of the commit that a source names now.
    ///
    /// # Errors
    /// `Db`: recorded or not. Also if the project is gone.
    pub async fn note_reading(
        &self,
        tenant: TenantId,
        of: PeoplesSource<'_>,
        new: NewReading<'_>,
    ) -> Result<(), Error> {
        let upsert = sqlx::query(
            "with source as (
               insert into source_commit (tenant_id, project_id, source, commit) values ($1, $2, $3, $4)
               on conflict (tenant_id, project_id, source) do update set commit = excluded.commit, seen_at = now())
             insert into commit_reading (tenant_id, project_id, commit, question, reading) values ($1, $2, $4, $5, $6)
             on conflict (tenant_id, project_id, commit, question) do update set reading = excluded.reading, read_at = now()",
        )
        .bind(tenant.0)
        .bind(of.project.as_str())
        .bind(of.digest())
        .bind(new.commit)
        .bind(question_digest(new.question))
        .bind(new.reading);
        self.statements(tenant).await?.run(upsert).await?;
        let forget = sqlx::query(
            "with readings as (
               delete from commit_reading r using (
                 select commit, question from commit_reading where tenant_id = $1 and project_id = $2 order by read_at desc offset $3) old
                where r.tenant_id = $1 and r.project_id = $2 and r.commit = old.commit and r.question = old.question)
             delete from source_commit s using (
               select source from source_commit where tenant_id = $1 and project_id = $2 order by seen_at desc offset $4) old
              where s.tenant_id = $1 and s.project_id = $2 and s.source = old.source",
        )
        .bind(tenant.0)
        .bind(of.project.as_str())
        .bind(READINGS_PROJECT_MAX)
        .bind(SOURCES_PROJECT_MAX);
        self.statements(tenant).await?.run(forget).await?;
        Ok(())
    }

    /// Removes readings and commits of sources from more than a week ago, up to a bound. Returns their number.
    ///
    /// # Errors
    /// `Db`.
    pub async fn forget_old_readings(&self) -> Result<u64, Error> {
        let deletion = sqlx::query_scalar(
            "with readings as (
               delete from commit_reading where ctid = any(array(
                 select ctid from commit_reading where read_at < now() - $1 * interval '1 day' order by read_at limit $2)) returning 1),
                  sources as (
               delete from source_commit where ctid = any(array(
                 select ctid from source_commit where seen_at < now() - $1 * interval '1 day' order by seen_at limit $2)) returning 1)
             select (select count(*) from readings) + (select count(*) from sources)",
        );
        let removed: i64 =
            deletion.bind(READING_KEPT_DAYS).bind(FORGOTTEN_MAX).fetch_one(&self.system).await?;
        Ok(removed.unsigned_abs())
    }
}
