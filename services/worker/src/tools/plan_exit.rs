//! `plan_exit`: the end of planning. Asks the person whether the agent that builds shall carry the plan out. What a call means
//! is here; the loop asks and parks.

use super::described;
use domain::request::{Choice, Question};
use domain::tool;
use serde_json::json;

/// What the agent that builds is told in the person's place.
pub(crate) const APPROVED: &str = "The plan above is approved. You may change files now: carry the plan out, and say where you had to depart from it.";
/// What the call says to the model.
pub(crate) const DONE: &str = "The person approved the plan. The agent build goes on from here.";

const YES: &str = "Yes";
const NO: &str = "No";

/// What a person chose.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Chosen {
    /// The plan is carried out.
    Build,
    /// It is not; nothing more was said.
    Stay,
    /// It is not, for this reason.
    Words(String),
}

pub(super) fn spec() -> tool::Spec {
    described(
        "plan_exit",
        "Ends planning: asks the person whether the agent build shall carry the plan out. Call it once the plan is complete \
         and told in your answer, and when nothing is open that the person must decide. The answer may take hours.",
        json!({"type": "object", "properties": {}, "additionalProperties": false}),
    )
}

/// What the person is asked.
pub(crate) fn questions() -> Vec<Question> {
    let choice = |label: &str, description: &str| Choice {
        label: label.to_owned(),
        description: description.to_owned(),
    };
    vec![Question {
        question: "The plan is complete. Shall the agent build carry it out?".to_owned(),
        header: "Build".to_owned(),
        options: vec![
            choice(YES, "The agent build takes over and may change files"),
            choice(NO, "Nothing is changed; say what the plan lacks"),
        ],
        multiple: false,
    }]
}

/// Reads the answer to [`questions`].
pub(crate) fn chosen(labels: &[Vec<String>]) -> Chosen {
    let words: Vec<&str> = labels.iter().flatten().map(|label| label.trim()).collect();
    match words[..] {
        [label] if label.eq_ignore_ascii_case(YES) => Chosen::Build,
        [label] if label.is_empty() || label.eq_ignore_ascii_case(NO) => Chosen::Stay,
        [] => Chosen::Stay,
        _ => Chosen::Words(words.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_yes_begins_the_work() {
        for (labels, want) in [
            (&["Yes"][..], Chosen::Build),
            (&[" yes "], Chosen::Build),
            (&["No"], Chosen::Stay),
            (&[""], Chosen::Stay),
            (&[], Chosen::Stay),
            (&["Yes", "No"], Chosen::Words("Yes, No".to_owned())),
            (&["yes, but without tests"], Chosen::Words("yes, but without tests".to_owned())),
        ] {
            let labels: Vec<String> = labels.iter().map(ToString::to_string).collect();
            assert_eq!(chosen(std::slice::from_ref(&labels)), want, "{labels:?}");
        }
        assert_eq!(questions()[0].options[0].label, YES);
    }
}
