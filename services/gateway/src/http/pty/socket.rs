//! A terminal over a WebSocket, as OpenCode's clients speak: text frames are what is written to the terminal and what is typed;
//! a binary frame that begins with a zero byte tells the client where it is: `{"cursor":123}`.

use crate::pty::Place;
use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use domain::ids::pty::PtyId;
use rpc::v1::{self, attach_terminal_response::Item};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

/// Bytes of one message of a client: what a person types or pastes. A longer one ends the connection.
pub(super) const MESSAGE_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of one call to type; the sandbox takes twice as many.
const TYPED_BYTES: usize = 32 * 1024;

/// One connection.
pub(super) struct Socket {
    place: Place,
    id: PtyId,
    socket: WebSocket,
    text: Text,
    /// Up to here the client was told.
    cursor: u64,
    /// Where the past ends, until the client was told so.
    replay_end: Option<u64>,
}

/// Why a connection ends.
enum End {
    /// The client left, or the program ended.
    Over,
    Refused(Status),
}

impl From<Status> for End {
    fn from(status: Status) -> Self {
        Self::Refused(status)
    }
}

impl From<axum::Error> for End {
    fn from(_: axum::Error) -> Self {
        Self::Over
    }
}

impl Socket {
    pub(super) fn new(place: Place, id: PtyId, socket: WebSocket) -> Self {
        Self { place, id, socket, text: Text::default(), cursor: 0, replay_end: None }
    }

    /// Passes on what is said and typed until the program ends, or either side leaves.
    pub(super) async fn run(
        mut self,
        mut items: Streaming<v1::AttachTerminalResponse>,
        shutdown: CancellationToken,
    ) {
        let end = loop {
            let done = tokio::select! {
                () = shutdown.cancelled() => break End::Over,
                item = items.message() => match item {
                    Ok(Some(v1::AttachTerminalResponse { item: Some(item) })) => self.show(item).await,
                    Ok(_) => Err(End::Over),
                    Err(status) => Err(End::Refused(status)),
                },
                message = self.socket.recv() => match message {
                    Some(Ok(message)) => self.take(message).await,
                    Some(Err(_)) | None => Err(End::Over),
                },
            };
            if let Err(end) = done {
                break end;
            }
        };
        let frame = match end {
            End::Over => CloseFrame { code: close_code::NORMAL, reason: "".into() },
            End::Refused(status) => {
                let reason = rpc::status::code_of(&status).unwrap_or_default();
                CloseFrame { code: close_code::ERROR, reason: reason.into() }
            }
        };
        // The client may have left.
        drop(self.socket.send(Message::Close(Some(frame))).await);
    }

    async fn take(&mut self, message: Message) -> Result<(), End> {
        let data = match message {
            Message::Text(text) => text.as_bytes().to_vec(),
            Message::Binary(data) => data.to_vec(),
            Message::Close(_) => return Err(End::Over),
            Message::Ping(_) | Message::Pong(_) => return Ok(()),
        };
        for piece in data.chunks(TYPED_BYTES) {
            self.place.write(&self.id, piece.to_vec()).await?;
        }
        Ok(())
    }

    async fn show(&mut self, item: Item) -> Result<(), End> {
        match item {
            Item::Replay(replay) => {
                self.cursor = replay.from_offset_bytes;
                self.replay_end = Some(replay.to_offset_bytes);
            }
            Item::Output(output) => {
                let text = self.text.take(&output.data);
                self.cursor = output.offset_bytes + output.data.len() as u64;
                // The client counts UTF-16 units; where these are not bytes, it is told where it is.
                let is_counted = text.is_ascii() && text.len() == output.data.len();
                if !text.is_empty() {
                    self.socket.send(Message::Text(text.into())).await?;
                }
                if !is_counted {
                    self.tell_cursor().await?;
                }
            }
            Item::Exit(_) => return Err(End::Over),
        }
        if self.replay_end.is_some_and(|end| self.cursor >= end) {
            self.replay_end = None;
            self.tell_cursor().await?;
        }
        Ok(())
    }

    async fn tell_cursor(&mut self) -> Result<(), End> {
        let cursor = self.cursor - self.text.rest.len() as u64;
        let mut frame = vec![0];
        frame.extend_from_slice(json!({"cursor": cursor}).to_string().as_bytes());
        Ok(self.socket.send(Message::Binary(frame.into())).await?)
    }
}

/// Makes text of bytes that come in pieces, which may end inside a character.
#[derive(Debug, Default)]
struct Text {
    /// The beginning of a character.
    rest: Vec<u8>,
}

impl Text {
    /// The text up to the last whole character; what can be no text is U+FFFD.
    fn take(&mut self, data: &[u8]) -> String {
        self.rest.extend_from_slice(data);
        let mut text = String::with_capacity(self.rest.len());
        let mut kept = 0;
        for chunk in self.rest.utf8_chunks() {
            text.push_str(chunk.valid());
            let is_last = chunk.invalid().as_ptr_range().end == self.rest.as_ptr_range().end;
            match chunk.invalid() {
                [] => {}
                begun if is_last && is_begun(begun) => kept = begun.len(),
                _ => text.push(char::REPLACEMENT_CHARACTER),
            }
        }
        self.rest.drain(..self.rest.len() - kept);
        text
    }
}

/// Whether more bytes could make a character of these.
fn is_begun(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_character_is_torn() {
        let mut text = Text::default();
        let bytes = "až ☃".as_bytes();
        let shown: Vec<String> = bytes.iter().map(|byte| text.take(&[*byte])).collect();
        assert_eq!(shown, ["a", "", "ž", " ", "", "", "☃"]);
        assert_eq!(text.take(b"x\xffy\xe2\x98"), "x\u{fffd}y");
        assert_eq!(text.take(b"z"), "\u{fffd}z");
        assert_eq!(text.take("ž".as_bytes()), "ž");
    }
}
