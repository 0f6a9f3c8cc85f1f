//! `flotilla github`: the App of a deployment at GitHub, the installations of tenants, and what GitHub has told.

use super::tenant::{self, OperatorArgs};
use crate::{
    client::{Client, Paged, call},
    exit::Exit,
    input,
    stack::target::Connection,
    terminal::{
        output::{ListText, Output},
        paint::{Paint, one_line},
        show,
        table::{Side, Table},
    },
};
use anyhow::{Context as _, Result};
use chassis::secret::SecretBytes;
use domain::{limits, limits::SECRET_BYTES_MAX};
use rpc::v1::{
    BindInstallationRequest, GetGithubRequest, GetGithubResponse, GithubApp, GithubDelivery,
    GithubInstallation, ListDeliveriesRequest, Page, ReplayDeliveryRequest, SetupGithubRequest,
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Characters of a note in a table.
const NOTE_CHARS: usize = 60;
/// Characters of the id of a delivery and of the name of an event in a table.
const NAME_CHARS: usize = 40;

/// `flotilla github`.
#[derive(Debug, clap::Args)]
pub(crate) struct GithubArgs {
    #[command(flatten)]
    operator: OperatorArgs,
    #[command(subcommand)]
    command: GithubCommand,
}

#[derive(Debug, clap::Subcommand)]
enum GithubCommand {
    /// Make the App of this deployment known: its number, its key and the secret of its webhook; for operators.
    Setup(SetupArgs),
    /// Give an installation of the App to a tenant, whose sessions may then read and push the repositories; for operators.
    Bind {
        /// Its number: the last part of the address of its page at GitHub.
        installation: u64,
        /// The tenant, by name or id.
        #[arg(long, value_name = "TENANT")]
        tenant: String,
    },
    /// Show the App and the installations of your tenant.
    Status,
    /// List what GitHub has told in the last two weeks, the newest first; for operators.
    Deliveries {
        /// At most so many.
        #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=limits::PAGE_MAX as i64))]
        limit: u32,
    },
    /// Have a delivery processed again; for operators.
    Replay {
        /// Its id; `flotilla github deliveries` shows them.
        delivery: String,
    },
}

/// `flotilla github setup`.
#[derive(Debug, clap::Args)]
struct SetupArgs {
    /// The number of the App, which its page at GitHub shows.
    #[arg(long, value_name = "NUMBER")]
    app_id: u64,
    /// The file with its private key, as GitHub made it.
    #[arg(long, value_name = "FILE")]
    private_key: PathBuf,
    /// The file with the secret of its webhook.
    #[arg(long, value_name = "FILE")]
    webhook_secret: PathBuf,
    /// The address of a GitHub Enterprise Server, such as https://ghe.acme.dev. Default: https://github.com.
    #[arg(long, value_name = "URL")]
    server: Option<String>,
}

pub(crate) async fn run(connection: &Connection, output: &Output, arguments: GithubArgs) -> Result<Exit> {
    let operator = || arguments.operator.open(connection, output);
    match arguments.command {
        GithubCommand::Setup(ref setup) => set_up(&operator()?, output, setup).await?,
        GithubCommand::Bind { installation, ref tenant } => {
            bind(&operator()?, output, installation, tenant).await?
        }
        GithubCommand::Status => {
            let client = Client::open(connection, output)?;
            let status =
                call("read the App", async || client.github().get_github(GetGithubRequest {}).await).await?;
            output.result(&status_text(&status), &status_json(&status))?;
        }
        GithubCommand::Deliveries { limit } => {
            let deliveries = list(&operator()?, limit).await?.entries;
            let text = ListText { to_json: delivery_json, table: &table, none: "GitHub has told nothing" };
            output.list(&deliveries, &text)?;
        }
        GithubCommand::Replay { ref delivery } => {
            let client = operator()?;
            let request = ReplayDeliveryRequest { guid: delivery.clone() };
            let replay = async || client.github().replay_delivery(request.clone()).await;
            call("have the delivery processed again", replay).await?;
            output.result(&format!("{delivery} is processed again"), &replay_json(delivery))?;
        }
    }
    Ok(Exit::Done)
}

async fn set_up(client: &Client, output: &Output, arguments: &SetupArgs) -> Result<()> {
    let SetupArgs { app_id, private_key, webhook_secret, server } = arguments;
    let (private_key, webhook_secret) = (read(private_key)?, read(webhook_secret)?);
    let web_url = server.as_deref().unwrap_or_default().trim_end_matches('/').to_owned();
    let api_url = if web_url.is_empty() { String::new() } else { format!("{web_url}/api/v3") };
    let request = SetupGithubRequest {
        app_id: *app_id,
        api_url,
        web_url,
        private_key: private_key.expose().to_vec(),
        webhook_secret: webhook_secret.expose().to_vec(),
    };
    let set_up = async || client.github().setup_github(request.clone()).await;
    let app = call("set up the App", set_up).await?.app.unwrap_or_default();
    let text = format!("the App {} ({}) at {} is set up", app.slug, app.app_id, app.web_url);
    output.result(&text, &app_json(&app))?;
    output.note(
        "next: install it at GitHub, and give its installation to a tenant with `flotilla github bind`",
    );
    Ok(())
}

fn read(file: &Path) -> Result<SecretBytes> {
    let bytes = input::read(file, SECRET_BYTES_MAX).with_context(|| format!("read {}", file.display()))?;
    Ok(SecretBytes::of(bytes))
}

async fn bind(client: &Client, output: &Output, installation_id: u64, named: &str) -> Result<()> {
    let tenant_id = tenant::get(client, named).await?.id;
    let request = BindInstallationRequest { installation_id, tenant_id };
    let bind = async || client.github().bind_installation(request.clone()).await;
    let bound = call("bind the installation", bind).await?;
    let installation = bound.installation.unwrap_or_default();
    let text = format!("the installation {} of {} belongs to {named}", installation.id, installation.account);
    output.result(&text, &installation_json(&installation))?;
    if !bound.missing_settings.is_empty() {
        output.note(&format!(
            "the settings of the tenant have comments, so only a person can change them; add to them: {}",
            bound.missing_settings
        ));
    }
    Ok(())
}

async fn list(client: &Client, limit: u32) -> Result<Paged<GithubDelivery>> {
    let request = ListDeliveriesRequest { page: Some(Page { limit, cursor: String::new() }) };
    let list = async || client.github().list_deliveries(request.clone()).await;
    let answer = call("list the deliveries", list).await?;
    Ok(Paged { entries: answer.deliveries, next_cursor: answer.next_cursor })
}

fn table(deliveries: &[GithubDelivery], paint: Paint) -> String {
    let now_ms = show::now_ms();
    let mut table = Table::new([
        ("AGE", Side::Right),
        ("ID", Side::Left),
        ("EVENT", Side::Left),
        ("STATE", Side::Left),
        ("NOTE", Side::Left),
    ]);
    for delivery in deliveries {
        table.push([
            show::age(now_ms.saturating_sub(delivery.received_at_ms)),
            one_line(&delivery.guid, NAME_CHARS),
            one_line(&delivery.event, NAME_CHARS),
            delivery.state.clone(),
            one_line(&delivery.note, NOTE_CHARS),
        ]);
    }
    table.text(paint)
}

fn status_text(status: &GetGithubResponse) -> String {
    let Some(app) = &status.app else {
        return "this deployment has no App at GitHub; its operator makes one known with `flotilla github setup`".to_owned();
    };
    let mut lines = vec![format!("the App {} ({}) at {}", app.slug, app.app_id, app.web_url)];
    for GithubInstallation { id, account, .. } in &status.installations {
        lines.push(format!("the installation {id} of {account}"));
    }
    if status.installations.is_empty() {
        lines.push(
            "no installation belongs to this tenant; its operator gives it one with `flotilla github bind`"
                .to_owned(),
        );
    }
    lines.join("\n")
}

pub(crate) fn status_json(status: &GetGithubResponse) -> Value {
    let installations: Vec<_> = status.installations.iter().map(installation_json).collect();
    json!({"type": "github", "app": status.app.as_ref().map(app_json), "installations": installations})
}

pub(crate) fn app_json(app: &GithubApp) -> Value {
    json!({
        "type": "github_app", "app_id": app.app_id, "slug": app.slug, "api_url": app.api_url, "web_url": app.web_url,
    })
}

pub(crate) fn installation_json(installation: &GithubInstallation) -> Value {
    json!({
        "type": "github_installation", "id": installation.id, "account": installation.account,
        "bound_at_ms": installation.bound_at_ms, "bound_by": installation.bound_by,
    })
}

pub(crate) fn replay_json(guid: &str) -> Value {
    json!({"type": "github_replay", "guid": guid, "is_new": true})
}

pub(crate) fn delivery_json(delivery: &GithubDelivery) -> Value {
    let installation = (delivery.installation_id != 0).then_some(delivery.installation_id);
    json!({
        "type": "github_delivery", "guid": delivery.guid, "event": delivery.event, "installation_id": installation,
        "received_at_ms": delivery.received_at_ms, "state": delivery.state, "note": delivery.note,
        "attempts": delivery.attempts,
    })
}
