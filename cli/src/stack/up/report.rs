//! The text that `flotilla up` prints when everything is ready.

use crate::{
    stack::running::Stack,
    terminal::{output::Output, paint::Paint},
};
use anyhow::Result;
use std::{env, path::Path};

/// Tells that the stack is ready: a text for people, and as the last line an object for programs, which has the key of the tenant. The context is that by
/// which commands in other directories find the stack; `ending` says how it is stopped.
pub(super) fn print(output: &Output, stack: &Stack, context: Option<&str>, ending: &str) -> Result<()> {
    if !output.is_json() {
        output.write(&welcome(stack, context, output.paint()))?;
        output.line(&format!("{ending}\n"))?;
    }
    if output.is_terminal() { Ok(()) } else { output.json(&stack.to_json()?) }
}

fn welcome(stack: &Stack, context: Option<&str>, paint: Paint) -> String {
    let mut text = format!("\n{}\n\n", paint.bold("Flotilla is up."));
    let mut row = |name: &str, value: &str| text.push_str(&format!("  {name:<9} {value}\n"));
    row("gateway", &stack.gateway_url);
    if let Some(context) = context {
        row("context", context);
    }
    row("tenant", &stack.tenant);
    row("API key", &stack.api_key);
    match stack.model.as_str() {
        super::provider::SCRIPTED_MODEL => row(
            "model",
            "the built-in scripted one, which knows only the sample repository. For a real one set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, or write a flotilla.toml",
        ),
        model => row("model", model),
    }
    text.push_str("\nIn another terminal:\n\n");
    if let Some(dir) = dir_not_in_path() {
        text.push_str(&format!("  export PATH=\"{dir}:$PATH\"\n"));
    }
    text.push_str("  flotilla run \"fix the failing tests\"      in one of your repositories\n\n");
    text
}

fn dir_not_in_path() -> Option<String> {
    let program = env::current_exe().ok()?;
    let dir = program.parent()?;
    let is_there =
        env::split_paths(&env::var_os("PATH")?).any(|entry: std::path::PathBuf| entry == Path::new(dir));
    (!is_there).then(|| dir.display().to_string())
}
