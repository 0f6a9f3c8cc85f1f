//! A database for each test, copied from a template. The template is migrated once for each set of migrations.

use crate::ground::servers;
use domain::text;
use sha2::{Digest as _, Sha256};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _, migrate::Migrator};
use std::{path::Path, sync::Arc};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

/// The migrations, relative to this crate's directory. They are read when tests run, so a new file needs no rebuild.
const MIGRATIONS: &str = "../../migrations";
/// Password of all roles.
pub const PASSWORD: &str = "test";
/// Prefix of the names of templates and test databases.
const TEMPLATE_PREFIX: &str = "template_of_";
const TEST_PREFIX: &str = "test_of_";
/// Advisory locks in the maintenance database: for creating the template, and for dropping databases of earlier runs.
const TEMPLATE_LOCK: i64 = 7_239_100;
const SWEEP_LOCK: i64 = 7_239_101;
/// Databases that one test drops. It drops more than it creates, so that they do not accumulate.
const SWEEP_MAX: usize = 4;
/// The first version of Postgres that copies a database page by page unless a statement asks for its files.
const COPIES_PAGES_SINCE: u32 = 150_000;

/// The database of one test.
#[derive(Debug, Clone)]
pub struct Database {
    pub name: String,
    /// Logs in as `flotilla_app`, which sees one tenant at a time.
    pub app_url: String,
    /// Logs in as `flotilla_system`, which bypasses row-level security.
    pub system_url: String,
    /// Logs in as `flotilla_broker`, which reaches only the broker's tables.
    pub broker_url: String,
    /// Logs in as a superuser, who owns the tables.
    pub migrator_url: String,
    /// A connection of the owner, made at the first use. Clones share it.
    owner: Arc<OnceCell<Mutex<PgConnection>>>,
}

/// The content of a new database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Migrated,
    Empty,
}

impl Database {
    fn named(postgres_url: &str, name: String) -> Self {
        let (login, server) =
            postgres_url.split_once("://").expect("a URL").1.split_once('@').expect("a login");
        let address = server.split('/').next().expect("an address");
        let url = |login: &str| format!("postgres://{login}@{address}/{name}");
        Self {
            app_url: url(&format!("flotilla_app:{PASSWORD}")),
            system_url: url(&format!("flotilla_system:{PASSWORD}")),
            broker_url: url(&format!("flotilla_broker:{PASSWORD}")),
            migrator_url: url(login),
            name,
            owner: Arc::default(),
        }
    }

    /// The password of the superuser: hexadecimal digits, which need no escapes in a URL or in SQL. The set of servers makes it.
    fn superuser_password(&self) -> &str {
        let login = self.migrator_url.split_once('@').expect("a login").0;
        login.rsplit_once(':').expect("a password").1
    }

    /// The connection of the owner of the tables, for one statement of a test. Each connection is a process of Postgres, so a test
    /// that looks often uses this one. A transaction, a lock or a setting needs a connection of its own.
    pub async fn owner(&self) -> MutexGuard<'_, PgConnection> {
        let owner = self.owner.get_or_init(|| async { Mutex::new(connect(&self.migrator_url).await) });
        owner.await.lock().await
    }
}

pub async fn connect(url: &str) -> PgConnection {
    PgConnection::connect(url).await.expect("a connection to Postgres")
}

pub(crate) async fn create(content: Content) -> Database {
    static TEMPLATE: OnceCell<String> = OnceCell::const_new();
    let postgres_url = &servers::get().await.postgres_url;
    let mut connection = connect(postgres_url).await;
    // On the heap: only the first database of a process needs it.
    let made = Box::pin(template(&mut connection, postgres_url));
    let template = TEMPLATE.get_or_init(|| made).await;
    let source = match content {
        Content::Migrated => template,
        Content::Empty => "template0",
    };
    // The name contains the process id: the database may be dropped when the process is gone.
    let name = format!("{TEST_PREFIX}{}_{}", std::process::id(), uuid::Uuid::now_v7().simple());
    // A copy page by page goes through the log, which takes twice the work of a copy of the files.
    let copies_pages = connection.server_version_num().is_some_and(|version| version >= COPIES_PAGES_SINCE);
    let strategy = if copies_pages { " strategy file_copy" } else { "" };
    run(&mut connection, format!("create database {name} template {source}{strategy}")).await;
    tokio::spawn(sweep(connection));
    Database::named(postgres_url, name)
}

