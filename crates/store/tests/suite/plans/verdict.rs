//! The rule for plans: a scan of a table that grows is a look-up in an index, or a page of a list in the order of an index.

use serde_json::Value;
use sqlx::{PgConnection, Row as _};
use std::collections::BTreeMap;

/// Tables that every statement may read in whole.
const SMALL: [(&str, &str); 10] = [
    ("chore", "a row for each kind of upkeep"),
    ("forge_app", "one row"),
    ("key_canary", "a row for each key of the deployment"),
    ("node_removal", "a row leaves when the sandbox has removed the files"),
    ("row_removal", "a row leaves when workers have removed the rows of the session"),
    ("sandbox_service", "one row"),
    ("secret_counter", "a row for each customer"),
    ("secret_key", "one row"),
    ("tenant", "a row for each customer"),
    ("worker", "a row for each machine"),
];
/// Tables of which a tenant has few rows: a statement may read all of one tenant.
const FEW: [(&str, &str); 12] = [
    ("api_key", "people make keys"),
    ("approval", "people approve"),
    ("bundle", "unused bundles are removed, and their bytes have a quota"),
    ("bundle_piece", "a bundle has a maximum size"),
    ("forge_delivery", "it has no tenant, so the first column of an index finds its rows"),
    ("forge_installation", "people install the App"),
    ("project", "people make projects, and they have a quota"),
    ("project_place", "a few for each project"),
    ("proposed_environment", "a project has a maximum number"),
    ("secret", "people store secrets"),
    ("settings", "a row for each project"),
    ("tenant_layer", "people choose images"),
];
/// Partial indexes whose entries leave when the work ends, so they stay short.
const SHORT_INDEXES: [&str; 8] = [
    "bundle_unfinished",
    "forge_delivery_new",
    "forge_delivery_new_of_thread",
    "job_owner",
    "job_wake",
    "request_open",
    "session_run_live",
    "session_run_wake",
];

/// How much a database has when a plan is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    /// So little that all plans cost the same. What counts is the index of a look-up, because Postgres may keep the plan while the tables grow.
    Small,
    Large,
}

/// The indexes of a database.
#[derive(Debug)]
pub(super) struct Indexes {
    /// The columns of each index, in order.
    columns: BTreeMap<String, Vec<String>>,
    /// The columns by which the indexes of each table find rows.
    keys: BTreeMap<String, Vec<String>>,
}

impl Indexes {
    pub(super) async fn read(connection: &mut PgConnection) -> Self {
        // An expression has one pair of parentheses more than in a plan.
        let rows = sqlx::query(
            r"select c.relname as index, t.relname as name,
                     regexp_replace(pg_get_indexdef(i.indexrelid, number, false), '^\((\(.*\))\)$', '\1') as column
                from pg_index i join pg_class c on c.oid = i.indexrelid join pg_class t on t.oid = i.indrelid
                cross join generate_series(1, i.indnkeyatts) number
               where t.relnamespace = 'public'::regnamespace order by c.relname, number",
        );
        let (mut columns, mut keys) = (BTreeMap::<_, Vec<_>>::new(), BTreeMap::<_, Vec<_>>::new());
        for row in rows.fetch_all(connection).await.unwrap() {
            let [index, table, column]: [String; 3] = ["index", "name", "column"].map(|name| row.get(name));
            columns.entry(index).or_default().push(column.clone());
            keys.entry(table).or_default().push(column);
        }
        for (table, _) in SMALL.iter().chain(&FEW) {
            assert!(keys.contains_key(*table), "there is no table {table}");
        }
        Self { columns, keys }
    }

    /// Returns what a plan reads although it grows.
    pub(super) fn complaints(&self, plan: &Value, size: Size) -> Vec<String> {
        let (mut complaints, mut above) = (vec![], vec![]);
        self.walk(plan, size, &mut above, &mut complaints);
        complaints
    }

