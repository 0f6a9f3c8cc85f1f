//! What a model is reminded of while it plans, and once when planning is over. It stands beside the person's words, in the same
//! place each time the conversation is told, so that providers' caches stay warm.

use domain::agent::Agent;

const PLANS: &str = "<system-reminder>\nYou are planning. The person does not want anything changed yet, whatever else you \
     were told: do not edit, create or remove files, do not commit, do not install or configure anything, and run only commands \
     that change nothing. You may look: read, search, and give such work to subagents.\nWork out a plan: what is to be changed \
     where and why, in which order, and how it will be checked. Ask the person what only they can decide. Tell the whole plan in \
     your answer, and when it is complete, call the tool plan_exit.\n</system-reminder>";
const BUILDS: &str = "<system-reminder>\nPlanning is over, and you are another agent now: build. You may change files, run \
     commands and use all tools that you have.\n</system-reminder>";

/// What stands beside a message for `agent`, where the step before it was one of `before`.
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
