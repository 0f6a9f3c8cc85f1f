//! Claude Code's forms of restrictions: lists of its tools, and rules such as `Bash(git push:*)`. Its names mean the tools of Flotilla that do the
//! same. A tool without a counterpart does not exist here, so nothing has to forbid it.

use domain::policy::{
    permission::{Rule, Verdict},
    tool,
};

/// One entry of a list: a tool, and the part of its uses that the entry is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ToolEntry<'a> {
    tool: &'a str,
    pattern: Option<&'a str>,
}

impl<'a> ToolEntry<'a> {
    /// Reads `Bash(git push:*)`. `None`: it is no name with at most one pattern in parentheses.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let text = text.trim();
        let (tool, pattern) = match text.split_once('(') {
            Some((tool, rest)) => (tool, Some(rest.strip_suffix(')')?)),
            None => (text, None),
        };
        let is_name = |c: char| c.is_alphanumeric() || "_-*.:/".contains(c);
        let is_tool = !tool.is_empty() && tool.chars().all(is_name);
        // A pattern of everything is no pattern.
        let pattern = pattern.filter(|pattern| !["", "*", ":*", "**"].contains(pattern));
        is_tool.then_some(Self { tool, pattern })
    }

    /// The rules that give this entry's uses a verdict.
    fn rules(self, verdict: Verdict) -> Vec<Rule> {
        let Some(permission) = permission(self.tool) else { return vec![] };
        let Some(pattern) = self.pattern else { return vec![Rule::of(permission, verdict)] };
        let patterns = match permission {
            "bash" => commands(pattern, verdict),
            "read" | "edit" => paths(pattern),
            "webfetch" => pages(pattern, verdict),
            "task" | "skill" => vec![pattern.to_owned()],
            // These tools have no patterns in Claude Code: forbid every use, and permit none.
            _ if verdict == Verdict::Allow => vec![],
            _ => vec!["*".to_owned()],
        };
        let rule = |pattern| Rule { pattern, ..Rule::of(permission, verdict) };
        patterns.into_iter().map(rule).collect()
    }
}

/// The entries of a text: `Read, Grep, Bash(git log:*)`. Commas and white space inside parentheses part nothing.
pub(crate) fn entries(text: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let parts = text.split(|c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && (c == ',' || c.is_whitespace())
    });
    parts.filter(|part| !part.is_empty()).collect()
}

