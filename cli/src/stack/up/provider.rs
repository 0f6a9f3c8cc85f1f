//! Selects the models: those of a configured provider, or the built-in scripted one.

use anyhow::{Context as _, Result, bail};
use std::{
    env,
    path::{Path, PathBuf},
};

/// The file to look for in the current directory.
const CONFIG_FILE: &str = "flotilla.toml";
/// The scripted model's name in prompts.
pub(super) const SCRIPTED_MODEL: &str = "scripted/demo";

/// The models of a stack.
#[derive(Debug)]
pub(super) struct Models {
    /// `provider/model`, the default one first; never empty.
    pub names: Vec<String>,
    /// The file that workers read; without it they read their environment.
    pub file: Option<PathBuf>,
}

/// Returns the configured models: those of `config`, else of `./flotilla.toml`, else of the key variables; `None` if
/// nothing is configured.
///
/// # Errors
/// If a file cannot be read or used, with all its problems.
pub(super) fn find(config: Option<&Path>) -> Result<Option<Models>> {
    let file = match config {
        Some(file) => Some(file.canonicalize().with_context(|| format!("open {}", file.display()))?),
        None => Path::new(CONFIG_FILE).canonicalize().ok(),
    };
    let variable = |name: &str| env::var(name).ok().filter(|value| !value.trim().is_empty());
    let config = worker::config::providers(file.as_deref(), &variable)?;
    let default = config.default_model.map(|(provider, model)| format!("{provider}/{model}"));
    let Some(default) = default else {
        return match file {
            Some(file) => bail!("{} configures no model", file.display()),
            None => Ok(None),
        };
    };
    let others = config.providers.known().into_iter().filter(|name| *name != default);
    Ok(Some(Models { names: [default.clone()].into_iter().chain(others).collect(), file }))
}

/// Returns the workers' configuration for the scripted model at `url`.
pub(super) fn scripted_config(url: &str) -> String {
    format!(
        "# Written by `flotilla up`: no provider is configured, so the built-in scripted model answers.
model = \"{SCRIPTED_MODEL}\"

[[provider]]
id = \"scripted\"
kind = \"openai-chat\"
base_url = \"{url}/v1\"
# Calls cost nothing; the prices let you try costs and budgets.
models = [{{ id = \"demo\", price_usd_per_mtok = {{ input = 3, output = 15 }} }}]
"
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn workers_understand_the_scripted_configuration() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("scripted.toml");
        std::fs::write(&file, scripted_config("http://127.0.0.1:1")).unwrap();
        let models = find(Some(&file)).unwrap().unwrap();
        assert_eq!(models.names, [SCRIPTED_MODEL]);
    }
}
