//! Permission rules in OpenCode's format: what a session may do, must ask for, or must not do.

use crate::{policy::tool, text};
use serde::{Deserialize, Serialize};

/// The permission to change files.
pub const EDIT: &str = "edit";

/// The permissions that no tool has the name of: for a call that repeats itself, and for directories outside of the workspace.
const OTHERS: [&str; 2] = ["doom_loop", "external_directory"];

/// The names of all permissions, sorted.
pub fn names() -> Vec<&'static str> {
    let of_tools = tool::NAMES.into_iter().filter(|name| !tool::EDITING.contains(name));
    let mut names: Vec<_> = of_tools.chain(OTHERS).collect();
    names.sort_unstable();
    names
}

/// Whether a rule of this name, which may have wildcards, is about any permission.
pub fn is_known(name: &str) -> bool {
    names().iter().any(|permission| matches(name, permission))
}

/// The verdict of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Allow,
    Ask,
    /// The call must not run.
    Deny,
}

/// The scope of an answer "always".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    #[default]
    Session,
    /// All sessions of its project.
    Project,
    /// All sessions of its tenant.
    Tenant,
}

/// What a session does when it would have to ask a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnAsk {
    /// It waits for an answer, until the deadline.
    #[default]
    Park,
    /// It refuses the call, tells the model, and continues.
    Deny,
    /// Its turn ends.
    Fail,
}

impl OnAsk {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Park => "park",
            Self::Deny => "deny",
            Self::Fail => "fail",
        }
    }

    /// Reads [`OnAsk::as_str`].
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Park, Self::Deny, Self::Fail].into_iter().find(|known| known.as_str() == text)
    }
}

/// One rule.
///
/// ```json
/// {"permission":"bash","pattern":"git push*","action":"ask"}
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The tools: a name, with `*` for any text and `?` for any one character.
    pub permission: String,
    /// The subjects of the tool call, with the same wildcards: a command, a path, the name of an agent.
    pub pattern: String,
    pub action: Verdict,
    /// Whether it comes from an answer "always". Such a rule replaces a question, but cannot allow anything that another rule
    /// denies.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_approval: bool,
}

impl Rule {
    /// A rule for every use of `permission`.
    pub fn of(permission: &str, action: Verdict) -> Self {
        Self { permission: permission.to_owned(), pattern: "*".to_owned(), action, is_approval: false }
    }

    /// The rule for an answer "always".
    pub fn approval(permission: &str, pattern: &str) -> Self {
        let (permission, pattern) = (permission.to_owned(), pattern.to_owned());
        Self { permission, pattern, action: Verdict::Allow, is_approval: true }
    }

    fn fits(&self, permission: &str, subject: &str) -> bool {
        matches(&self.permission, permission) && matches(&self.pattern, subject)
    }
}

/// Rules in order: the last one that matches decides.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rules(pub Vec<Rule>);

impl Rules {
    /// The verdict for using `permission` on `subject`. A use that matches no rule is allowed.
    pub fn verdict(&self, permission: &str, subject: &str) -> Verdict {
        self.find_verdict(permission, subject).unwrap_or(Verdict::Allow)
    }

    /// The verdict for using `permission` on `subject`, if any rule matches.
    pub fn find_verdict(&self, permission: &str, subject: &str) -> Option<Verdict> {
        let newest = self.rules().rev().find(|rule| rule.fits(permission, subject))?;
        match newest.action {
            Verdict::Ask if self.approves(permission, subject) => Some(Verdict::Allow),
            verdict => Some(verdict),
        }
    }

    /// Whether a person answered "always" for using `permission` on `subject`.
    pub fn approves(&self, permission: &str, subject: &str) -> bool {
        self.0.iter().any(|rule| rule.is_approval && rule.fits(permission, subject))
    }

    /// The strictest verdict that any rule about `permission` could give, for a use that is not known exactly.
    pub fn strictest_of(&self, permission: &str) -> Verdict {
        let about = self.rules().filter(|rule| matches(&rule.permission, permission));
        about.map(|rule| rule.action).max().unwrap_or(Verdict::Allow)
    }

    /// Whether the rules deny every use of `permission`, so that the model need not see the tool.
    pub fn hides(&self, permission: &str) -> bool {
        let last = self.rules().rev().find(|rule| matches(&rule.permission, permission));
        last.is_some_and(|rule| rule.pattern == "*" && rule.action == Verdict::Deny)
    }

