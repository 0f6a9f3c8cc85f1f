//! `invalid`: replaces a call of a tool that does not exist. Models are never offered it. Its answer explains the
//! mistake, so that the model can correct the call. The invented name never goes back to a provider, because some
//! providers refuse such names.

use super::outcome::completed_metadata;
use domain::conversation::part::{Ran, ToolState};
use serde_json::{Map, Value, json};

/// Its name in calls, the same as OpenCode's.
pub(crate) const NAME: &str = "invalid";
/// Bytes of the unknown name that the answer quotes. The rest is cut.
const NAME_BYTES_MAX: usize = 80;

/// The stored arguments of a call of `name` that was refused with `error`.
pub(crate) fn input(name: &str, error: &str, arguments: Value) -> Value {
    json!({"tool": domain::text::head(name, NAME_BYTES_MAX), "error": error, "arguments": arguments})
}

/// The answer to a call of `name`, for a model that was offered the tools `offered`.
pub(crate) fn answer(name: &str, offered: &[String], time: Ran) -> ToolState {
    let name = domain::text::head(name, NAME_BYTES_MAX);
    let error = format!("There is no tool {name:?}. The tools are: {}.", offered.join(", "));
    ToolState::Completed {
        output: format!("This call is invalid, and nothing was done: {error}").into(),
        input: json!({"tool": name, "error": error}),
        title: "Invalid Tool".to_owned(),
        metadata: completed_metadata(Map::new()),
        time,
        attachments: vec![],
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use domain::ids::Timestamp;

    #[test]
    fn the_answer_says_what_is_wrong_and_which_tools_there_are() {
        let offered = ["bash".to_owned(), "read".to_owned()];
        let time = Ran::new(Timestamp(1), Timestamp(2));
        let state = answer(&"x".repeat(200), &offered, time);
        let ToolState::Completed { input, output, .. } = &state else { panic!("{state:?}") };
        let want = format!("There is no tool \"{}\". The tools are: bash, read.", "x".repeat(NAME_BYTES_MAX));
        assert_eq!((&input["error"], output.ends_with(&want)), (&json!(want), true), "{output}");
    }
}
