//! Paths that a push must not touch: those of a list, those that git itself refuses on some system, and links that lead out of the repository.

use crate::text::fits;
use std::sync::LazyLock;

/// Patterns of one list. Beyond it: `settings_invalid`, `config_invalid` or `argument_invalid`.
pub const DENIED_PATTERNS_MAX: usize = 100;
/// Bytes of a pattern. Beyond it: `settings_invalid`, `config_invalid` or `argument_invalid`.
pub const DENIED_PATTERN_BYTES_MAX: usize = 1_024;
/// The patterns that every push has, as data.
static ALWAYS: LazyLock<Vec<String>> =
    LazyLock::new(|| serde_json::from_str(include_str!("denied.json")).unwrap_or_default());

/// The paths that a push must not touch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeniedPaths(Vec<String>);

/// What is wrong with a path or a link.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("pushes must not touch what the pattern {0} covers")]
    Denied(String),
    /// It means git's own directory on some system.
    #[error("it means one of git's own files on some systems")]
    GitDirectory,
    /// A link leads out of the repository.
    #[error("it is a link that leads out of the repository, or may do so")]
    LinkOutside,
}

impl Default for DeniedPaths {
    fn default() -> Self {
        Self(ALWAYS.clone())
    }
}

impl DeniedPaths {
    /// The list that every push has, and these patterns.
    pub fn with(patterns: impl IntoIterator<Item = String>) -> Self {
        Self(ALWAYS.iter().cloned().chain(patterns).collect())
    }

    /// Checks the path of a file that a commit adds, changes or removes.
    ///
    /// # Errors
    /// `Denied`, `GitDirectory`.
    pub fn check(&self, path: &str) -> Result<(), PathError> {
        let parts: Vec<String> = path.split(['/', '\\']).map(folded).collect();
        if parts.iter().any(|part| is_git_directory(part)) {
            return Err(PathError::GitDirectory);
        }
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let denied = self.0.iter().find(|pattern| {
            let pattern: Vec<String> = pattern.split('/').map(str::to_lowercase).collect();
            covers(&pattern, &parts)
        });
        denied.map_or(Ok(()), |pattern| Err(PathError::Denied(pattern.clone())))
    }
}

/// Whether a list can have this pattern: a path with `*`, `?` and `**`.
pub fn is_pattern(text: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && part != "." && part != "..";
    text.len() <= DENIED_PATTERN_BYTES_MAX && !text.contains(char::is_control) && text.split('/').all(is_part)
}

/// Checks where a link at `path` leads. Its target may climb only at its beginning: a directory in the middle may be a link itself.
///
/// # Errors
/// `LinkOutside`, `GitDirectory`.
pub fn check_link(path: &str, target: &str) -> Result<(), PathError> {
    let depth = path.matches('/').count();
    let parts: Vec<&str> = target.split(['/', '\\']).filter(|part| !["", "."].contains(part)).collect();
    let climbs = parts.iter().take_while(|part| **part == "..").count();
    let is_absolute = target.starts_with(['/', '\\']) || target.contains(':');
    let is_plain = parts[climbs..].iter().all(|part| *part != "..");
    if is_absolute || target.is_empty() || target.contains('\0') || climbs > depth || !is_plain {
        return Err(PathError::LinkOutside);
    }
    if parts.iter().any(|part| is_git_directory(&folded(part))) {
        return Err(PathError::GitDirectory);
    }
    Ok(())
}

/// A part of a path as the systems of macOS and Windows see it: they ignore the case, some letters, and dots and spaces at the end, and read what
/// follows a colon as another stream of the same file.
fn folded(part: &str) -> String {
    let is_ignored = |letter: &char| matches!(letter, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}');
    let text: String = part.chars().filter(|letter| !is_ignored(letter)).collect();
    let text = text.split(':').next().unwrap_or_default();
    text.trim_end_matches(['.', ' ']).to_lowercase()
}