    /// The written rules, without answers "always".
    fn rules(&self) -> impl DoubleEndedIterator<Item = &Rule> {
        self.0.iter().filter(|rule| !rule.is_approval)
    }
}

/// The strictest verdict of several lists: a child session may do only what both its agent and its parent may.
///
/// No later list can overrule a denial or a question of an earlier list, as it could if the lists were appended.
pub fn strictest(lists: &[&Rules], permission: &str, subject: &str) -> Verdict {
    lists.iter().map(|rules| rules.verdict(permission, subject)).max().unwrap_or(Verdict::Allow)
}

/// Whether `text` matches a pattern of `*` (any text) and `?` (any one character), as a whole. `git *` matches `git` too.
fn matches(pattern: &str, text: &str) -> bool {
    pattern.strip_suffix(" *").is_some_and(|bare| text::fits(bare, text)) || text::fits(pattern, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(list: &[(&str, &str, Verdict)]) -> Rules {
        let rule = |(permission, pattern, action): &(&str, &str, Verdict)| Rule {
            permission: (*permission).to_owned(),
            pattern: (*pattern).to_owned(),
            action: *action,
            is_approval: false,
        };
        Rules(list.iter().map(rule).collect())
    }

    #[test]
    fn every_tool_has_a_permission_that_rules_can_name() {
        for tool in tool::NAMES {
            assert_eq!(is_known(tool), !tool::EDITING.contains(&tool), "{tool}");
        }
        assert!(
            names().is_sorted() && is_known("web*") && is_known("*") && !is_known("bsah") && !is_known("")
        );
    }

    #[test]
    fn wildcards_fit_whole_texts() {
        for (pattern, text, fits) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("git *", "git push", true),
            ("git *", "git", true),
            ("git *", "gitk", false),
            ("git * *", "git a", true),
            ("*.rs", "a/b.rs", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b", "ab a", false),
            ("ä*", "äö", true),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
        }
    }

    #[test]
    fn the_last_rule_that_fits_decides() {
        let rules = rules(&[
            ("*", "*", Verdict::Deny),
            ("bash", "*", Verdict::Ask),
            ("bash", "git *", Verdict::Allow),
        ]);
        assert_eq!(rules.verdict("bash", "git status"), Verdict::Allow);
        assert_eq!(rules.verdict("bash", "rm"), Verdict::Ask);
        assert_eq!(rules.verdict("edit", "a"), Verdict::Deny);
        assert_eq!(Rules::default().verdict("edit", "a"), Verdict::Allow);
        assert!(rules.hides("edit") && !rules.hides("bash"));
    }

    #[test]
    fn an_approval_ends_the_asking_and_nothing_else() {
        let mut rules = rules(&[("bash", "*", Verdict::Ask), ("bash", "*secret*", Verdict::Deny)]);
        rules.0.push(Rule::approval("bash", "echo *"));
        assert_eq!(rules.verdict("bash", "echo hi"), Verdict::Allow);
        assert_eq!(rules.verdict("bash", "echo secret"), Verdict::Deny);
        assert_eq!(rules.verdict("bash", "touch a"), Verdict::Ask);
        assert_eq!(rules.strictest_of("bash"), Verdict::Deny);
        assert!(!Rules(vec![Rule::of("bash", Verdict::Deny), Rule::approval("bash", "*")]).0.is_empty());
        assert!(Rules(vec![Rule::of("bash", Verdict::Deny), Rule::approval("bash", "*")]).hides("bash"));
        let json = serde_json::to_value(&rules.0[0]).expect("json");
        assert!(json.get("is_approval").is_none(), "OpenCode's shape stays: {json}");
    }

    #[test]
    fn a_childs_rules_never_widen_its_parents() {
        let parent = rules(&[("bash", "*", Verdict::Deny), ("edit", "*", Verdict::Ask)]);
        let child = rules(&[("*", "*", Verdict::Allow), ("read", "*", Verdict::Deny)]);
        for (permission, want) in [
            ("bash", Verdict::Deny),
            ("edit", Verdict::Ask),
            ("read", Verdict::Deny),
            ("glob", Verdict::Allow),
        ] {
            assert_eq!(strictest(&[&parent, &child], permission, "x"), want, "{permission}");
            assert_eq!(strictest(&[&child, &parent], permission, "x"), want, "{permission}, other order");
        }
    }
}
