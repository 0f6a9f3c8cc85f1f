//! `flotilla env proposals`, `show`, `allow` and `deny`: the environments that repositories propose.

use super::changes;
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
    DecideEnvironmentRequest, EnvironmentVerdict, ErrorCode, GetSessionEnvironmentRequest,
    ListProposedEnvironmentsRequest, ProposedEnvironment,
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
    let proposals = list_all(client, project_id, "").await?;
    let none = "no repository of this project proposes an environment; `flotilla env init` writes one";
    output.list(&proposals, &ListText { to_json, table: &table, none })
}

pub(super) async fn show(client: &Client, output: &Output, arguments: &ProposalArgs) -> Result<()> {
    let FoundProposal { proposal, current, .. } = find(client, arguments).await?;
    let environment = environment(&proposal)?;
    let old = current.as_ref().map(self::environment).transpose()?;
    let changes = changes::find(old.as_ref(), &environment);
    if output.is_json() {
        let mut object = to_json(&proposal);
        object["compared_with"] = current.map(|current| current.digest).into();
        object["changes"] = changes.iter().map(changes::Change::to_json).collect();
        return output.json(&object);
    }
    let mut lines = vec![format!("{} ({}), {}", proposal.file, proposal.digest, verdict(&proposal))];
    lines.extend(proposal.unused.iter().map(|sentence| format!("not used: {sentence}")));
    lines.extend(proposal.push_secrets.iter().map(|name| {
        format!(
            "warning: setup and install get the secret {name}, with which people push (`environment.git.push`); whatever they run could push with it"
        )
    }));
    lines.push(String::new());
    lines.push(match &current {
        None => "No environment of a repository is allowed in this project, so all of it is new:".to_owned(),
        Some(current) if current.digest == proposal.digest => "Sessions use it now.".to_owned(),
        Some(current) => format!(
            "What changes against the environment in {} ({}) that is allowed now:",
            current.file, current.digest
        ),
    });
    if old.is_some() {
        lines.extend(changes.iter().flat_map(changes::Change::lines));
        lines.push(String::new());
        lines.push("All of it:".to_owned());
    }
    describe(&mut lines, "", &environment);
    output.page(&harmless(&(lines.join("\n") + "\n")))
}

/// What a proposal has below `environment`.
fn environment(proposal: &ProposedEnvironment) -> Result<Value> {
    let mut document: Value = serde_json::from_str(&proposal.document).context("read the environment")?;
    Ok(document["environment"].take())
}

pub(super) async fn decide(
    client: &Client,
    output: &Output,
    arguments: &ProposalArgs,
    is_allowed: bool,
) -> Result<()> {
    let FoundProposal { project_id, proposal, .. } = find(client, arguments).await?;
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
    let proposals = list_all(client, project_id.to_owned(), "").await?;
    Ok(proposals.into_iter().find(|proposal| proposal.digest == digest))
}

/// Finds what the repository of a session proposes, as its files were opened.
pub(super) async fn find_of_session(client: &Client, session: &str) -> Result<Option<ProposedEnvironment>> {
    let request = GetSessionEnvironmentRequest { session_id: session.to_owned() };
    let get = async || client.environments().get_session_environment(request.clone()).await;
    Ok(call("read the proposed environment", get).await?.environment)
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

/// Lists the proposals of a project whose digest begins so; if there are none, those of other projects of the tenant.
async fn list_all(client: &Client, project_id: String, digest: &str) -> Result<Vec<ProposedEnvironment>> {
    let request = ListProposedEnvironmentsRequest { project_id, digest: digest.to_owned() };
    let list = async || client.environments().list_proposed_environments(request.clone()).await;
    Ok(call("list the proposed environments", list).await?.environments)
}

/// A proposal that a person names.
struct FoundProposal {
    project_id: String,
    proposal: ProposedEnvironment,
    /// The one that sessions of the project use whose repository proposes one that no admin has allowed: the one that was allowed last.
    current: Option<ProposedEnvironment>,
}

/// Finds a proposal by the beginning of its digest.
async fn find(client: &Client, arguments: &ProposalArgs) -> Result<FoundProposal> {
    let ProposalArgs { digest, project } = arguments;
    if digest.len() < DIGEST_CHARS_MIN {
        return Err(coded(USAGE, format!("name at least {DIGEST_CHARS_MIN} digits of the digest")));
    }
    let project_id = project::find(client, project).await?.id;
    let of_project = list_all(client, project_id.clone(), "").await?;
    let allowed = of_project.iter().filter(|proposal| proposal.verdict() == EnvironmentVerdict::Allowed);
    let current = allowed.max_by_key(|proposal| proposal.decided_at_ms).cloned();
    let mut found = list_all(client, project_id.clone(), digest).await?;
    match found.pop() {
        Some(proposal) if found.is_empty() => Ok(FoundProposal { project_id, proposal, current }),
        Some(_) => {
            let message =
                format!("several environments have a digest that begins with {digest}; name more digits");
            Err(coded("environment_ambiguous", message))
        }
        None => {
            let message = format!(
                "no repository of this project or of another one proposes {digest}; `flotilla env proposals --project {project}` lists what they propose"
            );
            Err(coded(ErrorCode::EnvironmentNotProposed, message))
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

pub(super) fn verdict(proposal: &ProposedEnvironment) -> &'static str {
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
        "state": verdict(proposal), "decided_by": decided_by, "decided_at_ms": decided_at_ms, "push_secrets": proposal.push_secrets,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use crate::{terminal::output::Output, tests::fake::Fake};
    use rpc::v1::{EnvironmentVerdict, Project, ProposedEnvironment};
    use serde_json::json;
    use settings::proposal;

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
        assert!(text.contains("warning: setup and install get the secret PUSH_TOKEN"), "{text}");
        assert!(text.contains("No environment of a repository is allowed in this project"), "{text}");
        let allowed = |digit: &str, image: &str, decided_at_ms| ProposedEnvironment {
            digest: digit.repeat(64),
            file: proposal::FILE.to_owned(),
            document: json!({"environment": {"image": image, "install": "one\n"}}).to_string(),
            verdict: EnvironmentVerdict::Allowed.into(),
            decided_at_ms,
            ..ProposedEnvironment::default()
        };
        fake.0.lock().unwrap().proposed = vec![allowed("e", "dev:2", 2), allowed("d", "dev:1", 1)];
        fake.run(&output, &["env", "show", "aaaaaaaa", "--project", "shop"]).await.unwrap();
        let text = output.take();
        let changes = format!(
            "What changes against the environment in {} ({}) that is allowed now:\nimage:\n  - dev:2\ninstall:\n  + \u{fffd}[2Jtwo\n\nAll of it:\n",
            proposal::FILE,
            "e".repeat(64)
        );
        assert!(text.contains(&changes), "{text}");
        fake.run(&output, &["env", "show", "eeeeeeee", "--project", "shop"]).await.unwrap();
        assert!(output.take().contains("Sessions use it now."));
        fake.0.lock().unwrap().proposed.clear();
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
