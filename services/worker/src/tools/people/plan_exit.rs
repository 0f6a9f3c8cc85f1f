//! `plan_exit`: ends planning. It asks the person whether the agent `build` should carry out the plan. This file
//! defines the meaning of a call; the loop asks and parks.

use crate::tools::spec::tool_spec;
use domain::conversation::request::{Choice, Question};
use domain::policy::tool;
use serde_json::json;

/// The agent `build` reads this as the person's message.
pub(crate) const APPROVED: &str = "The plan above is approved. You may change files now: carry out the plan, and say where you had to depart from it.";
/// The model reads this as the result of the call.
pub(crate) const DONE: &str = "The person approved the plan. The agent build continues from here.";

const YES: &str = "Yes";
const NO: &str = "No";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PlanAnswer {
    Build,
    /// Do not carry out the plan; the person gave no reason.
    Stay,
    /// Do not carry out the plan, for this reason.
    Words(String),
}

pub(crate) fn spec() -> tool::Spec {
    tool_spec(
        "plan_exit",
        "Ends planning: asks the person whether the agent build should carry out the plan. Call it once your answer \
         contains the complete plan and the person has no open decision to make. The answer may take hours.",
        json!({"type": "object", "properties": {}, "additionalProperties": false}),
    )
}

/// The question to the person.
pub(crate) fn questions() -> Vec<Question> {
    let choice = |label: &str, description: &str| Choice {
        label: label.to_owned(),
        description: description.to_owned(),
    };
    vec![Question {
        question: "The plan is complete. Should the agent build carry it out?".to_owned(),
        header: "Build".to_owned(),
        options: vec![
            choice(YES, "The agent build takes over and may change files"),
            choice(NO, "Nothing is changed; say what the plan lacks"),
        ],
        multiple: false,
    }]
}

/// Reads the answer to [`questions`].
pub(crate) fn answer_of(labels: &[Vec<String>]) -> PlanAnswer {
    let words: Vec<&str> = labels.iter().flatten().map(|label| label.trim()).collect();
    match words[..] {
        [label] if label.eq_ignore_ascii_case(YES) => PlanAnswer::Build,
        [label] if label.is_empty() || label.eq_ignore_ascii_case(NO) => PlanAnswer::Stay,
        [] => PlanAnswer::Stay,
        _ => PlanAnswer::Words(words.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_yes_begins_the_work() {
        for (labels, want) in [
            (&["Yes"][..], PlanAnswer::Build),
            (&[" yes "], PlanAnswer::Build),
            (&["No"], PlanAnswer::Stay),
            (&[""], PlanAnswer::Stay),
            (&[], PlanAnswer::Stay),
            (&["Yes", "No"], PlanAnswer::Words("Yes, No".to_owned())),
            (&["yes, but without tests"], PlanAnswer::Words("yes, but without tests".to_owned())),
        ] {
            let labels: Vec<String> = labels.iter().map(ToString::to_string).collect();
            assert_eq!(answer_of(std::slice::from_ref(&labels)), want, "{labels:?}");
        }
        assert_eq!(questions()[0].options[0].label, YES);
    }
}
