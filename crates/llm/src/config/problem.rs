//! What is wrong with the configuration of the providers.

/// One thing that is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Key path, for example `provider[0].models[1].context`.
    pub path: String,
    /// What is wrong.
    pub text: String,
}

impl Problem {
    pub(crate) fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { path: path.into(), text: text.into() }
    }
}

/// Settings that cannot be used: all their problems, or the place where they stop being TOML.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Not TOML.
    #[error("the settings are not TOML: {0}")]
    Syntax(String),
    /// TOML with mistakes, one line each.
    #[error("{}", lines(.0))]
    Problems(Vec<Problem>),
}

impl ConfigError {
    pub(crate) fn unless_empty(problems: Vec<Problem>) -> Result<(), Self> {
        match problems.is_empty() {
            true => Ok(()),
            false => Err(Self::Problems(problems)),
        }
    }
}

fn lines(problems: &[Problem]) -> String {
    let line = |problem: &Problem| format!("{}: {}", problem.path, problem.text);
    problems.iter().map(line).collect::<Vec<_>>().join("\n")
}
