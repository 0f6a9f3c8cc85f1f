//! `flotilla secret`: passwords and tokens of a tenant and its projects. Values go in through standard input, a hidden prompt or a file, never
//! through an argument, which every user of the machine can see.

use super::project;
use crate::{
    client::{Client, Paged, all_pages, call},
    exit::{Exit, coded},
    input,
    terminal::{
        output::{ListText, Output},
        paint::{Paint, one_line},
        show,
        table::{Side, Table},
    },
};
use anyhow::{Context as _, Result};
use chassis::secret::SecretBytes;
use domain::{
    egress::secret_servers::SecretServers,
    limits::SECRET_BYTES_MAX,
    secret::{SecretName, SecretNameError},
};
use rpc::v1::{DeleteSecretRequest, ErrorCode, ListSecretsRequest, Project, Secret, SetSecretRequest};
use serde_json::{Value, json};
use std::{
    io::{IsTerminal as _, Read},
    path::{Path, PathBuf},
};

/// Characters of the name of a key or a project in the table.
const NAME_CHARS: usize = 40;
/// Characters of the URLs of a secret in the table. JSON has all of them.
const URLS_CHARS: usize = 60;
/// Follows what is wrong with the name of a new secret: people try NAME=VALUE.
const VALUE_ELSEWHERE: &str = "; the value does not belong on the command line";

/// `flotilla secret`.
#[derive(Debug, clap::Args)]
pub(crate) struct SecretArgs {
    #[command(subcommand)]
    command: SecretCommand,
}

#[derive(Debug, clap::Subcommand)]
enum SecretCommand {
    /// Set a secret, or replace its value. The value comes from standard input, without its last line break; at a terminal, from a hidden prompt.
    Set {
        #[command(flatten)]
        target: SecretTarget,
        /// Read the value from a file, byte for byte.
        #[arg(long, value_name = "FILE")]
        from_file: Option<PathBuf>,
        /// The beginning of the URLs of a server that may get the value, such as https://github.com/acme/; no other server and no script then gets it. Several
        /// times for several. Default: as before, or each server that the settings name.
        #[arg(long = "for", value_name = "URL")]
        urls: Vec<String>,
    },
    /// List the secrets of the tenant and its projects, without their values.
    Ls {
        /// Only those of this project, by name or id.
        #[arg(long, value_name = "PROJECT")]
        project: Option<String>,
    },
    /// Remove a secret.
    Rm {
        #[command(flatten)]
        target: SecretTarget,
    },
}

/// What names a secret.
#[derive(Debug, clap::Args)]
struct SecretTarget {
    /// Its name: capital letters, digits and underscores.
    name: String,
    /// The project that it belongs to, by name or id; default: the whole tenant.
    #[arg(long, value_name = "PROJECT")]
    project: Option<String>,
}

impl SecretTarget {
    /// Checks the name and finds the project's id, which is empty without a project. `advice` follows what is wrong with a name.
    async fn find(self, client: &Client, advice: &str) -> Result<FoundTarget> {
        let name: Result<SecretName, SecretNameError> = self.name.parse();
        let refused =
            |error: SecretNameError| coded(ErrorCode::SecretNameInvalid, format!("{error}{advice}"));
        let name = name.map_err(refused)?.to_string();
        let project_id = match &self.project {
            None => String::new(),
            Some(named) => project::find(client, named).await?.id,
        };
        Ok(FoundTarget { name, project_id })
    }
}

struct FoundTarget {
    name: String,
    project_id: String,
}

pub(crate) async fn run(client: &Client, output: &Output, arguments: SecretArgs) -> Result<Exit> {
    match arguments.command {
        SecretCommand::Set { target, from_file, urls } => {
            let servers = SecretServers::parse(&urls);
            servers.map_err(|error| coded(ErrorCode::SecretUrlInvalid, error.to_string()))?;
            let FoundTarget { name, project_id } = target.find(client, VALUE_ELSEWHERE).await?;
            let value = match &from_file {
                Some(file) => read_file(file)?,
                None => read_input(&name)?,
            };
            let request = SetSecretRequest { name, project_id, value: value.expose().to_vec(), urls };
            let set = async || client.secrets().set_secret(request.clone()).await;
            let secret = call("set the secret", set).await?.secret.unwrap_or_default();
            output
                .result(&format!("{} is set, version {}", secret.name, secret.version), &to_json(&secret))?;
            if secret.urls.is_empty() {
                output.note(&format!(
                    "{0} may go to each server that the settings name, and to scripts of setups; `flotilla secret set {0} --for https://github.com/acme/` sends it to that server only",
                    secret.name
                ));
            }
        }
        SecretCommand::Ls { project } => list(client, output, project).await?,
        SecretCommand::Rm { target } => {
            let FoundTarget { name, project_id } =
                target.find(client, "; `flotilla secret ls` lists the secrets").await?;
            let request = DeleteSecretRequest { name: name.clone(), project_id: project_id.clone() };
            let delete = async || client.secrets().delete_secret(request.clone()).await;
            call("remove the secret", delete).await?;
            let object = json!({
                "type": "secret_removal", "name": name, "project_id": optional(&project_id), "is_removed": true,
            });
            output.result(&format!("{name} is removed"), &object)?;
        }
    }
    Ok(Exit::Done)
}

