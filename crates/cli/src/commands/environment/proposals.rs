//! `flotilla env proposals`, `show`, `allow` and `deny`: the environments that repositories propose.

use crate::{
    client::{Client, call},
    commands::project,
    exit::{USAGE, coded},
    terminal::{
        output::{ListText, Output},
        paint::{Paint, harmless, one_line},
        show,
        table::{Side, Table},
    },
};
use anyhow::{Context as _, Result};
use rpc::v1::{
    DecideEnvironmentRequest, EnvironmentVerdict, ListProposedEnvironmentsRequest, ProposedEnvironment,
};
use serde_json::{Value, json};

/// Characters of the name of a file or a key in the table.
const NAME_CHARS: usize = 40;
/// Digits of a digest in the table: enough to name it.
const DIGEST_CHARS: usize = 12;
/// Digits that a person must give at least.
const DIGEST_CHARS_MIN: usize = 8;

/// Names an environment that a repository proposes.
#[derive(Debug, clap::Args)]
pub(super) struct ProposalArgs {
    /// Its digest; at least the first 8 digits.
    digest: String,
    /// The project, by name or id.
    #[arg(long, value_name = "PROJECT")]
    project: String,
}

pub(super) async fn list(client: &Client, output: &Output, named: &str) -> Result<()> {
    let project_id = project::find(client, named).await?.id;
    let proposals = list_all(client, project_id).await?;
    let none = "no repository of this project proposes an environment; `flotilla env init` writes one";
    output.list(&proposals, &ListText { to_json, table: &table, none })
}

pub(super) async fn show(client: &Client, output: &Output, arguments: &ProposalArgs) -> Result<()> {
    let (_, proposal) = find(client, arguments).await?;
    if output.is_json() {
        return output.json(&to_json(&proposal));
    }
    let document: Value = serde_json::from_str(&proposal.document).context("read the environment")?;
    let mut lines = vec![format!("{} ({}), {}", proposal.file, proposal.digest, verdict(&proposal))];
    lines.extend(proposal.unused.iter().map(|sentence| format!("not used: {sentence}")));
    lines.push(String::new());
    describe(&mut lines, "", &document["environment"]);
    output.page(&harmless(&(lines.join("\n") + "\n")))
}

pub(super) async fn decide(
    client: &Client,
    output: &Output,
    arguments: &ProposalArgs,
    is_allowed: bool,
) -> Result<()> {
    let (project_id, proposal) = find(client, arguments).await?;
    let verdict = if is_allowed { EnvironmentVerdict::Allowed } else { EnvironmentVerdict::Denied };
    let decided = decide_digest(client, &project_id, proposal.digest, verdict).await?;
    let word = if is_allowed { "allowed" } else { "denied" };
    let sentence = format!(
        "the environment in {} is {word}; it counts for new sessions",
        one_line(&decided.file, NAME_CHARS)
    );
    output.result(&sentence, &to_json(&decided))
}

/// Finds what a repository of the project has proposed, by the whole digest.
pub(super) async fn find_digest(
    client: &Client,
    project_id: &str,
    digest: &str,
) -> Result<Option<ProposedEnvironment>> {
    let proposals = list_all(client, project_id.to_owned()).await?;
    Ok(proposals.into_iter().find(|proposal| proposal.digest == digest))
}

pub(super) async fn decide_digest(
    client: &Client,
    project_id: &str,
    digest: String,
    verdict: EnvironmentVerdict,
) -> Result<ProposedEnvironment> {
    let project_id = project_id.to_owned();
    let request = DecideEnvironmentRequest { project_id, digest, verdict: verdict.into() };
    let decide = async || client.environments().decide_environment(request.clone()).await;
    Ok(call("decide about the environment", decide).await?.environment.unwrap_or_default())
}

async fn list_all(client: &Client, project_id: String) -> Result<Vec<ProposedEnvironment>> {
    let request = ListProposedEnvironmentsRequest { project_id };
    let list = async || client.environments().list_proposed_environments(request.clone()).await;
    Ok(call("list the proposed environments", list).await?.environments)
}

/// Finds the project and the proposal by the beginning of its digest.
async fn find(client: &Client, arguments: &ProposalArgs) -> Result<(String, ProposedEnvironment)> {
    let ProposalArgs { digest, project } = arguments;
    if digest.len() < DIGEST_CHARS_MIN {
        return Err(coded(USAGE, format!("name at least {DIGEST_CHARS_MIN} digits of the digest")));
    }
    let project_id = project::find(client, project).await?.id;
    let mut found = list_all(client, project_id.clone()).await?;
    found.retain(|proposal| proposal.digest.starts_with(digest.as_str()));
    match found.pop() {
        Some(proposal) if found.is_empty() => Ok((project_id, proposal)),
        Some(_) => {
            let message =
                format!("several environments have a digest that begins with {digest}; name more digits");
            Err(coded("environment_ambiguous", message))
        }
        None => {
            let message = format!(
                "no repository of the project proposes {digest}; `flotilla env proposals --project {project}` lists what they propose"
            );
            Err(coded("environment_not_proposed", message))
        }
    }
}

