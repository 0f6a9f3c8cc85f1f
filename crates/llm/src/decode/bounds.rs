//! Bounds of an answer's blocks, for every protocol. An answer with endless reasoning, text or arguments ends with a
//! named error.

use crate::error::{Error, ErrorKind};
use crate::event::Event;
use domain::limits::{MODEL_BLOCKS_MAX, PART_TEXT_BYTES_MAX, TOOL_ARGUMENTS_BYTES_MAX};
use std::collections::BTreeMap;

/// The bytes counted so far in open blocks.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    open: BTreeMap<u32, usize>,
    blocks: usize,
}

impl Bounds {
    /// Counts the events from position `from` on. Removes the first event beyond a bound and all events after it.
    ///
    /// # Errors
    /// `TooLarge` if a bound is exceeded.
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
            Event::Text { index, delta } => {
                self.grow(*index, delta, Bound { of: "a text", bytes: PART_TEXT_BYTES_MAX })
            }
            Event::Reasoning { index, delta } => {
                self.grow(*index, delta, Bound { of: "the model's reasoning", bytes: PART_TEXT_BYTES_MAX })
            }
            Event::ToolArguments { index, delta } => self.grow(
                *index,
                delta,
                Bound { of: "a tool call's arguments", bytes: TOOL_ARGUMENTS_BYTES_MAX },
            ),
            Event::BlockEnd { index, .. } | Event::ReasoningEnd { index, .. } => {
                self.open.remove(index);
                Ok(())
            }
            Event::Started { .. } | Event::Usage(_) | Event::Finished { .. } => Ok(()),
        }
    }

    fn grow(&mut self, index: u32, delta: &str, bound: Bound) -> Result<(), String> {
        let bytes = self.open.entry(index).or_default();
        *bytes += delta.len();
        match *bytes > bound.bytes {
            true => Err(format!("{} is longer than {} bytes", bound.of, bound.bytes)),
            false => Ok(()),
        }
    }
}

/// How long a block may become.
struct Bound {
    /// The block, for the error.
    of: &'static str,
    bytes: usize,
}
