//! The system prompt in two blocks, so that providers can cache the first: the agent's role with advice for the model's
//! family, which never changes; and its environment, the repository's instructions, and the prompt's own instruction.

use super::{family::Family, step_context::StepContext};
use crate::{conversation::structured, repository::guidance};
use domain::{ids::Timestamp, session::WORKSPACE};
use rpc::v1::UnreadFile;

/// The agent's role and way of working.
const AGENT: &str = include_str!("../prompt/system.txt");

/// A person may expect files, because the client that made the project of their directory could not send any.
const NO_REPOSITORY: &str = "The project of this session has no repository, so its files began empty. If the task needs \
    files that are not there, say so, and that `flotilla project update PROJECT --repo PATH` gives the next sessions of \
    the project a repository.";

/// The blocks, the stable one first.
pub(super) fn blocks(context: &StepContext<'_>) -> Vec<String> {
    let user = context.user;
    let mut rest = vec![environment(context)];
    rest.extend((!context.has_source).then(|| NO_REPOSITORY.to_owned()));
    let unused = context.guidance.environment_notice.as_ref();
    rest.extend(unused.and_then(|notice| notice.sentence.clone()));
    rest.extend(missing_content(&context.guidance.missing_content));
    rest.extend(too_large(&context.guidance.too_large));
    rest.extend(context.guidance.system_blocks());
    rest.extend(user.system.clone());
    rest.extend(context.structured.map(|_| structured::SYSTEM.to_owned()));
    let advice = Family::of(&user.model.model.model_id).advice();
    vec![format!("{AGENT}\n{advice}"), rest.join("\n\n")]
}

fn environment(context: &StepContext<'_>) -> String {
    let model = &context.user.model.model;
    // The day of the prompt, not of the call: every step and every attempt of a turn sends the same text.
    format!(
        "<env>\nModel: {}/{}\nWorking directory: {WORKSPACE}\nRoot of the repository: {WORKSPACE}\n\
         Is a git repository: yes\nPlatform: linux\nNetwork: off\nDate: {}\n</env>",
        model.provider_id,
        model.model_id,
        date(context.user.time.created),
    )
}

/// What the files lack although their repository names it.
fn missing_content(sentences: &[String]) -> Option<String> {
    let rule = "If the task needs it, say so instead of guessing what it contains.";
    (!sentences.is_empty()).then(|| format!("{} {rule}", sentences.join(" ")))
}

/// The instructions and the configuration that are too large to be read.
fn too_large(files: &[UnreadFile]) -> Option<String> {
    let text = "These files of the repository are too large, so you do not have their content and they have no effect. Read what \
        the task needs from them, and say so if it matters:";
    (!files.is_empty()).then(|| format!("{text}\n{}", guidance::unread(files)))
}

/// The day in UTC, as `2026-11-22`.
fn date(at: Timestamp) -> String {
    let at = time::OffsetDateTime::from_unix_timestamp(at.0.div_euclid(1_000));
    at.map_or_else(|_| "unknown".to_owned(), |at| at.date().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_written_as_dates() {
        assert_eq!(date(Timestamp(1_795_292_980_519)), "2026-11-21");
        assert_eq!(date(Timestamp(i64::MAX)), "unknown");
    }

    #[test]
    fn the_model_learns_what_the_files_lack() {
        assert_eq!(missing_content(&[]), None);
        let text = missing_content(&["The directories of these submodules are empty here: a.".to_owned()]);
        assert!(text.is_some_and(|text| text.starts_with("The directories") && text.ends_with("contains.")));
    }
}
