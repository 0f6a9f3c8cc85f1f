//! `skill`: returns the text of a skill, and the list of its files.

use super::{
    context::CallContext,
    outcome::{Output, ToolError, sandbox_error},
    spec::tool_spec,
};
use domain::policy::tool;
use domain::{limits, session::WORKSPACE};
use rpc::v1;
use serde::Deserialize;
use serde_json::{Map, json};

/// Files of a skill that the model sees by name. The answer says that there are more.
const SKILL_FILES_MAX: u32 = 50;

/// The arguments of a call.
#[derive(Debug, Deserialize)]
pub(crate) struct Input {
    name: String,
}

pub(crate) fn spec() -> tool::Spec {
    tool_spec(
        "skill",
        "Loads a skill: instructions of this repository for one kind of task, with files that belong to them. Load the matching \
         skill before you begin such a task.",
        json!({
            "type": "object",
            "properties": {"name": {"type": "string", "minLength": 1, "description": "Name of the skill"}},
            "required": ["name"],
            "additionalProperties": false
        }),
    )
}

/// Adds the skills of this repository to the description.
pub(crate) fn with_list(mut spec: tool::Spec, skills: &[v1::Skill]) -> tool::Spec {
    spec.description.push_str(" Skills:");
    for skill in skills {
        let words: Vec<&str> = skill.description.split_whitespace().collect();
        spec.description.push_str(&format!("\n- {}: {}", skill.name, words.join(" ")));
    }
    spec
}

pub(crate) async fn run(ctx: &CallContext, input: Input) -> Result<Output, ToolError> {
    let sandbox = &ctx.deps.sandbox;
    let found = sandbox.call(|mut client| {
        let request = v1::ReadGuidanceRequest { fence: ctx.identity.fence(), ..Default::default() };
        async move { client.read_guidance(request).await }
    });
    let skills = found.await.map_err(|status| sandbox_error(&status))?.skills;
    let Some(skill) = skills.iter().find(|skill| skill.name == input.name) else {
        let names: Vec<&str> = skills.iter().map(|skill| skill.name.as_str()).collect();
        let name = domain::text::head(&input.name, limits::NAME_BYTES_MAX);
        let available = match names.as_slice() {
            [] => "This repository has no skills.".to_owned(),
            names => format!("Available skills: {}.", names.join(", ")),
        };
        return Err(ToolError::Model(format!("There is no skill {name:?}. {available}")));
    };
    let directory = skill.path.rsplit_once('/').map_or("", |(directory, _)| directory);
    let text = sandbox.call(|mut client| {
        let (fence, path) = (ctx.identity.fence(), skill.path.clone());
        let request = v1::ReadFileRequest { fence, path, ..Default::default() };
        async move { client.read_file(request).await }
    });
    let text = text.await.map_err(|status| sandbox_error(&status))?;
    let files = sandbox.call(|mut client| {
        let request = v1::ListFilesRequest {
            fence: ctx.identity.fence(),
            path: directory.to_owned(),
            entries_max: SKILL_FILES_MAX,
            ..Default::default()
        };
        async move { client.list_files(request).await }
    });
    let files = files.await.map_err(|status| sandbox_error(&status))?;
    let mut lines: Vec<String> = files
        .entries
        .iter()
        .filter(|file| file.kind() != v1::FileKind::Directory && file.path != skill.path)
        .map(|file| format!("{WORKSPACE}/{}", file.path))
        .collect();
    if files.truncated {
        lines.push("(and more)".to_owned());
    }
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), skill.name.clone().into());
    metadata.insert("dir".to_owned(), format!("{WORKSPACE}/{directory}").into());
    Ok(Output {
        title: format!("Loaded skill: {}", skill.name),
        text: format!(
            "<skill name=\"{}\" directory=\"{WORKSPACE}/{directory}\">\n{}\n<files>\n{}\n</files>\n</skill>",
            skill.name,
            body(&String::from_utf8_lossy(&text.data)),
            lines.join("\n")
        ),
        metadata,
        ..Output::default()
    })
}

/// The text without its front matter.
fn body(text: &str) -> &str {
    let text = text.trim_start_matches('\u{feff}');
    let rest = text.strip_prefix("---").and_then(|rest| rest.split_once("\n---"));
    rest.map_or(text, |(_, rest)| rest).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_front_matter_is_not_the_text() {
        for (text, want) in [
            ("---\nname: a\n---\n\nDo it.\n", "Do it."),
            ("Do it.", "Do it."),
            ("---\nname: a", "---\nname: a"),
        ] {
            assert_eq!(body(text), want);
        }
    }
}
