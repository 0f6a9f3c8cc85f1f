//! Every statement that the store sends, from its sources, and those that Postgres runs for foreign keys.

use super::{
    sources::{Function, Source, Sources},
    texts,
    tokens::Token,
};
use sqlx::{AssertSqlSafe, PgConnection, Row as _};

/// Functions of sqlx that take a statement.
const FUNCTIONS: [&str; 4] = ["query", "query_as", "query_scalar", "raw_sql"];
/// Methods of sqlx that take a statement, or what one of [`FUNCTIONS`] returns.
const METHODS: [&str; 5] = ["execute", "fetch", "fetch_all", "fetch_one", "fetch_optional"];
/// Files whose statements read no table, and what these do.
const WITHOUT_PLANS: [(&str, &str); 2] =
    [("migrate.rs", "sets the passwords of roles"), ("pool/loan.rs", "begins and ends transactions")];

#[derive(Debug, Clone)]
pub(super) struct Statement {
    /// The file and the function that send it, or the foreign key.
    pub name: String,
    /// The role that sends it. `none`: the owner of the tables.
    pub role: &'static str,
    pub sql: String,
}

/// Returns the statements of the store. The second list has those that cannot be read.
pub(super) fn list() -> (Vec<Statement>, Vec<String>) {
    let sources = Sources::read();
    let (mut statements, mut unread) = (vec![], vec![]);
    for (file, source) in sources.files.iter().enumerate() {
        if WITHOUT_PLANS.iter().any(|(path, _)| source.path == *path) {
            continue;
        }
        for (at, argument) in (0..source.tokens.len()).filter_map(|at| Some((at, argument(source, at)?))) {
            let function = sources.function_around(file, at);
            let name = format!(
                "{}: {}",
                source.path,
                function.map_or("no function", |function| function.name.as_str())
            );
            let texts = match (function, argument) {
                (Some(function), Some(argument)) => texts::read(&sources, function, argument),
                (None, _) | (_, None) => Err("no statement is found".to_owned()),
            };
            match texts {
                Ok(texts) if !texts.is_empty() => {
                    let role = function.map_or("none", |function| role(source, function));
                    let statement = |sql| Statement { name: name.clone(), role, sql };
                    statements.extend(texts.into_iter().map(statement));
                }
                Ok(_) => unread.push(format!("{name}: the statement has no text")),
                Err(reason) => unread.push(format!("{name}: {reason}")),
            }
        }
    }
    // Settings of a transaction have no plan.
    statements.retain(|statement| !statement.sql.starts_with("set local "));
    (statements, unread)
}

/// Finds the statement that the word at a position takes: `Some(None)` if sqlx offers a way that is not known here.
fn argument(source: &Source, at: usize) -> Option<Option<usize>> {
    let word = source.word(at)?;
    if METHODS.contains(&word) {
        let is_statement = matches!(source.tokens.get(at + 2), Some(Token::Text(_)))
            || source.is_word(at + 2, "AssertSqlSafe");
        return (source.is_sign(at + 1, '(') && is_statement).then_some(Some(at + 2));
    }
    if word == "QueryBuilder" || word.starts_with("query_") && !FUNCTIONS.contains(&word) {
        return Some(None);
    }
    if !FUNCTIONS.contains(&word) {
        return None;
    }
    // `query_scalar::<_, String>(…)`
    let has_types =
        [':', ':', '<'].iter().enumerate().all(|(offset, sign)| source.is_sign(at + 1 + offset, *sign));
    let open = if has_types { source.find(at + 1, '(') } else { at + 1 };
    source.is_sign(open, '(').then_some(Some(open + 1))
}

fn role(source: &Source, function: &Function) -> &'static str {
    let mut words = function.body.clone();
    if source.path.starts_with("broker") {
        "flotilla_broker"
    } else if words.any(|at| {
        let is_system = ["system", "begin_system"].iter().any(|word| source.is_word(at + 2, word));
        source.is_word(at, "self") && is_system
    }) {
        "flotilla_system"
    } else {
        "flotilla_app"
    }
}

/// Returns the statements that Postgres runs when a row is deleted to which rows of a tenant refer.
pub(super) async fn list_of_foreign_keys(connection: &mut PgConnection) -> Vec<Statement> {
    let rows = sqlx::query(
        "select c.conname as name,
                format('delete from only %s where %s', c.conrelid::regclass,
                       string_agg(format('%I = $%s', a.attname, k.number), ' and ' order by k.number)) as sql
           from pg_constraint c cross join lateral unnest(c.conkey) with ordinality k (attnum, number)
           join pg_attribute a on a.attrelid = c.conrelid and a.attnum = k.attnum
          where c.contype = 'f' and c.connamespace = 'public'::regnamespace and cardinality(c.conkey) > 1
          group by c.oid order by 1",
    );
    let rows = rows.fetch_all(connection).await.unwrap();
    rows.iter().map(|row| Statement { name: row.get("name"), role: "none", sql: row.get("sql") }).collect()
}

impl Statement {
    /// Returns its plan for all values of its parameters, in the JSON of Postgres. `number` makes the name of the prepared statement.
    pub(super) async fn plan(
        &self,
        connection: &mut PgConnection,
        number: usize,
    ) -> Result<serde_json::Value, sqlx::Error> {
        let values = vec!["null"; parameters(&self.sql)].join(", ");
        let values = if values.is_empty() { values } else { format!("({values})") };
        let Self { role, sql, .. } = self;
        // A comment may end the statement.
        let script = format!(
            "set role {role}; prepare plan_{number} as {sql}\n; explain (format json) execute plan_{number}{values}"
        );
        let rows = sqlx::raw_sql(AssertSqlSafe(script)).fetch_all(connection).await?;
        Ok(rows[0].get::<serde_json::Value, _>(0)[0]["Plan"].clone())
    }
}

/// Returns the number of the last parameter.
fn parameters(sql: &str) -> usize {
    let number = |rest: &str| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<usize>().ok();
    sql.split('$').skip(1).filter_map(number).max().unwrap_or(0)
}
