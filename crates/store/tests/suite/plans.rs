//! The plans of all statements: none reads more the more a tenant has, whatever Postgres knows of the size of its tables.

mod exceptions;
mod growth;
mod keys;
mod sources;
mod statements;
mod texts;
mod tokens;
mod verdict;

use exceptions::{EXCEPTIONS, Exception};
use sqlx::{AssertSqlSafe, PgConnection};
use statements::Statement;
use std::collections::BTreeMap;
use testkit::database::{Database, connect};
use verdict::{Indexes, Size};

/// Sessions of a small and of a large tenant.
const SMALL: u32 = 100;
const LARGE: u32 = 100_000;
/// Plans that Postgres prefers for tables of a few pages, although they read them in whole.
const NO_WHOLE_TABLES: &str =
    "set enable_seqscan = off; set enable_hashjoin = off; set enable_mergejoin = off";

/// The complaints about statements, by their names.
type Complaints = BTreeMap<String, Vec<String>>;

/// What is checked in each state of a database.
struct Check {
    statements: Vec<Statement>,
    tables: Vec<keys::Table>,
    complaints: Complaints,
}

impl Check {
    /// Checks the statements for all values of their parameters, because a connection keeps such plans, and look-ups by primary key.
    async fn run(&mut self, database: &Database, state: &str, size: Size) {
        let mut connection = connect(&database.migrator_url).await;
        let found = complaints(&mut connection, &self.statements, size).await;
        for (name, reasons) in found {
            let reasons = reasons.into_iter().map(|reason| format!("{reason} ({state})"));
            self.complaints.entry(name).or_default().extend(reasons);
        }
        let mut connection = connect(&database.migrator_url).await;
        let wrong = keys::wrong_plans(&mut connection, &self.tables).await;
        assert_eq!(wrong, Vec::<String>::new(), "{state}");
    }

    /// Removes the complaints about exceptions. Returns what the exceptions allow without need.
    fn forgive_exceptions(&mut self) -> Vec<String> {
        let mut needless = vec![];
        for Exception { name, reads, reason } in &EXCEPTIONS {
            let reasons = self.complaints.entry((*name).to_owned()).or_default();
            for read in *reads {
                if !reasons.iter().any(|complaint| complaint.starts_with(read)) {
                    needless.push(format!("{name}: {read} ({reason})"));
                }
            }
            reasons.retain(|complaint| !reads.iter().any(|read| complaint.starts_with(read)));
        }
        self.complaints.retain(|_, reasons| !reasons.is_empty());
        needless
    }
}

/// Plans statements on a connection that has planned none.
async fn complaints(connection: &mut PgConnection, statements: &[Statement], size: Size) -> Complaints {
    let indexes = Indexes::read(connection).await;
    let plans = match size {
        Size::Small => NO_WHOLE_TABLES,
        Size::Large => "set enable_seqscan = on",
    };
    let tenant = growth::TENANT;
    run(
        connection,
        &format!("set plan_cache_mode = force_generic_plan; set app.tenant = '{tenant}'; {plans}"),
    )
    .await;
    let mut found = Complaints::new();
    for (number, statement) in statements.iter().enumerate() {
        let plan = statement.plan(connection, number).await;
        let plan = plan.unwrap_or_else(|error| panic!("{}: {error}: {}", statement.name, statement.sql));
        let reasons = indexes.complaints(&plan, size);
        if !reasons.is_empty() {
            found.entry(statement.name.clone()).or_default().extend(reasons);
        }
    }
    found
}

async fn run(connection: &mut PgConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(connection).await.unwrap();
}

/// Returns all statements of the store.
async fn statements(connection: &mut PgConnection) -> Vec<Statement> {
    let (mut statements, unread) = statements::list();
    assert_eq!(unread, Vec::<String>::new(), "write the statement so that this test can read it");
    assert!(statements.len() > 200, "the store has more statements than these {}", statements.len());
    statements.extend(statements::list_of_foreign_keys(connection).await);
    statements
}

#[tokio::test]
async fn no_statement_reads_more_the_more_a_tenant_has() {
    let (small, large) = tokio::join!(testkit::database(), testkit::database());
    let mut owner = connect(&large.migrator_url).await;
    let statements = statements(&mut owner).await;
    let tables = keys::tables(&mut owner).await;
    assert!(tables.len() > 20, "{tables:?}");
    let mut check = Check { statements, tables, complaints: Complaints::new() };
    check.run(&large, "a new database", Size::Small).await;
    growth::grow(&mut owner, LARGE).await;
    check.run(&large, "a large tenant, never analyzed", Size::Large).await;
    run(&mut owner, "analyze").await;
    check.run(&large, "a large tenant", Size::Large).await;
    let mut owner_of_small = connect(&small.migrator_url).await;
    growth::grow(&mut owner_of_small, SMALL).await;
    run(&mut owner_of_small, "analyze").await;
    check.run(&small, "a small tenant", Size::Small).await;

    assert_eq!(check.forgive_exceptions(), Vec::<String>::new(), "these exceptions are not needed");
    assert!(check.complaints.is_empty(), "{:#?}", check.complaints);

    // Without an index, its statements are found.
    run(&mut owner, "drop index session_parent").await;
    let found = complaints(&mut connect(&large.migrator_url).await, &check.statements, Size::Large).await;
    let names = ["session/tree/family.rs: list_descendants", "session_parent_fk"];
    assert!(names.iter().all(|name| found.contains_key(*name)), "{found:#?}");
}

#[tokio::test]
async fn an_index_that_leads_a_look_up_through_a_tenant_is_found() {
    let database = testkit::database().await;
    let mut owner = connect(&database.migrator_url).await;
    let statements = statements(&mut owner).await;
    // The index that migration 40 replaced.
    run(&mut owner, "create index session_of_any_time on session (tenant_id, updated_at desc, id)").await;
    let found = complaints(&mut connect(&database.migrator_url).await, &statements, Size::Small).await;
    assert!(found.contains_key("log/projection/sessions.rs: set_title"), "{found:#?}");
}
