//! The bounds of an answer's blocks, whatever the protocol: a model that thinks, talks or writes arguments without end
//! is stopped with a named error.

use crate::error::{Error, ErrorKind};
use crate::event::Event;
use domain::limits::{MODEL_BLOCKS_MAX, PART_TEXT_BYTES_MAX, TOOL_ARGUMENTS_BYTES_MAX};
use std::collections::BTreeMap;

/// What was said so far in blocks that are still open.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    open: BTreeMap<u32, usize>,
    blocks: usize,
}

impl Bounds {
    /// Counts the events from position `from` on. The first one beyond a bound is removed, with all after it.
    ///
    /// # Errors
    /// `TooLarge`.
    pub(super) fn check(&mut self, events: &mut Vec<Event>, from: usize) -> Result<(), Error> {
        for at in from..events.len() {
            if let Err(text) = self.count(&events[at]) {
                events.truncate(at);
                return Err(Error::new(ErrorKind::TooLarge, text));
            }
        }
        Ok(())
    }

    fn count(&mut self, event: &Event) -> Result<(), String> {
        match event {
            Event::TextStart { .. } | Event::ReasoningStart { .. } | Event::ToolStart { .. } => {
                self.blocks += 1;
                match self.blocks > MODEL_BLOCKS_MAX {
                    true => Err(format!("the answer has more than {MODEL_BLOCKS_MAX} blocks")),
                    false => Ok(()),
                }
            }
            Event::Text { index, delta } => self.grow(*index, delta, ("a text", PART_TEXT_BYTES_MAX)),
            Event::Reasoning { index, delta } => {
                self.grow(*index, delta, ("the model's reasoning", PART_TEXT_BYTES_MAX))
            }
            Event::ToolArguments { index, delta } => {
                self.grow(*index, delta, ("a tool call's arguments", TOOL_ARGUMENTS_BYTES_MAX))
            }
            Event::BlockEnd { index } | Event::ReasoningEnd { index, .. } => {
                self.open.remove(index);
                Ok(())
            }
            Event::Started { .. } | Event::Usage(_) | Event::Finished { .. } => Ok(()),
        }
    }

    fn grow(&mut self, index: u32, delta: &str, (what, bytes_max): (&str, usize)) -> Result<(), String> {
        let bytes = self.open.entry(index).or_default();
        *bytes += delta.len();
        match *bytes > bytes_max {
            true => Err(format!("{what} is longer than {bytes_max} bytes")),
            false => Ok(()),
        }
    }
}
