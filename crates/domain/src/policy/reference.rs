//! References in the texts of settings, as OpenCode writes them: `{env:NAME}` and `{file:path}`.

/// References to files in the settings of one repository. Further ones are refused.
pub const SETTINGS_REFERENCES_MAX: usize = 100;

/// A reference in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reference<'a> {
    /// A variable of the environment.
    Env(&'a str),
    /// A file, as it was written: relative to the settings file, absolute, or under `~/`.
    File(&'a str),
}

/// Returns the first reference of a text, with the text before and after it. Skips braces that are not a reference.
pub fn next(text: &str) -> Option<(&str, Reference<'_>, &str)> {
    for (at, _) in text.match_indices('{') {
        let (before, rest) = text.split_at(at);
        let (is_env, rest) = match (rest.strip_prefix("{env:"), rest.strip_prefix("{file:")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => continue,
        };
        // If no closing brace follows this one, none follows a later one.
        let (name, after) = rest.split_once('}')?;
        if !name.is_empty() {
            let reference = if is_env { Reference::Env(name) } else { Reference::File(name) };
            return Some((before, reference, after));
        }
    }
    None
}

/// Whether the texts of the settings file at `path` can have references. As in OpenCode, those of agents and commands in Markdown have none.
pub fn has_references(path: &str) -> bool {
    ["opencode.json", "opencode.jsonc"].contains(&path.strip_prefix(".opencode/").unwrap_or(path))
}

/// The path of the file that the settings file at `path` names as `written`, both relative to their repository; `None`: it is outside.
pub fn path_in_repository(path: &str, written: &str) -> Option<String> {
    if written.starts_with(['/', '~']) || written.contains(['\\', '\0']) {
        return None;
    }
    let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
    let mut parts: Vec<&str> = vec![];
    for part in directory.split('/').chain(written.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    let is_git = parts.first().is_some_and(|first| first.eq_ignore_ascii_case(".git"));
    (!parts.is_empty() && !is_git).then(|| parts.join("/"))
}

/// The files that the settings `text` at `path` name, relative to their repository, in order. References in comments count too.
pub fn files(path: &str, text: &str) -> Vec<String> {
    let (mut rest, mut files) = (text, vec![]);
    if !has_references(path) {
        return files;
    }
    while let Some((_, reference, after)) = next(rest) {
        rest = after;
        let Reference::File(written) = reference else { continue };
        match path_in_repository(path, written) {
            Some(file) if files.len() < SETTINGS_REFERENCES_MAX && !files.contains(&file) => files.push(file),
            Some(_) | None => {}
        }
    }
    files
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn only_files_of_the_repository_are_named() {
        for (path, written, want) in [
            ("opencode.json", "./prompts/x.txt", Some("prompts/x.txt")),
            ("opencode.json", "prompts//x.txt", Some("prompts/x.txt")),
            (".opencode/opencode.jsonc", "./x.txt", Some(".opencode/x.txt")),
            (".opencode/opencode.jsonc", "../docs/x.md", Some("docs/x.md")),
            ("opencode.json", "../x", None),
            ("opencode.json", "a/../../x", None),
            ("opencode.json", "/etc/passwd", None),
            ("opencode.json", "~/.ssh/id", None),
            ("opencode.json", ".git/config", None),
            ("opencode.json", "a/../.GIT/config", None),
            ("opencode.json", "..\\x", None),
            ("opencode.json", ".", None),
        ] {
            assert_eq!(path_in_repository(path, written).as_deref(), want, "{path} {written}");
        }
    }

    #[test]
    fn files_are_found_once_and_not_in_markdown() {
        let text = r#"{"a": "{file:./x} {env:Y} {file:x}{file:}", // {file:z}"#;
        assert_eq!(files("opencode.json", text), ["x", "z"]);
        assert!(files(".opencode/agent/a.md", text).is_empty());
        let many: String = (0..=SETTINGS_REFERENCES_MAX).map(|n| format!("{{file:{n}}}")).collect();
        assert_eq!(files("opencode.json", &many).len(), SETTINGS_REFERENCES_MAX);
    }
}