fn read_file(file: &Path) -> Result<SecretBytes> {
    let reader = input::open(file).with_context(|| format!("read {}", file.display()))?;
    check(read(reader).with_context(|| format!("read {}", file.display()))?)
}

/// Reads a value from a hidden prompt, or else from standard input.
fn read_input(name: &str) -> Result<SecretBytes> {
    if std::io::stdin().is_terminal() {
        let value = rpassword::prompt_password(format!("Value of {name}: ")).context("read the value")?;
        return check(SecretBytes::of(value.into_bytes()));
    }
    let value = read(std::io::stdin().lock()).context("read the value from standard input")?;
    check(SecretBytes::of(without_line_break(value.expose()).to_vec()))
}

/// Reads a value with a line break to its end, or to a byte too many.
fn read(reader: impl Read) -> std::io::Result<SecretBytes> {
    const READ: usize = SECRET_BYTES_MAX + 3;
    // With room for all of it, no part of the value stays behind in memory.
    let mut bytes = Vec::with_capacity(READ);
    reader.take(READ as u64).read_to_end(&mut bytes)?;
    Ok(SecretBytes::of(bytes))
}

/// Echoes and editors end a line; a token has no line break at its end.
fn without_line_break(value: &[u8]) -> &[u8] {
    let value = value.strip_suffix(b"\n").unwrap_or(value);
    value.strip_suffix(b"\r").unwrap_or(value)
}

fn check(value: SecretBytes) -> Result<SecretBytes> {
    let (code, message) = match value.expose().len() {
        0 => (
            ErrorCode::SecretEmpty,
            "the value is empty; give it on standard input or with --from-file".to_owned(),
        ),
        bytes if bytes > SECRET_BYTES_MAX => (
            ErrorCode::SecretTooLarge,
            format!("the value is longer than the limit of {SECRET_BYTES_MAX} bytes"),
        ),
        _ => return Ok(value),
    };
    Err(coded(code, message))
}

async fn list(client: &Client, output: &Output, named: Option<String>) -> Result<()> {
    let project_id = match &named {
        None => String::new(),
        Some(named) => project::find(client, named).await?.id,
    };
    let secrets = all_pages(async |page| {
        let request = ListSecretsRequest { project_id: project_id.clone(), page: Some(page) };
        let list = async || client.secrets().list_secrets(request.clone()).await;
        let answer = call("list the secrets", list).await?;
        Ok(Paged { entries: answer.secrets, next_cursor: answer.next_cursor })
    });
    let secrets = secrets.await?;
    let needs_names = !output.is_json() && secrets.iter().any(|secret| !secret.project_id.is_empty());
    let projects = if needs_names { project::list_all(client).await? } else { vec![] };
    let none = "no secrets; `flotilla secret set NAME` sets one";
    output.list(
        &secrets,
        &ListText { to_json, table: &|secrets, paint| table(secrets, &projects, paint), none },
    )
}

fn table(secrets: &[Secret], projects: &[Project], paint: Paint) -> String {
    let now_ms = show::now_ms();
    let mut table = Table::new([
        ("NAME", Side::Left),
        ("PROJECT", Side::Left),
        ("VERSION", Side::Right),
        ("SET", Side::Right),
        ("USED", Side::Right),
        ("BY", Side::Left),
        ("FOR", Side::Left),
    ]);
    for secret in secrets {
        let project = projects.iter().find(|project| project.id == secret.project_id);
        let project = project.map_or(secret.project_id.as_str(), |project| project.name.as_str());
        let age = |at_ms| show::age_at(now_ms, at_ms);
        table.push([
            secret.name.clone(),
            if project.is_empty() { "–".to_owned() } else { one_line(project, NAME_CHARS) },
            secret.version.to_string(),
            age(secret.created_at_ms),
            age(secret.last_used_at_ms),
            one_line(&secret.created_by, NAME_CHARS),
            if secret.urls.is_empty() {
                "any".to_owned()
            } else {
                one_line(&secret.urls.join(" "), URLS_CHARS)
            },
        ]);
    }
    table.text(paint)
}

