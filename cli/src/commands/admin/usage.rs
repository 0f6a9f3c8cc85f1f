//! What tenants store, as a table and as JSON.

use crate::{
    client::{Client, Paged, all_pages, call},
    terminal::{
        paint::{Paint, one_line},
        show::size,
        table::{Side, Table},
    },
};
use anyhow::Result;
use domain::policy::quota::{Level, QUOTA_WARNING_PERCENT, Resource};
use rpc::v1::{ListUsageRequest, Usage};
use serde_json::{Value, json};

/// Characters of a tenant's name in a table.
const TENANT_CHARS: usize = 24;

/// Reads what a tenant stores; an empty id: all tenants.
pub(super) async fn read(client: &Client, tenant_id: &str) -> Result<Vec<Usage>> {
    all_pages(async |page| {
        let request = ListUsageRequest { tenant_id: tenant_id.to_owned(), page: Some(page) };
        let list = async || client.tenants().list_usage(request.clone()).await;
        let answer = call("list what tenants store", list).await?;
        Ok(Paged { entries: answer.usages, next_cursor: answer.next_cursor })
    })
    .await
}

pub(super) fn table(usages: &[Usage], paint: Paint) -> String {
    let mut table = Table::new([
        ("TENANT", Side::Left),
        ("SESSIONS", Side::Right),
        ("PROJECTS", Side::Right),
        ("STORED", Side::Right),
        ("NOTE", Side::Left),
    ]);
    for usage in usages {
        let note = match levels(usage).into_iter().map(Level::percent).max().unwrap_or_default() {
            100.. => "full",
            QUOTA_WARNING_PERCENT.. => "nearly full",
            _ => "",
        };
        table.push([
            one_line(&usage.tenant_name, TENANT_CHARS),
            format!("{}/{}", usage.sessions, usage.sessions_max),
            format!("{}/{}", usage.projects, usage.projects_max),
            format!("{}/{}", size(usage.stored_bytes), size(usage.stored_bytes_max)),
            note.to_owned(),
        ]);
    }
    table.text(paint)
}

fn levels(usage: &Usage) -> [Level; 3] {
    [
        Level { resource: Resource::Sessions, used: usage.sessions, limit: usage.sessions_max },
        Level { resource: Resource::Projects, used: usage.projects, limit: usage.projects_max },
        Level { resource: Resource::StoredBytes, used: usage.stored_bytes, limit: usage.stored_bytes_max },
    ]
}

pub(super) fn to_json(usage: &Usage) -> Value {
    json!({
        "type": "usage", "tenant_id": usage.tenant_id, "tenant": usage.tenant_name, "sessions": usage.sessions, "sessions_max": usage.sessions_max,
        "projects": usage.projects, "projects_max": usage.projects_max, "stored_bytes": usage.stored_bytes,
        "stored_bytes_max": usage.stored_bytes_max,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_says_who_is_nearly_full() {
        let usage = |tenant_name: &str, sessions| Usage {
            tenant_name: tenant_name.to_owned(),
            sessions,
            sessions_max: 10,
            projects_max: 5,
            stored_bytes: 3 << 20,
            stored_bytes_max: 1 << 40,
            ..Usage::default()
        };
        let text = table(&[usage("a", 7), usage("b", 8), usage("c", 10)], Paint::Plain);
        let want = "TENANT  SESSIONS  PROJECTS       STORED  NOTE
a           7/10       0/5  3 MiB/1 TiB
b           8/10       0/5  3 MiB/1 TiB  nearly full
c          10/10       0/5  3 MiB/1 TiB  full
";
        assert_eq!(text, want);
    }
}
