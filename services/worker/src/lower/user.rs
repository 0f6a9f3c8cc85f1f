//! A user message as a model receives it: texts and media. Files of the workspace become synthetic texts.

use crate::conversation::model_view::is_media;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::{
    conversation::{
        command::BY_THE_USER,
        part::{Body, Part, attached::File},
    },
    text::percent_decode,
};
use llm::request::{Media, Source, UserPart};

/// The text that represents a request for a summary to the model that reads it later.
const SUMMARY_REQUEST: &str = "What did we do so far?";

/// The parts of a user message.
pub(super) fn parts(parts: &[(u64, Part)]) -> Vec<UserPart> {
    let lowered = |(_, part): &(u64, Part)| match &part.body {
        Body::Text(text) if text.ignored != Some(true) && !text.text.is_empty() => {
            Some(UserPart::Text(text.text.clone()))
        }
        Body::File(file) => media(file).map(UserPart::Media),
        Body::Compaction(_) => Some(UserPart::Text(SUMMARY_REQUEST.to_owned())),
        Body::Subtask(_) => Some(UserPart::Text(BY_THE_USER.to_owned())),
        Body::Text(_)
        | Body::Agent(_)
        | Body::Reasoning(_)
        | Body::Tool(_)
        | Body::Patch(_)
        | Body::Snapshot(_)
        | Body::StepStart(_)
        | Body::StepFinish(_)
        | Body::Retry(_) => None,
    };
    parts.iter().filter_map(lowered).collect()
}

/// A file whose bytes are in its URL, if models receive files of its type.
pub(super) fn media(file: &File) -> Option<Media> {
    let (head, data) = file.url.strip_prefix("data:").filter(|_| is_media(&file.mime))?.split_once(',')?;
    let base64 =
        if head.ends_with(";base64") { data.to_owned() } else { STANDARD.encode(percent_decode(data)?) };
    let name = file.filename.clone().unwrap_or_default();
    Some(Media { mime: file.mime.clone(), name, source: Source::Base64(base64) })
}
