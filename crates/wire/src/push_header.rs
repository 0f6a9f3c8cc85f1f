//! The header of a push to a destination that settings allow.

use crate::v1::{PushHeader, PushRule};
use settings::push::PushDestination;

impl From<&PushDestination> for PushHeader {
    /// The repository, the rule and the branch. The caller adds whose push it is.
    fn from(destination: &PushDestination) -> Self {
        let PushDestination { url, prefix, rule, branch } = destination;
        Self {
            url: url.clone(),
            rule: Some(PushRule {
                url_prefix: prefix.to_string(),
                secret: rule.credential.to_string(),
                branch_prefix: rule.branches.to_string(),
                denied_paths: rule.deny.clone(),
            }),
            branch: branch.to_string(),
            ..Self::default()
        }
    }
}