/// The rules that give the uses of all entries a verdict.
pub(crate) fn all(entries: &[ToolEntry<'_>], verdict: Verdict) -> Vec<Rule> {
    entries.iter().flat_map(|entry| entry.rules(verdict)).collect()
}

/// The rules of a list of the only tools that an agent has.
pub(crate) fn only(entries: &[ToolEntry<'_>]) -> Vec<Rule> {
    if entries.iter().any(|entry| entry.tool == "*") {
        return vec![];
    }
    let allowed = all(entries, Verdict::Allow);
    let has = |name: &str| allowed.iter().any(|rule| rule.permission == name);
    let comes_along = |name: &str| match name {
        // It only asks people to open a host for commands and pages.
        "network" => has("bash") || has("webfetch"),
        "todoread" => has("todowrite"),
        _ => false,
    };
    // A batch has no permission: each of its calls is judged by itself.
    let permissions = tool::NAMES.into_iter().filter(|name| permission(name) == Some(name));
    let denied = permissions.filter(|name| !comes_along(name));
    let denied: Vec<Rule> = denied.map(|name| Rule::of(name, Verdict::Deny)).collect();
    [denied, allowed].concat()
}

/// The permission that a tool of Claude Code, or one of Flotilla's own, needs.
fn permission(tool: &str) -> Option<&'static str> {
    Some(match tool.to_ascii_lowercase().as_str() {
        "bash" => "bash",
        "read" | "notebookread" => "read",
        "edit" | "multiedit" | "write" | "notebookedit" | "patch" | "apply_patch" => "edit",
        "grep" => "grep",
        "glob" => "glob",
        "ls" | "list" => "list",
        "task" | "agent" => "task",
        "webfetch" => "webfetch",
        "todowrite" => "todowrite",
        "todoread" => "todoread",
        "skill" => "skill",
        "question" | "askuserquestion" => "question",
        "plan_exit" | "exitplanmode" => "plan_exit",
        "network" => "network",
        _ => return None,
    })
}

/// Patterns of commands. `git push:*` is every command that begins so.
fn commands(pattern: &str, verdict: Verdict) -> Vec<String> {
    let Some(prefix) = pattern.strip_suffix(":*") else { return vec![pattern.to_owned()] };
    match verdict {
        Verdict::Allow => vec![format!("{prefix} *")],
        Verdict::Ask | Verdict::Deny => vec![format!("{prefix}*")],
    }
}

/// Patterns of paths, which Claude Code writes like those of .gitignore. `*` of Flotilla's patterns crosses directories.
fn paths(pattern: &str) -> Vec<String> {
    let (anchored, path) = match pattern {
        _ if pattern.starts_with("//") => (true, pattern[1..].to_owned()),
        // The home of another machine: the same directory of any home.
        _ if pattern.starts_with("~/") => (false, pattern[2..].to_owned()),
        _ if pattern.starts_with("./") => (true, pattern[2..].to_owned()),
        _ if pattern.starts_with('/') => (true, pattern[1..].to_owned()),
        _ if pattern.starts_with("**/") => (false, pattern[3..].to_owned()),
        _ => (pattern.trim_end_matches('/').contains('/'), pattern.to_owned()),
    };
    let mut path = path.replace("**/", "*").replace("**", "*");
    if path.ends_with('/') {
        path.push('*');
    }
    // A directory has the files below it.
    let below = (!path.ends_with('*')).then(|| format!("{path}/*"));
    let here: Vec<String> = std::iter::once(path).chain(below).collect();
    if anchored {
        return here;
    }
    let deeper: Vec<String> = here.iter().map(|path| format!("*/{path}")).collect();
    [here, deeper].concat()
}

/// Patterns of URLs. `domain:example.com` is every page of this host.
fn pages(pattern: &str, verdict: Verdict) -> Vec<String> {
    let Some(host) = pattern.strip_prefix("domain:") else { return vec![pattern.to_owned()] };
    match verdict {
        Verdict::Allow => ["http", "https"]
            .into_iter()
            .flat_map(|scheme| [format!("{scheme}://{host}"), format!("{scheme}://{host}/*")])
            .collect(),
        // However a URL writes the host.
        Verdict::Ask | Verdict::Deny => vec![format!("*{host}*")],
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use domain::policy::permission::{
        Rules,
        Verdict::{Allow, Ask, Deny},
    };

    fn rules(text: &str, verdict: Verdict) -> Rules {
        Rules(ToolEntry::parse(text).unwrap().rules(verdict))
    }

    #[test]
    fn a_rule_forbids_what_it_forbids_in_claude_code() {
        for (entry, permission, subject, want) in [
            ("Bash", "bash", "ls", Deny),
            ("Bash(*)", "bash", "ls", Deny),
            ("Bash(git push:*)", "bash", "git push origin", Deny),
            ("Bash(git push:*)", "bash", "git push", Deny),
            ("Bash(git push:*)", "bash", "git pull", Allow),
            ("Bash(npm run build)", "bash", "npm run build", Deny),
            ("Bash(npm run build)", "bash", "npm run test", Allow),
            ("Bash(curl *)", "bash", "curl x", Deny),
            ("Read(./.env)", "read", ".env", Deny),
            ("Read(./.env)", "read", "web/.env", Allow),
            ("Read(.env)", "read", "web/.env", Deny),
            ("Read(**/.env)", "read", ".env", Deny),
            ("Read(./secrets/**)", "read", "secrets/a/b", Deny),
            ("Read(secrets/)", "read", "secrets/a", Deny),
            ("Read(/secrets)", "read", "secrets/a", Deny),
            ("Read(//etc/passwd)", "read", "/etc/passwd", Deny),
            ("Read(~/.ssh/**)", "read", "/home/x/.ssh/id", Deny),
            ("Read(src/**/*.key)", "read", "src/a/b.key", Deny),
            ("Write(docs/**)", "edit", "docs/a", Deny),
            ("MultiEdit", "edit", "a", Deny),
            ("WebFetch(domain:example.com)", "webfetch", "https://example.com/x", Deny),
            ("WebFetch(domain:example.com)", "webfetch", "https://example.org/x", Allow),
            ("Task(explore)", "task", "explore", Deny),
            ("Grep(x)", "grep", "y", Deny),
            ("mcp__github__push", "bash", "ls", Allow),
        ] {
            assert_eq!(rules(entry, Deny).verdict(permission, subject), want, "{entry} {subject}");
        }
        assert_eq!(rules("Bash(rm:*)", Ask).verdict("bash", "rm x"), Ask);
        for wrong in ["", "Bash(", "Bash(a", "Bash(a)b", "Ba sh", "(x)"] {
            assert_eq!(ToolEntry::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_list_of_tools_permits_them_and_nothing_else() {
        let of = |text: &str| {
            let entries: Vec<_> = entries(text).into_iter().map(|it| ToolEntry::parse(it).unwrap()).collect();
            Rules(only(&entries))
        };
        let reader = of("Read, Grep,Glob  LS");
        for permitted in ["read", "grep", "glob", "list", "batch"] {
            assert!(!reader.hides(permitted), "{permitted}");
        }
        for denied in ["bash", "edit", "task", "webfetch", "network", "question", "skill", "todowrite"] {
            assert!(reader.hides(denied), "{denied}");
        }
        let git = of("Bash(git log:*), Bash(git show), Read");
        assert!(!git.hides("bash") && !git.hides("network"));
        for (command, want) in [("git log -1", Allow), ("git log", Allow), ("git logs", Deny), ("ls", Deny)] {
            assert_eq!(git.verdict("bash", command), want, "{command}");
        }
        assert_eq!(of("WebFetch(domain:a.b)").verdict("webfetch", "https://evil?https://a.b/"), Deny);
        assert!(of("*").0.is_empty() && of("Grpe").hides("grep") && of("").hides("read"));
    }
}