/// Windows has short names, such as `git~1`, for files that another program may ask for by their long ones.
fn is_git_directory(folded: &str) -> bool {
    let short = |name: &str| {
        folded.strip_prefix(name).is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    folded == ".git" || short("git~") || short("gitmod~") || short("gi7eba~")
}

/// Whether a pattern covers a path: `**` is any number of parts, none as well, so that a link in place of a directory is covered too.
fn covers(pattern: &[String], path: &[&str]) -> bool {
    // Greedy with one step back to the last `**`, as in `fits`.
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < path.len() {
        match pattern.get(p) {
            Some(part) if part == "**" => {
                star = Some((p, t));
                p += 1;
            }
            Some(part) if fits(part, path[t]) => (p, t) = (p + 1, t + 1),
            _ => match star {
                Some((at, from)) => {
                    (p, t) = (at + 1, from + 1);
                    star = Some((at, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|part| part == "**")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn some_paths_are_denied_in_every_spelling() {
        let paths = DeniedPaths::with(["secrets/*.pem".to_owned(), "**/deploy/**".to_owned()]);
        for path in [
            "src/main.rs",
            ".github/workflow",
            ".github/dependabot.yml",
            "src/CODEOWNERS",
            "Jenkinsfiles",
            "docs/azure-pipelines.md",
            "a/.gitmodules",
            ".gitignore",
            ".gitattributes",
            "a.git/x",
            "git/x",
            "secrets/a/b.pem",
            "deployment",
            "x.github/workflows/a",
        ] {
            assert_eq!(paths.check(path), Ok(()), "{path}");
        }
        for (path, pattern) in [
            (".github/workflows/ci.yml", ".github/workflows/**"),
            (".github/workflows/a/b", ".github/workflows/**"),
            (".GitHub/Workflows/ci.yml", ".github/workflows/**"),
            (".gitmodules", ".gitmodules"),
            (".gitmodules ", ".gitmodules"),
            (".GITMODULES", ".gitmodules"),
            (".git\u{200c}modules", ".gitmodules"),
            (".gitmodules::$INDEX_ALLOCATION", ".gitmodules"),
            (".gitlab-ci.yml", ".gitlab-ci.yml"),
            // Unchanged workflows run them.
            (".github/actions/build/action.yml", ".github/actions/**"),
            ("ci/test.gitlab-ci.yml", "**/*.gitlab-ci.yml"),
            (".gitlab/ci/build.yml", ".gitlab/**"),
            (".gitea/workflows/ci.yaml", ".gitea/**"),
            (".forgejo/workflows/ci.yml", ".forgejo/**"),
            (".circleci/config.yml", ".circleci/**"),
            ("Jenkinsfile", "**/Jenkinsfile"),
            ("service/jenkinsfile", "**/Jenkinsfile"),
            ("Jenkinsfile.release", "**/Jenkinsfile.*"),
            ("azure-pipelines-nightly.yml", "**/azure-pipelines*.yml"),
            ("bitbucket-pipelines.yml", "bitbucket-pipelines.yml"),
            (".buildkite/hooks/pre-command", ".buildkite/**"),
            (".woodpecker.yaml", ".woodpecker*/**"),
            (".woodpecker/test.yml", ".woodpecker*/**"),
            (".drone.star", ".drone.*"),
            (".travis.yml", ".travis.yml"),
            // Who must review.
            ("CODEOWNERS", "CODEOWNERS"),
            ("docs/CODEOWNERS", "docs/CODEOWNERS"),
            (".github/codeowners", ".github/CODEOWNERS"),
            (".gitlab/CODEOWNERS", ".gitlab/**"),
            ("secrets/a.pem", "secrets/*.pem"),
            ("a/b/deploy/x", "**/deploy/**"),
            ("deploy/x", "**/deploy/**"),
            ("deploy", "**/deploy/**"),
            (".github/workflows", ".github/workflows/**"),
        ] {
            assert_eq!(paths.check(path), Err(PathError::Denied(pattern.to_owned())), "{path}");
        }
        for path in [
            ".git",
            ".git/config",
            "a/.git/hooks/x",
            ".GIT/x",
            ".Git",
            "a/.git.",
            ".git ",
            ".git . .",
            ".g\u{200d}it/x",
            "git~1/x",
            "GIT~2",
            ".git::$INDEX_ALLOCATION/x",
            "a\\.git\\config",
            "gi7eba~1",
            "gitmod~1",
        ] {
            assert_eq!(paths.check(path), Err(PathError::GitDirectory), "{path}");
        }
    }

    #[test]
    fn links_stay_inside() {
        for (path, target) in
            [("a", "b"), ("a/b", "../c"), ("a/b/c", "../../d/e"), ("a", "./b"), ("a/b", "c/d")]
        {
            assert_eq!(check_link(path, target), Ok(()), "{path} {target}");
        }
        for (path, target) in [
            ("a", "/etc/passwd"),
            ("a", ".."),
            ("a", "../b"),
            ("a/b", "../../c"),
            ("a/b", "c/../../.."),
            ("a/b", "c/../d"),
            ("a", "C:\\x"),
            ("a", "\\x"),
            ("a", ""),
            ("a", "..\\x"),
            ("a", "b\0c"),
        ] {
            assert_eq!(check_link(path, target), Err(PathError::LinkOutside), "{path} {target}");
        }
        for target in [".git/config", "b/.GIT"] {
            assert_eq!(check_link("a", target), Err(PathError::GitDirectory), "{target}");
        }
    }

    #[test]
    fn a_pattern_is_a_path() {
        assert!(["a", "a/**", "*.pem", "ä/?"].into_iter().all(is_pattern));
        assert!(!["", "/a", "a/", "a//b", "../a", "a\n"].into_iter().any(is_pattern));
        let data = DeniedPaths::default().0;
        assert!(!data.is_empty() && data.iter().all(|pattern| is_pattern(pattern)), "the data is read");
    }
}
