//! Tickets: a page that cannot send its key with a WebSocket gets a ticket for one connection. A ticket is in Redis for a minute;
//! redeeming it deletes it.

use super::host::TerminalHost;
use crate::{
    app::ground::gateway::Gateway,
    auth::{key::random_text, principal::Principal},
    ground::{error::Error, scope::Scope},
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
}

/// Issues a ticket for a terminal and the directory that the client names.
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
    let grant = Grant { tenant, pty: terminal.to_string(), directory: directory.to_owned() };
    let ticket = random_text();
    let stored = gateway.state.bus.put_ticket(&ticket, &json!(grant).to_string()).await;
    stored.map_err(|error| unavailable(&error))?;
    Ok(ticket)
}

/// Redeems a ticket for the terminal and the directory that it was issued for.
///
/// # Errors
/// `pty_forbidden`, `tickets_unavailable`; those of [`TerminalHost::of_terminal`].
pub(crate) async fn redeem(
    gateway: &Gateway,
    ticket: &str,
    terminal: &str,
    directory: &str,
) -> Result<(TerminalHost, PtyId), Error> {
    let grant = gateway.state.bus.take_ticket(ticket).await.map_err(|error| unavailable(&error))?;
    let grant = grant.and_then(|grant| serde_json::from_str::<Grant>(&grant).ok());
    let grant = grant.filter(|grant| grant.pty == terminal && grant.directory == directory);
    let message = "the ticket is unknown, already used, expired, or for another terminal";
    let grant = grant.ok_or(Error::TerminalForbidden(message))?;
    TerminalHost::find(&gateway.state, grant.tenant, terminal).await
}

fn unavailable(failure: &bus::error::Error) -> Error {
    tracing::warn!(error = failure as &dyn std::error::Error, "cannot reach Redis for a ticket");
    Error::TicketsUnavailable
}
