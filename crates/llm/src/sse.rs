//! Server-sent events from bytes that may be split anywhere. Bounded, and limited to what model providers use: `id` and
//! `retry` are ignored. Knows nothing about JSON.

/// The last message of some streams, sent instead of a JSON object.
pub(crate) const DONE: &str = "[DONE]";

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Event {
    /// Value of `event:`; empty if there was none.
    pub name: String,
    /// Values of `data:`, joined by line feeds.
    pub data: String,
    /// Whether `data` is instead a line with an unknown field. The standard ignores such lines, but some servers write an
    /// error there.
    pub is_bare: bool,
}

/// Why bytes are not an event stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// A line, or the lines of one event together, are longer than the bound.
    #[error("a line of the event stream is longer than {bytes_max} bytes")]
    TooLong {
        /// The bound.
        bytes_max: usize,
    },
    /// A line is not UTF-8.
    #[error("the event stream is not UTF-8")]
    NotUtf8,
}

/// Turns bytes into events.
#[derive(Debug)]
pub struct Decoder {
    line: Vec<u8>,
    line_bytes_max: usize,
    /// The last byte was CR: a LF that follows belongs to it.
    is_after_cr: bool,
    is_first_line: bool,
    event: Event,
    has_data: bool,
    has_known_line: bool,
    has_unknown_line: bool,
}

impl Decoder {
    /// A decoder that refuses lines and events beyond `line_bytes_max` bytes.
    pub fn new(line_bytes_max: usize) -> Self {
        Self {
            line: Vec::new(),
            line_bytes_max,
            is_after_cr: false,
            is_first_line: true,
            event: Event::default(),
            has_data: false,
            has_known_line: false,
            has_unknown_line: false,
        }
    }

    /// Appends the events that `bytes` complete to `events`. After an error the decoder must not be used again;
    /// events before it have been appended.
    ///
    /// # Errors
    /// `TooLong` and `NotUtf8`.
    pub fn push(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), StreamError> {
        let mut rest = bytes;
        if self.is_after_cr && !rest.is_empty() {
            self.is_after_cr = false;
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.extend(&rest[..end])?;
            events.extend(self.end_line()?);
            let is_cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
            if is_cr {
                self.is_after_cr = rest.is_empty();
                rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            }
        }
        self.extend(rest)
    }

    /// What the stream ended with: an unfinished bare line, and the pending event if there was no blank line after its
    /// data. The caller decides whether they are complete.
    pub fn end(&mut self) -> Vec<Event> {
        let line = if self.line.is_empty() { None } else { self.end_line().ok().flatten() };
        line.into_iter().chain(self.take_event()).collect()
    }

    /// Whether the bytes so far can be an event stream: they contain a known field or a comment, or the unfinished line
    /// may become one.
    pub fn is_plausible(&self) -> bool {
        let starts = |field: &str| {
            let (line, field) = (self.line.as_slice(), field.as_bytes());
            field.starts_with(line) || line.starts_with(field)
        };
        let may_become_one = || ["data:", "event:", "id:", "retry:", ":"].into_iter().any(starts);
        self.has_known_line || (!self.has_unknown_line && may_become_one())
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), StreamError> {
        if self.line.len() + self.event.data.len() + bytes.len() > self.line_bytes_max {
            return Err(StreamError::TooLong { bytes_max: self.line_bytes_max });
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self) -> Result<Option<Event>, StreamError> {
        let bytes = std::mem::take(&mut self.line);
        let mut line = std::str::from_utf8(&bytes).map_err(|_| StreamError::NotUtf8)?;
        if std::mem::take(&mut self.is_first_line) {
            line = line.strip_prefix('\u{feff}').unwrap_or(line);
        }
        if line.is_empty() {
            return Ok(self.take_event());
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            "event" => value.clone_into(&mut self.event.name),
            "" | "id" | "retry" => {}
            // Unknown fields prove nothing about the stream.
            _ => {
                self.has_unknown_line = true;
                return Ok(Some(Event { data: line.to_owned(), is_bare: true, ..Event::default() }));
            }
        }
        self.has_known_line = true;
        self.keep_buffer(bytes)
    }

    /// Keeps the line's memory for the next line.
    #[expect(clippy::unnecessary_wraps, reason = "ends `end_line`")]
    fn keep_buffer(&mut self, mut bytes: Vec<u8>) -> Result<Option<Event>, StreamError> {
        bytes.clear();
        self.line = bytes;
        Ok(None)
    }

    fn take_event(&mut self) -> Option<Event> {
        let event = std::mem::take(&mut self.event);
        std::mem::take(&mut self.has_data).then_some(event)
    }
}

#[cfg(test)]
mod tests;
