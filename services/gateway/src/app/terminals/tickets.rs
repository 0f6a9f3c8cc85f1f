//! Tickets: a page that cannot send its key with a WebSocket gets a ticket for one connection. A ticket is in Redis for a minute;
//! redeeming it deletes it.

use super::host::TerminalHost;
use crate::{
    app::gateway::Gateway,
    auth::{key::random_text, live_keys::KeySha256, principal::Principal},
    errors::error::Error,
    scope::Scope,
};
use domain::ids::{TenantId, pty::PtyId};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The claim of a ticket: `{"tenant":"…","pty":"pty_…","directory":"/home/me/project"}`.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Grant {
    tenant: TenantId,
    pty: String,
    directory: String,
    /// The key of the client; `None` for the operator's, and from a gateway of an older version.
    #[serde(default)]
    key: Option<KeySha256>,
}

/// What a ticket lets its holder reach.
pub(crate) struct Redemption {
    pub(crate) host: TerminalHost,
    pub(crate) terminal: PtyId,
    /// The key for which the ticket was issued.
    pub(crate) key: Option<KeySha256>,
}

/// Issues a ticket for a terminal and the directory that the client names; an empty one: none.
///
/// # Errors
/// `tickets_unavailable`.
pub(crate) async fn issue(
    gateway: &Gateway,
    principal: &Principal,
    terminal: &PtyId,
    directory: &str,
) -> Result<String, Error> {
    let tenant = principal.tenant(Scope::Write)?;
    let (pty, directory) = (terminal.to_string(), directory.to_owned());
    let grant = Grant { tenant, pty, directory, key: principal.key() };
    let ticket = random_text();
    let stored = gateway.state.bus.put_ticket(&ticket, &json!(grant).to_string()).await;
    stored.map_err(|error| unavailable(&error))?;
    Ok(ticket)
}

/// Redeems a ticket for the terminal and the directory that it was issued for.
///
/// # Errors
/// `pty_forbidden`, `tickets_unavailable`, `store_unavailable`; those of [`TerminalHost::of_terminal`].
pub(crate) async fn redeem(
    gateway: &Gateway,
    ticket: &str,
    terminal: &str,
    directory: &str,
) -> Result<Redemption, Error> {
    let grant = gateway.state.bus.take_ticket(ticket).await.map_err(|error| unavailable(&error))?;
    let grant = grant.and_then(|grant| serde_json::from_str::<Grant>(&grant).ok());
    let grant = grant.filter(|grant| grant.pty == terminal && grant.directory == directory);
    let message = "the ticket is unknown, already used, expired, or for another terminal";
    let grant = grant.ok_or(Error::TerminalForbidden(message))?;
    if let Some(key) = grant.key
        && gateway.state.store.list_valid_keys(&[key]).await?.is_empty()
    {
        return Err(Error::TerminalForbidden("the key that got the ticket is revoked"));
    }
    let (host, terminal) = TerminalHost::find(&gateway.state, grant.tenant, terminal).await?;
    Ok(Redemption { host, terminal, key: grant.key })
}

fn unavailable(failure: &bus::error::Error) -> Error {
    tracing::warn!(error = failure as &dyn std::error::Error, "cannot reach Redis for a ticket");
    Error::TicketsUnavailable
}
