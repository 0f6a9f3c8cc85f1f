//! Problems in the provider configuration.

/// One problem and its location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Key path, for example `provider[0].models[1].context`.
    pub path: String,
    pub text: String,
}

impl Problem {
    pub(crate) fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { path: path.into(), text: text.into() }
    }
}

/// Invalid settings: all their problems, or the position of the TOML syntax error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The text is not TOML.
    #[error("the settings are not TOML: {0}")]
    Syntax(String),
    /// Valid TOML with mistakes, one per line.
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
