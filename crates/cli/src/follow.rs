//! Reads a session's stream to an end, across lost connections, without gap or duplicate.

use crate::{
    client::{self, Client},
    item::{Event, Item},
};
use anyhow::{Context as _, Result, bail};
use domain::limits;
use rpc::v1::SubscribeRequest;
use tonic::{Code, Status};

/// When to stop reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// At the first end of a turn, or question to a human, whose event is at this position or later.
    IdleAfter(u64),
    /// When everything up to this position was seen.
    Seen(u64),
}

/// Why the reading stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// A turn ended with this outcome: "done", "failed", "aborted", "needs_human", "budget".
    Idle(String),
    /// Everything asked for was seen.
    Seen,
}

/// Reads the stream of `session_id` from its beginning and gives every item to `sink`.
///
/// After a loss it goes on behind the last event, so `sink` sees each event once.
///
/// # Errors
/// The server's refusal, an error of `sink`, or the loss of the connection for about two minutes.
///
/// Dropped midway: nothing happened but reading.
pub(crate) async fn follow(
    client: &Client,
    session_id: &str,
    until: Until,
    mut sink: impl FnMut(&Item) -> Result<()>,
) -> Result<End> {
    if until == Until::Seen(0) {
        return Ok(End::Seen);
    }
    let mut cursor = String::new();
    let mut losses = 0;
    let mut seen = 0;
    loop {
        let lost = match read(client, request(session_id, &cursor, until)).await {
            Ok(mut stream) => loop {
                let response = match stream.message().await {
                    Ok(Some(response)) => response,
                    Ok(None) => break None,
                    Err(status) => break Some(status),
                };
                losses = 0;
                if !response.cursor.is_empty() {
                    cursor.clone_from(&response.cursor);
                }
                let Some(item) = Item::from_response(response)? else { continue };
                if let Item::Event(event) = &item {
                    if event.seq <= seen {
                        continue;
                    }
                    seen = event.seq;
                }
                sink(&item)?;
                if let Item::Event(event) = &item
                    && let Some(end) = ends(event, until)
                {
                    return Ok(end);
                }
            },
            Err(status) => Some(status),
        };
        if let Some(status) = lost
            && !is_passing(&status)
        {
            return Err(status).context("follow the session");
        }
        losses += 1;
        if losses > limits::CLI_RECONNECTS_MAX {
            bail!(
                "the connection was lost {losses} times in a row; the session goes on without this command"
            );
        }
        sink(&Item::Reconnecting(losses))?;
        tokio::time::sleep(client::backoff(losses - 1)).await;
    }
}

fn request(session_id: &str, cursor: &str, until: Until) -> SubscribeRequest {
    let (until_idle, idle_after_seq) = match until {
        Until::IdleAfter(seq) => (true, seq),
        Until::Seen(_) => (false, 0),
    };
    let (session_id, cursor) = (session_id.to_owned(), cursor.to_owned());
    SubscribeRequest { session_id, cursor, tail_only: false, until_idle, idle_after_seq }
}

async fn read(
    client: &Client,
    request: SubscribeRequest,
) -> Result<tonic::Streaming<rpc::v1::SubscribeResponse>, Status> {
    Ok(client.events().subscribe(request).await?.into_inner())
}

fn ends(event: &Event, until: Until) -> Option<End> {
    match until {
        Until::IdleAfter(seq) if event.kind == "session.idle" && event.seq >= seq => {
            Some(End::Idle(event.properties["outcome"].as_str().unwrap_or_default().to_owned()))
        }
        // The loop is parked until somebody answers; nothing more comes from here.
        Until::IdleAfter(seq)
            if matches!(event.kind.as_str(), "permission.asked" | "question.asked") && event.seq >= seq =>
        {
            Some(End::Idle("needs_human".to_owned()))
        }
        Until::Seen(seq) if event.seq >= seq => Some(End::Seen),
        Until::IdleAfter(_) | Until::Seen(_) => None,
    }
}

/// Whether the stream may be resumed: the connection broke, the gateway drains, or we read too slowly.
fn is_passing(status: &Status) -> bool {
    match status.code() {
        Code::Unavailable
        | Code::ResourceExhausted
        | Code::Aborted
        | Code::Cancelled
        | Code::DeadlineExceeded => true,
        // What tonic makes of a broken HTTP/2 stream; the server's own errors carry a code of ours.
        Code::Unknown | Code::Internal => rpc::status::code_of(status).is_none(),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
