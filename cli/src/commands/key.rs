//! `flotilla key`: the API keys of a tenant.

use super::tenant::{self, TenantClient};
use crate::{
    client::{Client, Paged, all_pages, call},
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
use rpc::v1::{CreateKeyRequest, CreateKeyResponse, Key, KeyRole, ListKeysRequest, RevokeKeyRequest};
use serde_json::{Value, json};

/// Characters of a key's name in the table.
const NAME_CHARS: usize = 40;

/// `flotilla key`.
#[derive(Debug, clap::Args)]
pub(crate) struct KeyArgs {
    /// The keys of this tenant, by name or id, with the operator's key; default: of your own tenant.
    #[arg(long, global = true, value_name = "TENANT")]
    tenant: Option<String>,
    #[command(flatten)]
    operator: tenant::OperatorArgs,
    #[command(subcommand)]
    command: KeyCommand,
}

#[derive(Debug, clap::Subcommand)]
enum KeyCommand {
    /// Create a key and print its secret, which nothing shows again.
    Create {
        /// A name that says who or what uses it.
        name: String,
        /// What it may do: an admin manages keys, secrets and settings, a member works in sessions and projects, a viewer only reads.
        #[arg(long, value_enum)]
        role: Role,
    },
    /// List the keys by name.
    Ls {
        /// Revoked keys too.
        #[arg(long)]
        all: bool,
    },
    /// Revoke a key. Every gateway refuses it within two seconds.
    Revoke {
        /// The first part of the key, as `flotilla key ls` shows it.
        prefix: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Role {
    Admin,
    Member,
    Viewer,
}

impl Role {
    fn to_wire(self) -> KeyRole {
        match self {
            Self::Admin => KeyRole::Admin,
            Self::Member => KeyRole::Member,
            Self::Viewer => KeyRole::Viewer,
        }
    }
}

/// The name of a key's role.
fn role_word(key: &Key) -> &'static str {
    match key.role() {
        KeyRole::Unspecified | KeyRole::Admin => "admin",
        KeyRole::Member => "member",
        KeyRole::Viewer => "viewer",
    }
}

pub(crate) async fn run(connection: &Connection, output: &Output, arguments: KeyArgs) -> Result<Exit> {
    let owner = tenant::open(connection, output, &arguments.operator, arguments.tenant.as_deref()).await?;
    match arguments.command {
        KeyCommand::Create { name, role } => create(&owner, output, name, role).await?,
        KeyCommand::Ls { all } => {
            let keys = list(&owner).await?.into_iter().filter(|key| all || key.revoked_at_ms == 0);
            let mut keys: Vec<_> = keys.collect();
            keys.sort_by(|one, other| {
                (&one.name, one.created_at_ms).cmp(&(&other.name, other.created_at_ms))
            });
            let none = "no keys; `flotilla key create NAME --role ROLE` creates one";
            output.list(&keys, &ListText { to_json, table: &table, none })?;
        }
        KeyCommand::Revoke { prefix } => {
            let request = RevokeKeyRequest { tenant_id: owner.tenant_id.clone(), prefix: prefix.clone() };
            let revoke = async || owner.client.tenants().revoke_key(request.clone()).await;
            call("revoke the key", revoke).await?;
            let object = json!({"type": "key_revocation", "prefix": prefix, "is_revoked": true});
            output.result(&format!("{prefix} is revoked"), &object)?;
        }
    }
    Ok(Exit::Done)
}

/// Creates a key, and shows its secret.
async fn create(owner: &TenantClient, output: &Output, name: String, role: Role) -> Result<()> {
    let role = role.to_wire().into();
    let request = CreateKeyRequest { tenant_id: owner.tenant_id.clone(), name, role };
    let answer = issue(&owner.client, request).await?;
    let key = answer.key.unwrap_or_default();
    if output.is_json() {
        let mut object = to_json(&key);
        object["secret"] = answer.secret.into();
        return output.json(&object);
    }
    output.note(&format!("{} is created; keep the secret, it is shown only now:", key.prefix));
    output.line(&answer.secret)
}

/// Creates a key. The call is made once: a repetition would create another key.
///
/// # Errors
/// The refusal of the gateway. If the answer is lost, there may be a key that nobody knows.
pub(crate) async fn issue(client: &Client, request: CreateKeyRequest) -> Result<CreateKeyResponse> {
    Ok(client.tenants().create_key(request).await?.into_inner())
}

async fn list(owner: &TenantClient) -> Result<Vec<Key>> {
    all_pages(async |page| {
        let request = ListKeysRequest { tenant_id: owner.tenant_id.clone(), page: Some(page) };
        let list = async || owner.client.tenants().list_keys(request.clone()).await;
        let answer = call("list the keys", list).await?;
        Ok(Paged { entries: answer.keys, next_cursor: answer.next_cursor })
    })
    .await
}

fn table(keys: &[Key], paint: Paint) -> String {
    let now_ms = show::now_ms();
    let mut table = Table::new([
        ("KEY", Side::Left),
        ("CREATED", Side::Right),
        ("STATE", Side::Left),
        ("ROLE", Side::Left),
        ("NAME", Side::Left),
    ]);
    for key in keys {
        let state = if key.revoked_at_ms == 0 { "valid" } else { "revoked" };
        let age = show::age(now_ms.saturating_sub(key.created_at_ms));
        let role = role_word(key).to_owned();
        table.push([key.prefix.clone(), age, state.to_owned(), role, one_line(&key.name, NAME_CHARS)]);
    }
    table.text(paint)
}

fn to_json(key: &Key) -> Value {
    let revoked_at_ms = (key.revoked_at_ms != 0).then_some(key.revoked_at_ms);
    json!({
        "type": "key", "prefix": key.prefix, "name": key.name, "created_at_ms": key.created_at_ms,
        "revoked_at_ms": revoked_at_ms, "role": role_word(key),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::tests::fake::Fake;

    #[tokio::test]
    async fn keys_are_created_listed_and_revoked() {
        let fake = Fake::default();
        let owner = TenantClient { client: fake.serve().await, tenant_id: "id-of-a".to_owned() };
        create(&owner, &Output::kept(false), "ci".to_owned(), Role::Member).await.unwrap();
        let names: Vec<_> = list(&owner).await.unwrap().into_iter().map(|key| key.name).collect();
        assert_eq!(names, ["more of id-of-a", " of id-of-a"]);
        assert_eq!(fake.0.lock().unwrap().orders, ["create member key ci of id-of-a"]);
    }
}
