//! The tools that a session asks about or must not use, as the flags of `run` name them.

use domain::policy::{permission, tool};
use rpc::v1::{PermissionRule, PermissionVerdict};

/// Between a permission and the pattern of its subjects.
const SEPARATOR: char = ':';
/// Similarity from which on a name is suggested; 1 is the same.
const SIMILARITY_MIN: f64 = 0.7;

/// What a rule is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RuleSubject {
    permission: String,
    /// Empty: any command, path or agent.
    pattern: String,
    /// The tool that was named, if its permission has another name.
    tool: Option<String>,
}

/// Reads `bash`, `bash:git push*`, `edit` and the like. A name that no call has would count for nothing, so it is refused.
pub(super) fn parse(words: &str) -> Result<RuleSubject, String> {
    let (name, pattern) = words.split_once(SEPARATOR).unwrap_or((words, ""));
    let subject = |permission: &str, tool: Option<&str>| RuleSubject {
        permission: permission.to_owned(),
        pattern: pattern.to_owned(),
        tool: tool.map(ToOwned::to_owned),
    };
    if tool::EDITING.contains(&name) {
        return Ok(subject(permission::EDIT, Some(name)));
    }
    if permission::is_known(name) {
        return Ok(subject(name, None));
    }
    let permissions = permission::names();
    let known = permissions.iter().chain(&tool::EDITING).map(|known| (strsim::jaro(name, known), *known));
    let nearest =
        known.max_by(|one, other| one.0.total_cmp(&other.0)).filter(|near| near.0 >= SIMILARITY_MIN);
    let hint = nearest.map(|(_, known)| format!(" Did you mean {known}?")).unwrap_or_default();
    Err(format!(
        "no tool and no permission has the name {name:?}.{hint} The permissions are: {}",
        permissions.join(", ")
    ))
}

impl RuleSubject {
    pub(super) fn rule(&self, verdict: PermissionVerdict) -> PermissionRule {
        let (permission, pattern) = (self.permission.clone(), self.pattern.clone());
        PermissionRule { permission, pattern, verdict: verdict.into() }
    }

    /// What people should know about the rule.
    pub(super) fn note(&self) -> Option<String> {
        let tool = self.tool.as_ref()?;
        Some(format!(
            "{tool} needs the permission {}, which all tools that change files share",
            self.permission
        ))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_rule_is_about_a_permission_that_calls_have() {
        for (words, permission, pattern) in [
            ("bash", "bash", ""),
            ("bash:git push*", "bash", "git push*"),
            ("bash:a:b", "bash", "a:b"),
            ("web*", "web*", ""),
            ("*", "*", ""),
            ("external_directory:/etc/*", "external_directory", "/etc/*"),
            // These tools have no permission of their own.
            ("write", "edit", ""),
            ("multiedit:src/*", "edit", "src/*"),
        ] {
            let subject = parse(words).unwrap();
            assert_eq!(
                (subject.permission.as_str(), subject.pattern.as_str()),
                (permission, pattern),
                "{words}"
            );
            assert_eq!(subject.note().is_some(), permission == "edit", "{words}");
        }
        for (words, hint) in
            [("bsah", "bash"), ("webfetsch:x", "webfetch"), ("wirte", "write"), ("todo", "todoread")]
        {
            let refused = parse(words).unwrap_err();
            assert!(refused.contains(&format!(". Did you mean {hint}? The permissions are: ")), "{refused}");
            assert!(refused.contains("apply_patch") || refused.contains("bash, "), "{refused}");
        }
        assert_eq!(
            parse("xyzzy").unwrap_err(),
            "no tool and no permission has the name \"xyzzy\". The permissions are: bash, batch, doom_loop, edit, \
             external_directory, glob, grep, list, network, plan_exit, question, read, skill, task, todoread, todowrite, \
             webfetch"
        );
        for words in ["", "Bash", "xyzzy", "wri*", " bash"] {
            assert!(parse(words).is_err(), "{words}");
        }
    }
}
