//! `flotilla tenant`: the tenants of a deployment and their limits; for operators.

use crate::{
    client::{Client, Paged, all_pages, call},
    exit::{Exit, coded},
    stack::target::Connection,
    terminal::{
        output::{ListText, Output},
        paint::{Paint, one_line},
        table::{Side, Table},
    },
};
use anyhow::Result;
use chassis::secret::Secret;
use rpc::v1::{
    CreateTenantRequest, DeleteTenantRequest, ErrorCode, ListTenantsRequest, Tenant, UpdateTenantRequest,
};
use serde_json::{Value, json};

/// Characters of a tenant's name in a table.
const NAME_CHARS: usize = 32;

/// The operator's key.
#[derive(Debug, clap::Args)]
pub(crate) struct OperatorArgs {
    /// The operator's key; default: that of the nearest stack.
    #[arg(long, env = "FLOTILLA_OPERATOR_KEY", hide_env_values = true, value_name = "KEY", global = true)]
    operator_key: Option<Secret<String>>,
}

impl OperatorArgs {
    /// Opens a client with the operator's key.
    pub(crate) fn open(&self, connection: &Connection, output: &Output) -> Result<Client> {
        Client::open_as_operator(connection, output, self.operator_key.as_ref())
    }
}

/// A client, and the tenant that a command is about.
pub(crate) struct TenantClient {
    pub(crate) client: Client,
    /// Empty: the tenant of the client's key.
    pub(crate) tenant_id: String,
}

/// Opens a client with the operator's key for the tenant that a person names by name or id, else one with the person's own key.
///
/// # Errors
/// `tenant_not_found`; there is no gateway or no key; the refusal of the gateway.
pub(crate) async fn open(
    connection: &Connection,
    output: &Output,
    operator: &OperatorArgs,
    named: Option<&str>,
) -> Result<TenantClient> {
    let Some(named) = named else {
        return Ok(TenantClient { client: Client::open(connection, output)?, tenant_id: String::new() });
    };
    let client = operator.open(connection, output)?;
    let tenant_id = get(&client, named).await?.id;
    Ok(TenantClient { client, tenant_id })
}

/// `flotilla tenant`.
#[derive(Debug, clap::Args)]
pub(crate) struct TenantArgs {
    #[command(flatten)]
    pub(crate) operator: OperatorArgs,
    #[command(subcommand)]
    command: TenantCommand,
}

#[derive(Debug, clap::Subcommand)]
enum TenantCommand {
    /// Create a tenant; `flotilla key create --tenant NAME …` then creates its first key.
    Create {
        /// Its name: letters, digits and dashes.
        name: String,
    },
    /// List the tenants and their limits.
    Ls,
    /// Show a tenant.
    Show {
        /// Its name or its id.
        tenant: String,
    },
    /// Change a tenant's limits, or for how long its sessions are kept.
    Set(LimitArgs),
    /// Delete a tenant with everything that belongs to it: sessions, files, projects, keys, costs. This cannot be undone.
    Delete {
        /// Its name or its id.
        tenant: String,
        /// Its name once more.
        #[arg(long, value_name = "NAME")]
        confirm: String,
    },
}

/// `flotilla tenant set`.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("limit").required(true).multiple(true).args(["running_max", "weight", "keep_idle_days", "keep_archived_days", "sessions_max", "projects_max", "stored_bytes_max"]))]
struct LimitArgs {
    /// Its name or its id.
    tenant: String,
    /// Maximum concurrent loops.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    running_max: Option<u32>,
    /// Its share of the slots while other tenants also have work.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    weight: Option<u32>,
    /// Days for which idle sessions are kept after their last change; 0: for ever.
    #[arg(long, value_name = "DAYS")]
    keep_idle_days: Option<u32>,
    /// Days for which sessions are kept after they were archived; 0: for ever.
    #[arg(long, value_name = "DAYS")]
    keep_archived_days: Option<u32>,
    /// Sessions that it may have, their subtasks included.
    #[arg(long, value_name = "N")]
    sessions_max: Option<u64>,
    /// Projects that it may have.
    #[arg(long, value_name = "N")]
    projects_max: Option<u64>,
    /// Bytes that it may store in logs and bundles.
    #[arg(long, value_name = "BYTES")]
    stored_bytes_max: Option<u64>,
}

pub(crate) async fn run(client: &Client, output: &Output, arguments: TenantArgs) -> Result<Exit> {
    let tenants = match arguments.command {
        TenantCommand::Create { name } => {
            let request = CreateTenantRequest { name };
            let create = async || client.tenants().create_tenant(request.clone()).await;
            call("create the tenant", create).await?.tenant.into_iter().collect()
        }
        TenantCommand::Ls => list(client).await?,
        TenantCommand::Show { tenant } => vec![get(client, &tenant).await?],
        TenantCommand::Delete { tenant, confirm } => {
            return delete(client, output, &tenant, confirm).await;
        }
        TenantCommand::Set(limits) => {
            let request = UpdateTenantRequest {
                tenant_id: get(client, &limits.tenant).await?.id,
                running_max: limits.running_max.unwrap_or_default(),
                weight: limits.weight.unwrap_or_default(),
                keep_idle_days: limits.keep_idle_days,
                keep_archived_days: limits.keep_archived_days,
                sessions_max: limits.sessions_max,
                projects_max: limits.projects_max,
                stored_bytes_max: limits.stored_bytes_max,
            };
            let update = async || client.tenants().update_tenant(request.clone()).await;
            call("change the tenant", update).await?.tenant.into_iter().collect()
        }
    };
    let none = "no tenants; `flotilla tenant create NAME` creates one";
    output.list(&tenants, &ListText { to_json, table: &table, none })?;
    Ok(Exit::Done)
}