/// Returns the name of the template and creates it if it does not exist.
async fn template(connection: &mut PgConnection, postgres_url: &str) -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join(MIGRATIONS);
    let migrator = Migrator::new(dir).await.expect("the migrations");
    let mut hash = Sha256::new();
    for migration in migrator.iter() {
        hash.update(migration.version.to_be_bytes());
        hash.update(&migration.checksum);
    }
    let hash = text::hex(&hash.finalize()[..8]);
    let name = format!("{TEMPLATE_PREFIX}{hash}");
    if !exists(connection, &name).await {
        run(connection, format!("set statement_timeout = '60s'; select pg_advisory_lock({TEMPLATE_LOCK})"))
            .await;
        if !exists(connection, &name).await {
            make_template(connection, &Database::named(postgres_url, name.clone()), &migrator).await;
        }
        run(connection, format!("select pg_advisory_unlock({TEMPLATE_LOCK}); reset statement_timeout")).await;
    }
    name
}

/// Creates the template under another name and renames it at the end: a template with the right name is complete.
async fn make_template(connection: &mut PgConnection, template: &Database, migrator: &Migrator) {
    let rows = sqlx::query("select datname from pg_database where datname like $1")
        .bind(format!("{TEMPLATE_PREFIX}%"))
        .fetch_all(&mut *connection)
        .await
        .expect("the databases");
    for row in rows {
        let name: String = row.get("datname");
        run(connection, format!("alter database {name} is_template false")).await;
        run(connection, format!("drop database {name} with (force)")).await;
    }
    let unfinished = format!("{}_unfinished", template.name);
    run(connection, format!("create database {unfinished} template template0")).await;
    let url = template.migrator_url.replace(&template.name, &unfinished);
    let mut migrated = connect(&url).await;
    migrator.run(&mut migrated).await.expect("migrations that run");
    migrated.close().await.expect("a clean end");
    for role in ["flotilla_app", "flotilla_system", "flotilla_broker"] {
        run(connection, format!("alter role {role} login password '{PASSWORD}'")).await;
    }
    // Postgres keeps the hash that a password had when it was set, and the superuser's is older than the settings for tests. It would
    // double the work of each connection.
    run(connection, format!("alter role current_user password '{}'", template.superuser_password())).await;
    run(connection, format!("alter database {unfinished} rename to {}", template.name)).await;
    // Only autovacuum may connect to it.
    run(connection, format!("alter database {} is_template true allow_connections false", template.name))
        .await;
}

async fn exists(connection: &mut PgConnection, name: &str) -> bool {
    let row = sqlx::query("select 1 from pg_database where datname = $1")
        .bind(name)
        .fetch_optional(connection)
        .await;
    row.expect("the databases").is_some()
}

/// Drops some databases whose test process is gone. It runs in the background and its failure fails no test.
async fn sweep(mut connection: PgConnection) -> Option<()> {
    let row = sqlx::query("select pg_try_advisory_lock($1) as mine")
        .bind(SWEEP_LOCK)
        .fetch_one(&mut connection)
        .await;
    if !row.ok()?.get::<bool, _>("mine") {
        return None;
    }
    let rows = sqlx::query("select datname from pg_database where datname like $1 order by datname")
        .bind(format!("{TEST_PREFIX}%"))
        .fetch_all(&mut connection)
        .await
        .ok()?;
    let names = rows.iter().map(|row| row.get::<String, _>("datname"));
    for name in names.filter(|name| !is_owner_alive(name)).take(SWEEP_MAX) {
        let drop = AssertSqlSafe(format!("drop database if exists {name} with (force)"));
        sqlx::raw_sql(drop).execute(&mut connection).await.ok()?;
    }
    connection.close().await.ok()
}

fn is_owner_alive(database: &str) -> bool {
    let pid = database.trim_start_matches(TEST_PREFIX).split('_').next().expect("a pid");
    Path::new("/proc").join(pid).exists()
}

async fn run(connection: &mut PgConnection, sql: String) {
    let text = sql.clone();
    if let Err(error) = sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await {
        panic!("{text}: {error}");
    }
}

#[cfg(test)]
mod tests;