fn optional(project_id: &str) -> Option<&str> {
    (!project_id.is_empty()).then_some(project_id)
}

fn to_json(secret: &Secret) -> Value {
    let last_used_at_ms = (secret.last_used_at_ms != 0).then_some(secret.last_used_at_ms);
    json!({
        "type": "secret", "name": secret.name, "project_id": optional(&secret.project_id), "version": secret.version,
        "created_at_ms": secret.created_at_ms, "created_by": secret.created_by, "last_used_at_ms": last_used_at_ms,
        "urls": secret.urls,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::{exit, tests::fake::Fake};

    #[tokio::test]
    async fn a_secret_of_a_file_is_sent_byte_for_byte_and_never_printed() {
        let (fake, output) = (Fake::default(), Output::kept(false));
        let project = Project { id: "prj_1".to_owned(), name: "shop".to_owned(), ..Project::default() };
        fake.0.lock().unwrap().projects = vec![project];
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("value");
        std::fs::write(&file, b"hunter2\0\xff\n").unwrap();
        let path = file.to_str().unwrap();
        fake.run(&output, &["secret", "set", "DEPLOY_KEY", "--project", "shop", "--from-file", path])
            .await
            .unwrap();
        assert_eq!(fake.0.lock().unwrap().secret, b"hunter2\0\xff\n");
        assert!(output.take_notes().contains("--for https://"), "it says that the value may go anywhere");
        let words = ["secret", "set", "DEPLOY_KEY", "--project", "shop", "--from-file", path];
        let urls = ["--for", "https://github.com/acme/", "--for", "https://ghcr.io/"];
        fake.run(&output, &[&words[..], &urls].concat()).await.unwrap();
        assert_eq!(output.take_notes(), "");
        fake.run(&output, &["secret", "ls"]).await.unwrap();
        fake.run(&output, &["secret", "rm", "NPM_TOKEN"]).await.unwrap();
        let text = output.take();
        assert!(text.contains("DEPLOY_KEY is set, version 3") && text.contains("shop"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
        let orders = fake.0.lock().unwrap().orders.clone();
        assert_eq!(
            orders,
            [
                "set secret DEPLOY_KEY of \"prj_1\"",
                "set secret DEPLOY_KEY of \"prj_1\" for https://github.com/acme/ https://ghcr.io/",
                "list secrets of \"\"",
                "delete secret NPM_TOKEN of \"\"",
            ]
        );
    }

    #[tokio::test]
    async fn wrong_names_and_values_are_refused_before_the_call() {
        let (fake, output) = (Fake::default(), Output::kept(false));
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("value");
        let path = file.to_str().unwrap();
        for (name, bytes, code) in [
            ("npm_token", 1, "secret_name_invalid"),
            ("TOKEN=hunter2", 1, "secret_name_invalid"),
            ("TOKEN", 0, "secret_empty"),
            ("TOKEN", SECRET_BYTES_MAX + 1, "secret_too_large"),
            ("TOKEN", SECRET_BYTES_MAX + 9, "secret_too_large"),
        ] {
            std::fs::write(&file, vec![b'v'; bytes]).unwrap();
            let words = ["secret", "set", name, "--from-file", path];
            let error = fake.run(&output, &words).await.unwrap_err();
            assert_eq!(exit::code(&error), code);
            assert!(!format!("{error:#}").contains("hunter2"), "{error:#}");
        }
        let error = fake.run(&output, &["secret", "rm", "nope"]).await.unwrap_err().to_string();
        assert!(error.contains("secret ls") && !error.contains("command line"), "{error}");
        for url in ["github.com/acme", "https://user:hunter2@github.com/"] {
            let words = ["secret", "set", "TOKEN", "--from-file", path, "--for", url];
            let error = fake.run(&output, &words).await.unwrap_err();
            assert_eq!(exit::code(&error), "secret_url_invalid");
            assert!(!format!("{error:#}").contains("hunter2"), "{error:#}");
        }
        let device = ["secret", "set", "TOKEN", "--from-file", "/dev/zero"];
        assert_eq!(exit::code(&fake.run(&output, &device).await.unwrap_err()), "file_not_regular");
        assert_eq!(fake.0.lock().unwrap().orders, Vec::<String>::new());
        std::fs::write(&file, vec![b'v'; SECRET_BYTES_MAX]).unwrap();
        fake.run(&output, &["secret", "set", "TOKEN", "--from-file", path]).await.unwrap();
    }

    #[test]
    fn a_line_loses_its_end_and_nothing_else() {
        for (value, want) in
            [("a", "a"), ("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), (" a ", " a "), ("\n", "")]
        {
            assert_eq!(without_line_break(value.as_bytes()), want.as_bytes());
        }
    }
}
