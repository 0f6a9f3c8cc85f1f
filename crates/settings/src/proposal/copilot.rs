//! Reads `copilot-setup-steps.yml`: the variables and commands of its job become an install, and the secrets of GitHub that it names become secrets of the
//! same names. Actions do not run.

use super::builder::{ProposalBuilder, items, members, scalar};
use crate::node::{Member, Node, Origin};
use domain::{secret::SecretName, session::environment::is_variable_name, text::shell_word};

const JOB: &str = "copilot-setup-steps";
/// Brings the files of the repository, which a session has.
const CHECKOUT: &str = "actions/checkout";
/// Begins an expression of GitHub, which nothing evaluates here.
const EXPRESSION: &str = "${{";
/// The secret that GitHub makes for each run. Nothing takes its place here.
const GITHUB_TOKEN: &str = "GITHUB_TOKEN";
/// Keys of a step that change nothing.
const SILENT: [&str; 4] = ["name", "id", "timeout-minutes", "with"];
/// Keys of the job that count, or that say only how GitHub runs it.
const KNOWN: [&str; 7] = ["env", "container", "steps", "name", "runs-on", "permissions", "timeout-minutes"];

/// Reads the root of the file.
pub(super) fn read(root: &Node) -> ProposalBuilder {
    let mut builder = ProposalBuilder::new(root.origin.clone());
    let Some(job) = member(root, "jobs").and_then(|jobs| member(jobs, JOB)) else { return builder };
    let variables = [("env", member(root, "env")), ("env", member(job, "env"))];
    for (key, node) in variables.into_iter().filter_map(|(key, node)| Some((key, node?))) {
        read_variables(&mut builder, key, node);
    }
    if let Some(container) = member(job, "container") {
        match member(container, "image").or(Some(container)).filter(|image| image.as_text().is_some()) {
            Some(image) => builder.set("image", image.clone()),
            None => builder.leave_out("container: it names no image"),
        }
    }
    for entry in members(job).iter().filter(|entry| !KNOWN.contains(&&*entry.key)) {
        builder.leave_out(&format!("{}: nothing takes its place here", entry.key));
    }
    let steps = member(job, "steps").map(items).unwrap_or_default();
    for (at, step) in steps.iter().enumerate() {
        match read_step(step) {
            Ok(Some(step)) => step.add_to(&mut builder, at),
            Ok(None) => {}
            Err(reason) => {
                let name = member(step, "name").and_then(scalar).map(|name| format!(" ({name})"));
                builder.leave_out(&format!("steps[{at}]{}: {reason}", name.unwrap_or_default()));
            }
        }
    }
    builder
}

fn read_variables(builder: &mut ProposalBuilder, key: &str, node: &Node) {
    for entry in members(node) {
        let (text, origin) = (scalar(&entry.node), entry.node.origin.clone());
        if let Some(secret) = text.as_deref().and_then(secret) {
            builder.set_secret(key, &entry.key, Node::text(origin, secret.to_string()));
        } else if let Some(text) = text.filter(|text| !text.contains(EXPRESSION)) {
            builder.set_variable(key, &entry.key, Node::text(origin, text));
        } else {
            builder.leave_out(&format!("{key}.{}: its value is an expression", entry.key));
        }
    }
}

/// The secret that an expression names: `${{ secrets.NPM_TOKEN }}`. GitHub does not tell small letters from capital ones.
fn secret(text: &str) -> Option<SecretName> {
    let name = text.trim().strip_prefix(EXPRESSION)?.strip_suffix("}}")?.trim().strip_prefix("secrets.")?;
    name.to_ascii_uppercase().parse().ok().filter(|name: &SecretName| name.as_str() != GITHUB_TOKEN)
}

struct Step<'a> {
    origin: &'a Origin,
    script: String,
    /// The variables that are secrets. All steps get them.
    secrets: Vec<(&'a Member, SecretName)>,
}

impl Step<'_> {
    /// Adds the step, which is number `at`, unless one of its secrets is a variable that already has another value.
    fn add_to(self, builder: &mut ProposalBuilder, at: usize) {
        let Self { origin, script, secrets } = self;
        let clash =
            secrets.iter().find(|(variable, secret)| builder.has_other(&variable.key, secret.as_str()));
        if let Some((variable, _)) = clash {
            let reason = format!("{} has another value in the job or in an earlier step", variable.key);
            return builder.leave_out(&format!("steps[{at}]: {reason}"));
        }
        builder.add_script("install", origin, &script);
        for (variable, secret) in secrets {
            let secret = Node::text(variable.node.origin.clone(), secret.to_string());
            builder.set_secret(&format!("steps[{at}].env"), &variable.key, secret);
        }
    }
}

/// What a step runs; `None`: nothing, because sessions have what it does. An error says why it is left out.
fn read_step(step: &Node) -> Result<Option<Step<'_>>, String> {
    let (mut run, mut before, mut secrets, mut is_apart) = (None, vec![], vec![], false);
    for entry in members(step) {
        let text = scalar(&entry.node);
        match (&*entry.key, text) {
            ("uses", Some(action)) if action.split('@').next() == Some(CHECKOUT) => return Ok(None),
            ("uses", action) => {
                return Err(format!("the action {} does not run", action.unwrap_or_default()));
            }
            ("run", Some(text)) => run = Some(text),
            ("shell", Some(shell)) if shell == "bash" || shell == "sh" => {}
            ("working-directory", Some(path)) => {
                is_apart = true;
                before.push(format!("cd {}", shell_word(&path)));
            }
            ("env", None) => {
                is_apart = true;
                for variable in members(&entry.node).iter().filter(|variable| is_variable_name(&variable.key))
                {
                    let value = scalar(&variable.node).unwrap_or_default();
                    if let Some(secret) = secret(&value) {
                        secrets.push((variable, secret));
                        continue;
                    }
                    before.push(format!("export {}={}", variable.key, shell_word(&value)));
                }
            }
            (key, _) if SILENT.contains(&key) => {}
            (key, _) => return Err(format!("steps with {key} do not run")),
        }
    }
    let Some(run) = run else { return Err("it has no run".to_owned()) };
    let lines = before.into_iter().chain([run]).collect::<Vec<_>>().join("\n");
    if let Some(at) = lines.find(EXPRESSION) {
        let expression = lines[at..].split_inclusive("}}").next().unwrap_or_default();
        return Err(format!("nothing evaluates its expression {expression}"));
    }
    let lines = lines.trim_end();
    let script = if is_apart { format!("(\n{lines}\n)") } else { lines.to_owned() };
    Ok(Some(Step { origin: &step.origin, script, secrets }))
}

fn member<'a>(node: &'a Node, key: &str) -> Option<&'a Node> {
    members(node).iter().find(|entry| &*entry.key == key).map(|entry| &entry.node)
}
