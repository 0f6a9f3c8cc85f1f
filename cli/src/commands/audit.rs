//! `flotilla audit`: who changed keys, settings, secrets, projects, budgets and tenants, who allowed what, and who deleted and pushed.

use super::tenant::{self, OperatorArgs, TenantClient};
use crate::{
    client::{Client, Paged, call},
    exit::Exit,
    stack::target::Connection,
    terminal::{
        output::{ListText, Output},
        paint::{Paint, one_line},
        show,
        table::{Side, Table},
    },
};
use anyhow::Result;
use domain::limits;
use rpc::v1::{AuditEntry, ListAuditRequest, Page};
use serde_json::{Value, json};

/// Characters of a name in a table.
const NAME_CHARS: usize = 24;
/// Characters of an object in a table.
const OBJECT_CHARS: usize = 70;

/// `flotilla audit`.
#[derive(Debug, clap::Args)]
pub(crate) struct AuditArgs {
    /// Show the lines of this tenant, by name or id; needs the operator's key. Default: your own tenant.
    #[arg(long, global = true, value_name = "TENANT", conflicts_with = "all_tenants")]
    tenant: Option<String>,
    /// Show the lines of the deployment and of all tenants; needs the operator's key.
    #[arg(long, global = true)]
    all_tenants: bool,
    #[command(flatten)]
    operator: OperatorArgs,
    #[command(subcommand)]
    command: AuditCommand,
}

#[derive(Debug, clap::Subcommand)]
enum AuditCommand {
    /// List the newest lines, the newest first.
    Ls {
        /// At most so many.
        #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=limits::PAGE_MAX as i64))]
        limit: u32,
    },
    /// Print all lines that are kept as JSON, one object a line, the newest first.
    Export,
}

pub(crate) async fn run(connection: &Connection, output: &Output, arguments: AuditArgs) -> Result<Exit> {
    let TenantClient { client, tenant_id } = match &arguments.tenant {
        None if arguments.all_tenants => {
            TenantClient { client: arguments.operator.open(connection, output)?, tenant_id: String::new() }
        }
        named => tenant::open(connection, output, &arguments.operator, named.as_deref()).await?,
    };
    match arguments.command {
        AuditCommand::Ls { limit } => {
            let page = Page { limit, cursor: String::new() };
            let entries = list(&client, &tenant_id, page).await?.entries;
            output.list(&entries, &ListText { to_json, table: &table, none: "no lines" })?;
        }
        AuditCommand::Export => {
            let mut cursor = String::new();
            loop {
                let page = list(&client, &tenant_id, Page { limit: limits::PAGE_MAX, cursor }).await?;
                for entry in &page.entries {
                    output.line(&to_json(entry).to_string())?;
                }
                cursor = page.next_cursor;
                if cursor.is_empty() {
                    break;
                }
            }
        }
    }
    Ok(Exit::Done)
}

async fn list(client: &Client, tenant_id: &str, page: Page) -> Result<Paged<AuditEntry>> {
    let request = ListAuditRequest { tenant_id: tenant_id.to_owned(), page: Some(page) };
    let answer = call("read the audit", async || client.audit().list_audit(request.clone()).await).await?;
    Ok(Paged { entries: answer.entries, next_cursor: answer.next_cursor })
}

fn table(entries: &[AuditEntry], paint: Paint) -> String {
    let now_ms = show::now_ms();
    let mut table = Table::new([
        ("AGE", Side::Right),
        ("ACTOR", Side::Left),
        ("ACTION", Side::Left),
        ("OBJECT", Side::Left),
    ]);
    for entry in entries {
        let age = show::age(now_ms.saturating_sub(entry.at_ms));
        let actor = one_line(&entry.actor, NAME_CHARS);
        table.push([age, actor, entry.action.clone(), one_line(&entry.object, OBJECT_CHARS)]);
    }
    table.text(paint)
}

fn to_json(entry: &AuditEntry) -> Value {
    let known = |text: &String| (!text.is_empty()).then(|| text.clone());
    json!({
        "type": "audit", "seq": entry.seq, "at_ms": entry.at_ms, "tenant_id": known(&entry.tenant_id), "actor": entry.actor,
        "actor_key": known(&entry.actor_key), "action": entry.action, "object": entry.object,
        "before_sha256": known(&entry.before_sha256), "after_sha256": known(&entry.after_sha256),
    })
}
