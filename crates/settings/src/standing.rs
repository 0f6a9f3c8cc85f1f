//! Settings above repositories: those of the platform, which are in a file, and those of tenants and projects, which the store
//! holds.

use crate::{document::Document, merge::merge, problem::Problems, proposal, substitute::Refusal};
use domain::policy::{level::Level, reference::Reference};

/// Parses the settings of the platform. `env` returns variables; only the operator may refer to them.
///
/// # Errors
/// All mistakes.
pub fn platform(file: &str, text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Document, Problems> {
    checked(Level::Platform, file, text, &mut |reference| match reference {
        Reference::Env(name) => env(name).ok_or_else(|| Refusal("it is not set".to_owned())),
        Reference::File(_) => Err(Refusal("files are not read".to_owned())),
    })
}

/// Parses stored settings of a tenant or a project. They cannot refer to variables or files.
///
/// # Errors
/// All mistakes.
pub fn stored(level: Level, text: &str) -> Result<Document, Problems> {
    checked(level, &format!("{}.json", level.as_str()), text, &mut |reference| match reference {
        Reference::Env(_) => Err(Refusal("stored settings cannot read the environment".to_owned())),
        Reference::File(_) => Err(Refusal("stored settings cannot read files".to_owned())),
    })
}

/// Parses an environment that a repository proposed in `file`, and that an admin has allowed. Its values have no lines: the text is not that of the file.
///
/// # Errors
/// All mistakes.
pub fn allowed(file: &str, text: &str) -> Result<Document, Problems> {
    let mut document = checked(Level::Environment, file, text, &mut proposal::refuse_reference)?;
    document.root.forget_lines();
    Ok(document)
}

fn checked(
    level: Level,
    file: &str,
    text: &str,
    find: &mut dyn FnMut(Reference<'_>) -> Result<String, Refusal>,
) -> Result<Document, Problems> {
    let mut document = Document::json(level, file, text)?;
    document.substitute(find)?;
    merge(std::slice::from_ref(&document))?;
    Ok(document)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn only_the_platform_has_an_environment() {
        let text = "{\"default_agent\": \"{env:AGENT}\"}";
        let env = |name: &str| (name == "AGENT").then(|| "plan".to_owned());
        let document = platform("p.json", text, &env).unwrap();
        assert_eq!(merge(&[document]).unwrap().settings.default_agent.as_deref(), Some("plan"));
        for text in [text, "{\"default_agent\": \"{file:/etc/passwd}\"}"] {
            let refused = stored(Level::Tenant, text).unwrap_err().to_string();
            assert!(refused.starts_with("tenant.json:1:19: default_agent"), "{refused}");
        }
        assert!(platform("p.json", text, &|_| None).is_err());
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let refused = stored(Level::Project, "{\n \"modle\": 1}").unwrap_err().to_string();
        assert!(refused.starts_with("project.json:2:2: modle: expected one of"), "{refused}");
    }
}
