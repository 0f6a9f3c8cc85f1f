//! The lines of git's protocol: four hexadecimal digits with the length, and the content.

use crate::push::error::PushError;
use bytes::{Buf as _, Bytes, BytesMut};

const LENGTH_BYTES: usize = 4;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Packet {
    Line(Bytes),
    Flush,
    Delimiter,
}

pub(super) fn line(text: &str) -> String {
    format!("{:04x}{text}", text.len() + LENGTH_BYTES)
}

pub(super) const FLUSH: &str = "0000";
/// Separates the parts of a request.
pub(super) const DELIMITER: &str = "0001";

/// The lines of an answer, while it arrives.
#[derive(Debug)]
pub(super) struct PacketReader {
    answer: Option<reqwest::Response>,
    buffer: BytesMut,
    bytes_left: u64,
    host: String,
}

impl PacketReader {
    /// The lines of an answer of at most so many bytes.
    pub(super) fn new(answer: reqwest::Response, bytes_max: u64, host: String) -> Self {
        Self { answer: Some(answer), buffer: BytesMut::new(), bytes_left: bytes_max, host }
    }

    /// The next line; `None` at the end.
    ///
    /// # Errors
    /// `Unreachable`: the answer breaks off, or is not git's. `TooLarge`.
    pub(super) async fn next(&mut self) -> Result<Option<Packet>, PushError> {
        loop {
            if let Some(packet) = take(&mut self.buffer).map_err(|NoPacket| self.broken("is not git's"))? {
                return Ok(Some(packet));
            }
            let Some(answer) = &mut self.answer else {
                return if self.buffer.is_empty() { Ok(None) } else { Err(self.broken("breaks off")) };
            };
            match answer.chunk().await {
                Ok(Some(piece)) => {
                    let bytes = piece.len() as u64;
                    if bytes > self.bytes_left {
                        return Err(self.broken("is larger than this server reads"));
                    }
                    self.bytes_left -= bytes;
                    self.buffer.extend_from_slice(&piece);
                }
                Ok(None) => self.answer = None,
                Err(_) => return Err(self.broken("breaks off")),
            }
        }
    }

    /// The next line, which must be there.
    ///
    /// # Errors
    /// Those of [`PacketReader::next`].
    pub(super) async fn expect(&mut self) -> Result<Packet, PushError> {
        self.next().await?.ok_or_else(|| self.broken("breaks off"))
    }

    /// The error of an answer.
    pub(super) fn broken(&self, what: &str) -> PushError {
        PushError::Unreachable(format!("the answer of {} {what}", self.host))
    }
}

/// What is no line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoPacket;

/// Takes a line from the beginning. `None`: it is not there yet.
pub(super) fn take(buffer: &mut BytesMut) -> Result<Option<Packet>, NoPacket> {
    let Some(head) = buffer.get(..LENGTH_BYTES) else { return Ok(None) };
    let digits =
        std::str::from_utf8(head).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let length = usize::from_str_radix(digits.ok_or(NoPacket)?, 16).map_err(|_| NoPacket)?;
    match length {
        0 => buffer.advance(LENGTH_BYTES),
        1 => {
            buffer.advance(LENGTH_BYTES);
            return Ok(Some(Packet::Delimiter));
        }
        2 | 3 => return Err(NoPacket),
        _ if buffer.len() < length => return Ok(None),
        _ => {
            let mut packet = buffer.split_to(length).freeze();
            packet.advance(LENGTH_BYTES);
            return Ok(Some(Packet::Line(packet)));
        }
    }
    Ok(Some(Packet::Flush))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn lines_are_read_as_they_are_written() {
        let text = format!("{}{DELIMITER}{FLUSH}0005", line("a\n"));
        let mut buffer = BytesMut::from(text.as_str());
        assert_eq!(take(&mut buffer), Ok(Some(Packet::Line(Bytes::from_static(b"a\n")))));
        assert_eq!(take(&mut buffer), Ok(Some(Packet::Delimiter)));
        assert_eq!(take(&mut buffer), Ok(Some(Packet::Flush)));
        assert_eq!(take(&mut buffer), Ok(None), "the rest has not arrived");
        for broken in ["zzzz", "0002", "0003", "+001"] {
            assert_eq!(take(&mut BytesMut::from(broken)), Err(NoPacket));
        }
    }
}
