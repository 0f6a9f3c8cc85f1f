//! A terminal over a WebSocket. Text frames carry output and input. A binary frame that begins with a zero byte carries the client's
//! position: `{"cursor":123}`.

use crate::{
    app::terminals::{
        host::{TerminalHost, TerminalOutput},
        terminal::TerminalItem,
    },
    errors::error::Error,
};
use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use domain::ids::pty::PtyId;
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// Bytes of one message of a client, as a person types or pastes it: 4 MiB for the 16 readers of a terminal. A longer message ends the connection.
pub(super) const MESSAGE_BYTES_MAX: usize = 256 * 1024;
/// Bytes of one write; the sandbox accepts twice as many.
const WRITE_BYTES: usize = 32 * 1024;

pub(super) struct Socket {
    host: TerminalHost,
    id: PtyId,
    socket: WebSocket,
    text: Text,
    /// Position up to which the client has the output.
    cursor: u64,
    /// The end of the replay, until the client has received its position.
    replay_end: Option<u64>,
}

enum ConnectionEnd {
    /// The client disconnected, or the program ended.
    Complete,
    Failed(Error),
}

impl From<Error> for ConnectionEnd {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<axum::Error> for ConnectionEnd {
    fn from(_: axum::Error) -> Self {
        Self::Complete
    }
}

impl Socket {
    pub(super) fn new(host: TerminalHost, id: PtyId, socket: WebSocket) -> Self {
        Self { host, id, socket, text: Text::default(), cursor: 0, replay_end: None }
    }

    /// Forwards output and input until the program ends, or either side disconnects.
    pub(super) async fn run(mut self, mut output: TerminalOutput, shutdown: CancellationToken) {
        let end = loop {
            let result = tokio::select! {
                () = shutdown.cancelled() => break ConnectionEnd::Complete,
                item = output.next() => match item {
                    Ok(Some(item)) => self.send(item).await,
                    Ok(None) => Err(ConnectionEnd::Complete),
                    Err(error) => Err(ConnectionEnd::Failed(error)),
                },
                message = self.socket.recv() => match message {
                    Some(Ok(message)) => self.take(message).await,
                    Some(Err(_)) | None => Err(ConnectionEnd::Complete),
                },
            };
            if let Err(end) = result {
                break end;
            }
        };
        let frame = match end {
            ConnectionEnd::Complete => CloseFrame { code: close_code::NORMAL, reason: "".into() },
            ConnectionEnd::Failed(error) => {
                CloseFrame { code: close_code::ERROR, reason: error.code().into() }
            }
        };
        // The client may have disconnected.
        drop(self.socket.send(Message::Close(Some(frame))).await);
    }

    async fn take(&mut self, message: Message) -> Result<(), ConnectionEnd> {
        let data = match message {
            Message::Text(text) => text.as_bytes().to_vec(),
            Message::Binary(data) => data.to_vec(),
            Message::Close(_) => return Err(ConnectionEnd::Complete),
            Message::Ping(_) | Message::Pong(_) => return Ok(()),
        };
        for piece in data.chunks(WRITE_BYTES) {
            self.host.write(&self.id, piece.to_vec()).await?;
        }
        Ok(())
    }

    async fn send(&mut self, item: TerminalItem) -> Result<(), ConnectionEnd> {
        match item {
            TerminalItem::Replay { from_offset_bytes, to_offset_bytes, .. } => {
                self.cursor = from_offset_bytes;
                self.replay_end = Some(to_offset_bytes);
            }
            TerminalItem::Output { offset_bytes, data } => {
                let text = self.text.take(&data);
                self.cursor = offset_bytes + data.len() as u64;
                // The client counts UTF-16 units. For text in which these differ from bytes, it needs its position.
                let is_counted = text.is_ascii() && text.len() == data.len();
                if !text.is_empty() {
                    self.socket.send(Message::Text(text.into())).await?;
                }
                if !is_counted {
                    self.send_cursor().await?;
                }
            }
            TerminalItem::Exit { .. } => return Err(ConnectionEnd::Complete),
        }
        if self.replay_end.is_some_and(|end| self.cursor >= end) {
            self.replay_end = None;
            self.send_cursor().await?;
        }
        Ok(())
    }

    async fn send_cursor(&mut self) -> Result<(), ConnectionEnd> {
        let cursor = self.cursor - self.text.rest.len() as u64;
        let mut frame = vec![0];
        frame.extend_from_slice(json!({"cursor": cursor}).to_string().as_bytes());
        Ok(self.socket.send(Message::Binary(frame.into())).await?)
    }
}

/// Decodes text from pieces that may end inside a character.
#[derive(Debug, Default)]
struct Text {
    /// The first bytes of a character.
    rest: Vec<u8>,
}

impl Text {
    /// The text up to the last whole character. Invalid bytes become U+FFFD.
    fn take(&mut self, data: &[u8]) -> String {
        self.rest.extend_from_slice(data);
        let mut text = String::with_capacity(self.rest.len());
        let mut rest_bytes = 0;
        for chunk in self.rest.utf8_chunks() {
            text.push_str(chunk.valid());
            let is_last = chunk.invalid().as_ptr_range().end == self.rest.as_ptr_range().end;
            match chunk.invalid() {
                [] => {}
                begun if is_last && is_begun(begun) => rest_bytes = begun.len(),
                _ => text.push(char::REPLACEMENT_CHARACTER),
            }
        }
        self.rest.drain(..self.rest.len() - rest_bytes);
        text
    }
}

/// Whether more bytes could complete a character.
fn is_begun(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_character_is_split() {
        let mut text = Text::default();
        let bytes = "až ☃".as_bytes();
        let texts: Vec<String> = bytes.iter().map(|byte| text.take(&[*byte])).collect();
        assert_eq!(texts, ["a", "", "ž", " ", "", "", "☃"]);
        assert_eq!(text.take(b"x\xffy\xe2\x98"), "x\u{fffd}y");
        assert_eq!(text.take(b"z"), "\u{fffd}z");
        assert_eq!(text.take("ž".as_bytes()), "ž");
    }
}
