//! Reminders for a model that plans, and one at the end of planning. A reminder follows the person's text at the same position in
//! every request, so that the provider's cache stays warm.

use domain::policy::agent::Agent;

const PLANS: &str = "<system-reminder>\nYou are planning. The person does not want anything changed yet, whatever else you \
     were told: do not edit, create or remove files, do not commit, do not install or configure anything, and run only commands \
     that change nothing. You may read and search, and delegate such work to subagents.\nMake a plan: what to change \
     where and why, in which order, and how to check it. Ask the person what only they can decide. Write the whole plan in \
     your answer, and when it is complete, call the tool plan_exit.\n</system-reminder>";
const BUILDS: &str = "<system-reminder>\nPlanning is over, and you are another agent now: build. You may change files, run \
     commands and use all tools that you have.\n</system-reminder>";

/// The reminder after a message to `agent`, if the agent `before` answered the previous message.
pub(super) fn reminder(agent: &str, before: Option<&str>) -> Option<&'static str> {
    let plan = Agent::Plan.as_str();
    if agent == plan {
        Some(PLANS)
    } else if before == Some(plan) && agent == Agent::Build.as_str() {
        Some(BUILDS)
    } else {
        None
    }
}
