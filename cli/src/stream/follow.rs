//! Reads a session's stream to an end, across lost connections, without gaps or duplicates.

use crate::{
    client::{self, Client, call},
    exit::CodedError,
    stream::item::{Event, Item, Reconnect},
};
use anyhow::{Context as _, Result};
use rpc::v1::{SubscribeRequest, SubscribeResponse};
use tonic::{Code, Response, Status};

/// Consecutive reconnects of the command line without a response: about two minutes, enough for a slow roll-out. Then the command fails,
/// and the session continues.
const CLI_RECONNECTS_MAX: u32 = 30;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// At the first end of a turn, or wait for a person, whose event is at this position or later.
    IdleAfter(u64),
    /// When everything up to this position has been read.
    Seen(u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// A turn ended with this outcome: "done", "failed", "aborted", "needs_human", "budget". A loop that is parked until
    /// a person answers, or quarantined, counts as "needs_human".
    Idle(String),
    /// Everything requested has been read.
    Seen,
}

/// A position in a session's stream.
pub(crate) struct Reading<'a> {
    client: &'a Client,
    session_id: &'a str,
    /// The cursor for resuming after a lost connection; empty: from the beginning.
    cursor: String,
    /// Position of the last event that was read.
    seen: u64,
    stream: Option<Stream>,
}

type Stream = tonic::Streaming<SubscribeResponse>;

impl<'a> Reading<'a> {
    /// Returns the beginning of a session.
    pub(crate) fn of_all(client: &'a Client, session_id: &'a str) -> Self {
        Self { client, session_id, cursor: String::new(), seen: 0, stream: None }
    }

    /// Subscribes to the events of a session from now on.
    ///
    /// # Errors
    /// The server's refusal.
    pub(crate) async fn of_what_comes(client: &'a Client, session_id: &'a str) -> Result<Self> {
        let request = SubscribeRequest {
            session_id: session_id.to_owned(),
            tail_only: true,
            ..SubscribeRequest::default()
        };
        let stream = call("follow the session", || subscribe(client, request.clone())).await?;
        Ok(Self { stream: Some(stream), ..Self::of_all(client, session_id) })
    }

    pub(crate) fn session_id(&self) -> &'a str {
        self.session_id
    }

    /// Everything that comes after what was read.
    pub(crate) fn next_end(&self) -> Until {
        Until::IdleAfter(self.seen + 1)
    }

    /// Skips everything before the position `first`, if the connection is lost before an event arrives.
    pub(crate) fn not_before(mut self, first: u64) -> Self {
        self.seen = first.saturating_sub(1);
        self
    }

    /// Reads to the end and passes every item to `sink`. Another call goes on behind the last event.
    ///
    /// After a lost connection it resumes behind the last event, so `sink` sees each event once.
    ///
    /// # Errors
    /// The server's refusal, an error of `sink`, or the loss of the connection for about two minutes.
    ///
    /// Dropped midway: no effect, because it only reads.
    pub(crate) async fn follow(
        &mut self,
        until: Until,
        mut sink: impl FnMut(&Item) -> Result<()>,
    ) -> Result<StreamEnd> {
        if until == Until::Seen(0) {
            return Ok(StreamEnd::Seen);
        }
        let mut losses = 0;
        loop {
            let stream = match self.stream.take() {
                Some(stream) => Ok(stream),
                None => subscribe(self.client, self.request(until)).await.map(Response::into_inner),
            };
            let lost = match stream {
                Ok(mut stream) => loop {
                    let response = match stream.message().await {
                        Ok(Some(response)) => response,
                        Ok(None) => break None,
                        Err(status) => break Some(status),
                    };
                    losses = 0;
                    let Some(item) = self.take(response)? else { continue };
                    sink(&item)?;
                    if let Item::Event(event) = &item
                        && let Some(end) = ends(event, until)
                    {
                        return Ok(end);
                    }
                },
                Err(status) => Some(status),
            };
            let lost = match lost {
                Some(status) if !is_passing(&status) => return Err(status).context("follow the session"),
                lost => lost,
            };
            losses += 1;
            if losses > CLI_RECONNECTS_MAX {
                let message = format!(
                    "the connection was lost {losses} times in a row; the session continues without this command"
                );
                return Err(CodedError { code: "connection_lost".into(), message }.into());
            }
            sink(&Item::Reconnecting(Reconnect {
                tries: losses,
                tries_max: CLI_RECONNECTS_MAX,
                cause: cause(lost.as_ref()),
            }))?;
            tokio::time::sleep(client::backoff(losses - 1)).await;
        }
    }

    /// Returns the new items in a response.
    fn take(&mut self, response: SubscribeResponse) -> Result<Option<Item>> {
        if !response.cursor.is_empty() {
            self.cursor.clone_from(&response.cursor);
        }
        let item = Item::from_response(response)?;
        if let Some(Item::Event(event)) = &item {
            if event.seq <= self.seen {
                return Ok(None);
            }
            self.seen = event.seq;
        }
        Ok(item)
    }

    fn request(&self, until: Until) -> SubscribeRequest {
        let (until_idle, idle_after_seq) = match until {
            Until::IdleAfter(seq) => (true, seq),
            Until::Seen(_) => (false, 0),
        };
        let (session_id, cursor) = (self.session_id.to_owned(), self.cursor.clone());
        SubscribeRequest { session_id, cursor, tail_only: false, until_idle, idle_after_seq }
    }
}

/// Why a stream broke, in words.
fn cause(status: Option<&Status>) -> String {
    status.map_or_else(|| "the gateway closed the stream".to_owned(), |status| status.message().to_owned())
}

async fn subscribe(client: &Client, request: SubscribeRequest) -> Result<Response<Stream>, Status> {
    client.events().subscribe(request).await
}

fn ends(event: &Event, until: Until) -> Option<StreamEnd> {
    match until {
        Until::IdleAfter(seq) if event.kind == "session.idle" && event.seq >= seq => {
            Some(StreamEnd::Idle(event.properties["outcome"].as_str().unwrap_or_default().to_owned()))
        }
        Until::IdleAfter(seq) if event.seq >= seq => {
            wait_of(event).map(|what| StreamEnd::Idle(what.to_owned()))
        }
        Until::Seen(seq) if event.seq >= seq => Some(StreamEnd::Seen),
        Until::IdleAfter(_) | Until::Seen(_) => None,
    }
}

/// The action that a person must take before the turn continues: the loop is parked until a person answers or raises
/// the budget, or an operator must release the session. A request alone is not an end: other tools of its step
/// continue.
fn wait_of(event: &Event) -> Option<&'static str> {
    match (event.kind.as_str(), event.properties["reason"].as_str()) {
        ("flotilla.session.waiting", Some("permission" | "question")) => Some("needs_human"),
        ("flotilla.session.waiting", Some("budget")) => Some("budget"),
        ("flotilla.session.quarantined", _) => Some("needs_human"),
        _ => None,
    }
}

/// Whether the stream can be resumed: the connection broke, the gateway drains, or this reader was too slow.
fn is_passing(status: &Status) -> bool {
    match status.code() {
        Code::Unavailable
        | Code::ResourceExhausted
        | Code::Aborted
        | Code::Cancelled
        | Code::DeadlineExceeded => true,
        // Tonic's error for a broken HTTP/2 stream; the server's own errors carry one of our codes.
        Code::Unknown | Code::Internal => rpc::status::code_of(status).is_none(),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
