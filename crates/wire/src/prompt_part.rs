//! Prompt parts without an id. Each gets its id when it is stored.

use crate::v1::{PromptPart, prompt_part::Kind};

impl From<Kind> for PromptPart {
    fn from(kind: Kind) -> Self {
        Self { id: String::new(), kind: Some(kind) }
    }
}
