//! Parts of prompts that have no id yet: they are given one when they are stored.

use crate::v1::{PromptPart, prompt_part::Kind};

impl From<Kind> for PromptPart {
    fn from(kind: Kind) -> Self {
        Self { id: String::new(), kind: Some(kind) }
    }
}