/// Deletes a tenant. Its keys stop working at once; its data goes in the background.
async fn delete(client: &Client, output: &Output, named: &str, confirm: String) -> Result<Exit> {
    let Tenant { id, name, .. } = get(client, named).await?;
    let request = DeleteTenantRequest { tenant_id: id.clone(), name: confirm };
    call("delete the tenant", || async { client.tenants().delete_tenant(request.clone()).await }).await?;
    let text = format!("{name} is deleted; its data is removed in the background");
    output.result(&text, &json!({"type": "deletion", "id": id, "is_deleted": true}))?;
    Ok(Exit::Done)
}

/// Returns the tenant with this name or id.
pub(crate) async fn get(client: &Client, named: &str) -> Result<Tenant> {
    let tenants = list(client).await?;
    let Some(tenant) = tenants.into_iter().find(|tenant| tenant.name == named || tenant.id == named) else {
        let message = format!("there is no tenant {named}; `flotilla tenant ls` lists them");
        return Err(coded(ErrorCode::TenantNotFound, message));
    };
    Ok(tenant)
}

async fn list(client: &Client) -> Result<Vec<Tenant>> {
    all_pages(async |page| {
        let request = ListTenantsRequest { page: Some(page) };
        let list = async || client.tenants().list_tenants(request.clone()).await;
        let answer = call("list tenants", list).await?;
        Ok(Paged { entries: answer.tenants, next_cursor: answer.next_cursor })
    })
    .await
}

fn table(tenants: &[Tenant], paint: Paint) -> String {
    let heading = ["TENANT", "ID", "RUNNING", "SHARE", "KEPT"];
    let mut table = Table::new(heading.map(|name| (name, Side::Left)));
    for tenant in tenants {
        let (running_max, weight) = (tenant.running_max.to_string(), tenant.weight.to_string());
        table.push([
            one_line(&tenant.name, NAME_CHARS),
            tenant.id.clone(),
            running_max,
            weight,
            kept(tenant),
        ]);
    }
    table.text(paint)
}

/// For how many days idle and archived sessions are kept.
fn kept(tenant: &Tenant) -> String {
    let days = |days: Option<u32>| match days {
        None => "-".to_owned(),
        Some(0) => "ever".to_owned(),
        Some(days) => format!("{days}d"),
    };
    format!("{}/{}", days(tenant.keep_idle_days), days(tenant.keep_archived_days))
}

fn to_json(tenant: &Tenant) -> Value {
    json!({
        "type": "tenant", "id": tenant.id, "name": tenant.name, "running_max": tenant.running_max, "weight": tenant.weight,
        "keep_idle_days": tenant.keep_idle_days, "keep_archived_days": tenant.keep_archived_days,
        "sessions_max": tenant.sessions_max, "projects_max": tenant.projects_max, "stored_bytes_max": tenant.stored_bytes_max,
        "created_at_ms": tenant.created_at_ms,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::{
        arguments::{Cli, Command},
        tests::fake::Fake,
    };
    use clap::Parser as _;

    fn parse(line: &str) -> Result<TenantArgs, clap::Error> {
        let words = ["flotilla", "tenant"].into_iter().chain(line.split(' '));
        let Command::Tenants(arguments) = Cli::try_parse_from(words)?.command else { panic!("tenant") };
        Ok(arguments)
    }

    async fn run_on(fake: &Fake, line: &str) -> Result<Exit> {
        run(&fake.serve().await, &Output::kept(false), parse(line).unwrap()).await
    }

    #[tokio::test]
    async fn limits_reach_the_gateway() {
        for (line, want) in [
            ("ls", ""),
            ("show b", ""),
            ("create c", "create c"),
            ("set id-of-b --weight 3", "tenant id-of-b 0 3"),
            ("set a --running-max 7", "tenant id-of-a 7 0"),
            ("set a --keep-idle-days 90", "tenant id-of-a 0 0 idle 90"),
            ("set a --keep-archived-days 0", "tenant id-of-a 0 0 archived 0"),
            ("set a --sessions-max 5 --stored-bytes-max 0", "tenant id-of-a 0 0 quota Some(5) None Some(0)"),
            ("delete b --confirm b", "delete tenant id-of-b b"),
        ] {
            let fake = Fake::default();
            assert_eq!(run_on(&fake, line).await.unwrap(), Exit::Done, "{line}");
            assert_eq!(fake.0.lock().unwrap().orders.join(","), want, "{line}");
        }
        let error = run_on(&Fake::default(), "show elsewhere").await.unwrap_err();
        assert_eq!(error.to_string(), "there is no tenant elsewhere; `flotilla tenant ls` lists them");
        assert_eq!(crate::exit::code(&error), "tenant_not_found");
        for wrong in ["set a", "set a --weight 0", "set --weight 1", "delete a"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_tenant_is_one_line() {
        let tenant = Tenant {
            name: "dev".to_owned(),
            id: "01a1fb3c-eb5f-7c1f-8a2f-7f6b0a4f8a11".to_owned(),
            running_max: 20,
            weight: 1,
            keep_idle_days: Some(90),
            keep_archived_days: None,
            created_at_ms: 0,
            ..Tenant::default()
        };
        assert_eq!(
            table(&[tenant], Paint::Plain),
            "TENANT  ID                                    RUNNING  SHARE  KEPT
dev     01a1fb3c-eb5f-7c1f-8a2f-7f6b0a4f8a11  20       1      90d/-
",
        );
    }
}
