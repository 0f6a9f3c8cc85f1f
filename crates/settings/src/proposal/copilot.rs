//! Reads `copilot-setup-steps.yml`: the variables and commands of its job become an install. Actions do not run.

use super::draft::{Draft, items, members, quoted, scalar};
use crate::node::Node;
use domain::session::environment::is_variable_name;

const JOB: &str = "copilot-setup-steps";
/// Brings the files of the repository, which a session has.
const CHECKOUT: &str = "actions/checkout";
/// Begins an expression of GitHub, which nothing evaluates here.
const EXPRESSION: &str = "${{";
/// Keys of a step that change nothing.
const SILENT: [&str; 4] = ["name", "id", "timeout-minutes", "with"];

/// Reads the root of the file.
pub(super) fn read(root: &Node) -> Draft {
    let mut draft = Draft::new(root.origin.clone());
    let Some(job) = member(root, "jobs").and_then(|jobs| member(jobs, JOB)) else { return draft };
    let variables = [("env", member(root, "env")), ("env", member(job, "env"))];
    for (key, node) in variables.into_iter().filter_map(|(key, node)| Some((key, node?))) {
        read_variables(&mut draft, key, node);
    }
    if let Some(container) = member(job, "container") {
        match member(container, "image").or(Some(container)).filter(|image| image.as_text().is_some()) {
            Some(image) => draft.set("image", image.clone()),
            None => draft.leave_out("container: it names no image"),
        }
    }
    let steps = member(job, "steps").map(items).unwrap_or_default();
    for (at, step) in steps.iter().enumerate() {
        match read_step(step) {
            Ok(Some(script)) => draft.add_script("install", &step.origin, &script),
            Ok(None) => {}
            Err(reason) => draft.leave_out(&format!("steps[{at}]: {reason}")),
        }
    }
    draft
}

fn read_variables(draft: &mut Draft, key: &str, node: &Node) {
    for entry in members(node) {
        match scalar(&entry.node).filter(|text| !text.contains(EXPRESSION)) {
            Some(text) => {
                draft.set_variable(key, &entry.key, Node::text(entry.node.origin.clone(), text));
            }
            None => draft.leave_out(&format!("{key}.{}: its value is an expression", entry.key)),
        }
    }
}

/// The lines of a step; `None`: it has none, and needs none. An error says why it is left out.
fn read_step(step: &Node) -> Result<Option<String>, String> {
    let (mut run, mut before, mut is_apart) = (None, vec![], false);
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
                before.push(format!("cd {}", quoted(&path)));
            }
            ("env", None) => {
                is_apart = true;
                for variable in members(&entry.node).iter().filter(|variable| is_variable_name(&variable.key))
                {
                    let value = scalar(&variable.node).unwrap_or_default();
                    before.push(format!("export {}={}", variable.key, quoted(&value)));
                }
            }
            (key, _) if SILENT.contains(&key) => {}
            (key, _) => return Err(format!("steps with {key} do not run")),
        }
    }
    let Some(run) = run else { return Err("it has no run".to_owned()) };
    let lines = before.into_iter().chain([run]).collect::<Vec<_>>().join("\n");
    if lines.contains(EXPRESSION) {
        return Err("it has an expression".to_owned());
    }
    Ok(Some(if is_apart { format!("(\n{}\n)", lines.trim_end()) } else { lines.trim_end().to_owned() }))
}

fn member<'a>(node: &'a Node, key: &str) -> Option<&'a Node> {
    members(node).iter().find(|entry| &*entry.key == key).map(|entry| &entry.node)
}