fn table(proposals: &[ProposedEnvironment], paint: Paint) -> String {
    let now_ms = show::now_ms();
    let age = |at_ms| show::age_at(now_ms, at_ms);
    let mut table = Table::new([
        ("FILE", Side::Left),
        ("PROPOSED", Side::Right),
        ("STATE", Side::Left),
        ("BY", Side::Left),
        ("DECIDED", Side::Right),
        ("DIGEST", Side::Left),
    ]);
    for proposal in proposals {
        table.push([
            one_line(&proposal.file, NAME_CHARS),
            age(proposal.proposed_at_ms),
            verdict(proposal).to_owned(),
            one_line(&proposal.decided_by, NAME_CHARS),
            age(proposal.decided_at_ms),
            proposal.digest.chars().take(DIGEST_CHARS).collect(),
        ]);
    }
    table.text(paint)
}

/// Writes a value as people write it in YAML, scripts line by line.
fn describe(lines: &mut Vec<String>, indent: &str, value: &Value) {
    let Some(members) = value.as_object() else { return };
    for (key, value) in members {
        match value {
            Value::Object(_) => {
                lines.push(format!("{indent}{key}:"));
                describe(lines, &format!("{indent}  "), value);
            }
            Value::String(text) if text.contains('\n') => {
                lines.push(format!("{indent}{key}: |"));
                lines.extend(text.trim_end().lines().map(|line| format!("{indent}  {line}")));
            }
            Value::String(text) => lines.push(format!("{indent}{key}: {text}")),
            other => lines.push(format!("{indent}{key}: {other}")),
        }
    }
}

fn verdict(proposal: &ProposedEnvironment) -> &'static str {
    match proposal.verdict() {
        EnvironmentVerdict::Unspecified => "waiting",
        EnvironmentVerdict::Allowed => "allowed",
        EnvironmentVerdict::Denied => "denied",
    }
}

fn to_json(proposal: &ProposedEnvironment) -> Value {
    let decided_by = (!proposal.decided_by.is_empty()).then_some(proposal.decided_by.as_str());
    let decided_at_ms = (proposal.decided_at_ms != 0).then_some(proposal.decided_at_ms);
    json!({
        "type": "proposed_environment", "digest": proposal.digest, "file": proposal.file, "document": proposal.document,
        "unused": proposal.unused, "session": proposal.session_id, "proposed_at_ms": proposal.proposed_at_ms,
        "state": verdict(proposal), "decided_by": decided_by, "decided_at_ms": decided_at_ms,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use crate::{fake::Fake, terminal::output::Output};
    use rpc::v1::Project;

    #[tokio::test]
    async fn proposals_are_listed_shown_and_decided_by_the_beginning_of_their_digest() {
        let (fake, output) = (Fake::default(), Output::kept(false));
        let project = Project { id: "prj_1".to_owned(), name: "shop".to_owned(), ..Project::default() };
        fake.0.lock().unwrap().projects = vec![project];
        fake.run(&output, &["env", "proposals", "--project", "shop"]).await.unwrap();
        let text = output.take();
        assert!(
            text.contains("waiting") && text.contains("aaaaaaaaaaaa") && !text.contains("aaaaaaaaaaaaa"),
            "{text}"
        );
        fake.run(&output, &["env", "show", "aaaaaaaa", "--project", "shop"]).await.unwrap();
        let text = output.take();
        // Nothing in a file moves the cursor.
        assert!(text.contains("not used: features") && text.contains("  one\n  \u{fffd}[2Jtwo\n"), "{text}");
        fake.run(&output, &["env", "allow", "aaaaaaaaa", "--project", "prj_1"]).await.unwrap();
        assert!(output.take().contains("is allowed"));
        fake.run(&output, &["env", "deny", "aaaaaaaaa", "--project", "prj_1"]).await.unwrap();
        for (digest, text) in
            [("aaaa", "at least 8"), ("cccccccc", "no repository"), ("bbbbbbbb", "name more digits")]
        {
            let refused =
                fake.run(&output, &["env", "allow", digest, "--project", "shop"]).await.unwrap_err();
            assert!(refused.to_string().contains(text), "{refused}");
        }
        let orders = fake.0.lock().unwrap().orders.clone();
        let digest = "a".repeat(64);
        assert_eq!(orders, [format!("decide Allowed {digest}"), format!("decide Denied {digest}")]);
    }
}
