//! `flotilla tenant`: the tenants of a deployment and their limits; for operators.

use crate::{
    client::{Client, call},
    exit::Exit,
    stack::target::Connection,
    terminal::{
        out,
        paint::{Paint, one_line},
        table::{Side, Table},
    },
};
use anyhow::{Result, bail};
use chassis::secret::Secret;
use domain::limits;
use rpc::v1::{CreateTenantRequest, ListTenantsRequest, Page, Tenant, UpdateTenantRequest};
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
    pub(crate) fn open(&self, connection: &Connection) -> Result<Client> {
        Client::open_as_operator(connection, self.operator_key.as_ref())
    }
}

/// `flotilla tenant`.
#[derive(Debug, clap::Args)]
pub(crate) struct TenantArgs {
    #[command(flatten)]
    pub(crate) operator: OperatorArgs,
    /// One JSON object per line.
    #[arg(long, global = true)]
    json: bool,
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
    /// Change a tenant's limits.
    Set(LimitArgs),
}

/// `flotilla tenant set`.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("limit").required(true).multiple(true).args(["running_max", "weight"]))]
struct LimitArgs {
    /// Its name or its id.
    tenant: String,
    /// Maximum concurrent loops.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    running_max: Option<u32>,
    /// Its share of the slots while other tenants also have work.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    weight: Option<u32>,
}

pub(crate) async fn run(client: &Client, arguments: TenantArgs) -> Result<Exit> {
    let tenants = match arguments.command {
        TenantCommand::Create { name } => {
            let request = CreateTenantRequest { name };
            let create = async || client.tenants().create_tenant(request.clone()).await;
            call("create the tenant", create).await?.tenant.into_iter().collect()
        }
        TenantCommand::Ls => list(client).await?,
        TenantCommand::Show { tenant } => vec![get(client, &tenant).await?],
        TenantCommand::Set(LimitArgs { tenant, running_max, weight }) => {
            let tenant_id = get(client, &tenant).await?.id;
            let (running_max, weight) = (running_max.unwrap_or_default(), weight.unwrap_or_default());
            let request = UpdateTenantRequest { tenant_id, running_max, weight };
            let update = async || client.tenants().update_tenant(request.clone()).await;
            call("change the tenant", update).await?.tenant.into_iter().collect()
        }
    };
    print(&tenants, arguments.json)?;
    Ok(Exit::Done)
}

/// Returns the tenant with this name or id.
pub(crate) async fn get(client: &Client, named: &str) -> Result<Tenant> {
    let tenants = list(client).await?;
    let Some(tenant) = tenants.into_iter().find(|tenant| tenant.name == named || tenant.id == named) else {
        bail!("there is no tenant {named}; `flotilla tenant ls` lists them")
    };
    Ok(tenant)
}

async fn list(client: &Client) -> Result<Vec<Tenant>> {
    let (mut tenants, mut cursor) = (vec![], String::new());
    loop {
        let page = Some(Page { limit: limits::PAGE_MAX, cursor });
        let request = || ListTenantsRequest { page: page.clone() };
        let answer =
            call("list tenants", || async { client.tenants().list_tenants(request()).await }).await?;
        tenants.extend(answer.tenants);
        cursor = answer.next_cursor;
        if cursor.is_empty() {
            return Ok(tenants);
        }
    }
}

fn print(tenants: &[Tenant], is_json: bool) -> Result<()> {
    if is_json {
        return tenants.iter().try_for_each(|tenant| out::line(&to_json(tenant).to_string()));
    }
    out::write(&table(tenants, Paint::for_stdout()))
}

fn table(tenants: &[Tenant], paint: Paint) -> String {
    let heading = ["TENANT", "ID", "RUNNING MAX", "SHARE"];
    let mut table = Table::new(heading.map(|name| (name, Side::Left)));
    for tenant in tenants {
        let (running_max, weight) = (tenant.running_max.to_string(), tenant.weight.to_string());
        table.push([one_line(&tenant.name, NAME_CHARS), tenant.id.clone(), running_max, weight]);
    }
    table.text(paint)
}

fn to_json(tenant: &Tenant) -> Value {
    json!({
        "id": tenant.id, "name": tenant.name, "running_max": tenant.running_max, "weight": tenant.weight,
        "created_at_ms": tenant.created_at_ms,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;
    use crate::{Cli, Command, fake::Fake};
    use clap::Parser as _;

    fn parse(line: &str) -> Result<TenantArgs, clap::Error> {
        let words = ["flotilla", "tenant"].into_iter().chain(line.split(' '));
        let Command::Tenant(arguments) = Cli::try_parse_from(words)?.command else { panic!("tenant") };
        Ok(arguments)
    }

    #[tokio::test]
    async fn limits_reach_the_gateway() {
        for (line, want) in [
            ("ls", ""),
            ("show b", ""),
            ("create c", "create c"),
            ("set id-of-b --weight 3", "tenant id-of-b 0 3"),
            ("set a --running-max 7", "tenant id-of-a 7 0"),
        ] {
            let fake = Fake::default();
            assert_eq!(run(&fake.serve().await, parse(line).unwrap()).await.unwrap(), Exit::Done, "{line}");
            assert_eq!(fake.0.lock().unwrap().orders.join(","), want, "{line}");
        }
        let error = run(&Fake::default().serve().await, parse("show nobody").unwrap()).await.unwrap_err();
        assert_eq!(error.to_string(), "there is no tenant nobody; `flotilla tenant ls` lists them");
        for wrong in ["set a", "set a --weight 0", "set --weight 1"] {
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
            created_at_ms: 0,
        };
        assert_eq!(
            table(&[tenant], Paint::Plain),
            "TENANT  ID                                    RUNNING MAX  SHARE
dev     01a1fb3c-eb5f-7c1f-8a2f-7f6b0a4f8a11  20           1
",
        );
    }
}