    fn walk<'p>(
        &self,
        node: &'p Value,
        size: Size,
        above: &mut Vec<&'p Value>,
        complaints: &mut Vec<String>,
    ) {
        if is_scan(node) && !self.is_allowed(node, size, above) {
            let index = Some(text(node, "Index Name")).filter(|name| !name.is_empty()).unwrap_or("no index");
            let [kind, condition, filter] = ["Node Type", "Index Cond", "Filter"].map(|key| text(node, key));
            let table = table(node, above);
            complaints
                .push(format!("{table} by {index}: {kind}, condition {condition:?}, filter {filter:?}"));
        }
        above.push(node);
        for child in node["Plans"].as_array().into_iter().flatten() {
            self.walk(child, size, above, complaints);
        }
        above.pop();
    }

    fn is_allowed(&self, scan: &Value, size: Size, above: &[&Value]) -> bool {
        let (table, index) = (table(scan, above), text(scan, "Index Name"));
        let [condition, filter] = ["Index Cond", "Filter"].map(|key| text(scan, key));
        // A look-up fixes the tenant and one more column; in a table with few rows of a tenant, one column.
        let fixed_min = if FEW.iter().any(|(few, _)| *few == table) { 1 } else { 2 };
        if SMALL.iter().any(|(small, _)| *small == table)
            || SHORT_INDEXES.contains(&index)
            || self.fixed(index, condition) >= fixed_min
        {
            return true;
        }
        match size {
            Size::Small => {
                let mut compared = conjuncts(condition).into_iter().chain(conjuncts(filter));
                !compared.any(|comparison| self.is_look_up(table, comparison))
            }
            Size::Large => !index.is_empty() && filter.is_empty() && is_page(scan, above),
        }
    }

    /// The number of the first columns of an index whose values a condition fixes.
    fn fixed(&self, index: &str, condition: &str) -> usize {
        let columns = self.columns.get(index).into_iter().flatten();
        columns.take_while(|column| condition.contains(&format!("({column} = "))).count()
    }

    /// Whether a comparison finds rows by a column for which the table has an index.
    fn is_look_up(&self, table: &str, comparison: &str) -> bool {
        let mut keys = self.keys.get(table).into_iter().flatten().filter(|column| *column != "tenant_id");
        keys.any(|column| comparison.starts_with(&format!("({column} = $")))
    }
}

fn text<'p>(node: &'p Value, key: &str) -> &'p str {
    node[key].as_str().unwrap_or_default()
}

fn is_scan(node: &Value) -> bool {
    ["Seq Scan", "Index Scan", "Index Only Scan", "Bitmap Index Scan"].contains(&text(node, "Node Type"))
}

/// The table of a scan. That of a bitmap stands above.
fn table<'p>(scan: &'p Value, above: &[&'p Value]) -> &'p str {
    let mut nodes = std::iter::once(scan).chain(above.iter().rev().copied());
    nodes.find_map(|node| node["Relation Name"].as_str()).unwrap_or_default()
}

/// Whether a `limit` ends a scan: no node between both reads all rows first.
fn is_page(scan: &Value, above: &[&Value]) -> bool {
    let mut child = scan;
    for node in above.iter().rev().copied() {
        match text(node, "Node Type") {
            "Limit" => return true,
            "Incremental Sort" | "LockRows" | "Result" | "Subquery Scan" | "Unique" => {}
            "Nested Loop" if std::ptr::eq(&node["Plans"][0], child) => {}
            _ => return false,
        }
        child = node;
    }
    false
}

/// The conditions that must all hold, as Postgres writes them.
fn conjuncts(condition: &str) -> Vec<&str> {
    let is_joined = condition.starts_with("((");
    let condition = if is_joined { &condition[1..condition.len() - 1] } else { condition };
    let (mut conjuncts, mut depth, mut start) = (vec![], 0, 0);
    for (at, character) in condition.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            ' ' if depth == 0 && condition[at..].starts_with(" OR ") => return vec![],
            ' ' if depth == 0 && condition[at..].starts_with(" AND ") => {
                conjuncts.push(&condition[start..at]);
                start = at + " AND ".len();
            }
            _ => {}
        }
    }
    conjuncts.push(&condition[start..]);
    conjuncts
}

#[test]
fn conditions_are_split_where_all_must_hold() {
    assert_eq!(conjuncts("(a = $1)"), ["(a = $1)"]);
    assert_eq!(conjuncts("((a = $1) AND ((b = $2) OR (c = $2)))"), ["(a = $1)", "((b = $2) OR (c = $2))"]);
    assert_eq!(conjuncts("((a = $1) OR (b = $1))"), Vec::<&str>::new());
}
