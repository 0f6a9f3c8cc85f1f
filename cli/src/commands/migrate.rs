//! `flotilla migrate`: brings a database up to date, before the services of a version start.

use crate::{
    exit::Exit,
    terminal::output::{self, Output},
};
use anyhow::{Context as _, Result, bail};
use chassis::secret::Secret;
use gateway::admin::{self, RolePasswords};
use serde_json::{Value, json};

pub(crate) const HELP: &str = "The first time, give both passwords: the roles flotilla_app and flotilla_system (gateways and workers) and \
flotilla_broker (the broker) then log in with them. Later the roles keep their passwords unless you give new ones. Everything can be repeated.";

/// `flotilla migrate`.
#[derive(Debug, clap::Args)]
pub(crate) struct MigrateArgs {
    /// Postgres, as a login that may create roles and owns the database.
    #[arg(long, env = "FLOTILLA_MIGRATOR_DATABASE_URL", hide_env_values = true, value_name = "URL")]
    database_url: Secret<String>,
    /// The password for flotilla_app and flotilla_system. A variable hides it from other users of the machine.
    #[arg(
        long,
        env = "FLOTILLA_SERVICES_PASSWORD",
        hide_env_values = true,
        value_name = "TEXT",
        requires = "broker_password"
    )]
    services_password: Option<Secret<String>>,
    /// The password for flotilla_broker; another one.
    #[arg(
        long,
        env = "FLOTILLA_BROKER_PASSWORD",
        hide_env_values = true,
        value_name = "TEXT",
        requires = "services_password"
    )]
    broker_password: Option<Secret<String>>,
    /// Only say whether the database fits this version; exit code 2 if it does not.
    #[arg(long)]
    check: bool,
}

pub(crate) async fn run(output: &Output, arguments: &MigrateArgs) -> Result<Exit> {
    let url = arguments.database_url.expose();
    if arguments.check {
        return check(output, url).await;
    }
    let passwords = match (&arguments.services_password, &arguments.broker_password) {
        (Some(services), Some(broker)) if services.expose().is_empty() || broker.expose().is_empty() => {
            bail!("a password is empty; leave both out to keep those that the roles have")
        }
        (Some(services), Some(broker)) if services == broker => {
            bail!(
                "the two passwords are equal; the broker needs another one, so that no service can log in as the broker"
            )
        }
        (Some(services), Some(broker)) => {
            Some(RolePasswords { services: services.expose(), broker: broker.expose() })
        }
        (_, _) => None,
    };
    let migrated = admin::migrate(url, passwords).await.context("migrate the database")?;
    let text = match migrated.from {
        Some(from) if from == migrated.to && passwords.is_some() => {
            format!("the schema has version {from}; the passwords are set")
        }
        Some(from) if from == migrated.to => {
            format!("the schema has version {from}; there was nothing to do")
        }
        Some(from) => format!("the schema has version {}; it was {from}", migrated.to),
        None => format!("the schema is created, with version {}", migrated.to),
    };
    output.result(&text, &migration_json(migrated.from, migrated.to))?;
    if !migrated.without_login.is_empty() {
        output::note(&format!(
            "no service can log in as {} yet; run this again with --services-password and --broker-password",
            migrated.without_login.join(", ")
        ));
    }
    Ok(Exit::Done)
}

async fn check(output: &Output, url: &str) -> Result<Exit> {
    let problem = admin::find_schema_problem(url).await.context("read the version of the database")?;
    let object = schema_json(problem.as_deref());
    output.result(problem.as_deref().unwrap_or("the schema fits this version"), &object)?;
    Ok(if problem.is_none() { Exit::Done } else { Exit::Failed })
}

/// A migration as `--json` shows it. `from`: the version before; `None`: there was no schema.
pub(crate) fn migration_json(from: Option<i64>, to: i64) -> Value {
    json!({"type": "migration", "from": from, "to": to})
}

/// Whether the schema fits, as `--json` shows it. `problem`: why it does not.
pub(crate) fn schema_json(problem: Option<&str>) -> Value {
    json!({"type": "schema", "fits": problem.is_none(), "problem": problem})
}
