//! `flotilla context` and `flotilla login`: the gateways that a person works with.

use crate::{
    client::{Client, call, parse_url},
    exit::Exit,
    stack::{
        contexts::{self, Context, Contexts},
        target::{self, Connection, Target},
    },
    terminal::{
        output::{ListText, Output},
        paint::Paint,
        table::{Side, Table},
    },
};
use anyhow::{Context as _, Result, bail};
use chassis::secret::Secret;
use clap::builder::NonEmptyStringValueParser;
use domain::egress::host::is_this_machine;
use rpc::v1::{ListProjectsRequest, Page};
use serde_json::{Value, json};
use std::{
    io::{BufRead as _, IsTerminal as _, Read as _},
    path::Path,
};
use tonic::transport::Uri;

/// Longest API key that is read from a terminal or a pipe, in bytes. The rest is not read.
const KEY_BYTES_MAX: u64 = 4096;

/// `flotilla context`.
#[derive(Debug, clap::Args)]
pub(crate) struct ContextArgs {
    #[command(subcommand)]
    command: ContextCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ContextCommand {
    /// List the contexts, without their keys; a star marks the one that a command in this directory uses.
    Ls,
    /// Make a context the current one.
    Use {
        /// The context.
        name: String,
    },
    /// Add or replace a context without a look at the gateway; --url is its address. The key is --api-key, FLOTILLA_API_KEY, or a line
    /// of standard input.
    Add {
        /// Its name.
        name: String,
    },
    /// Remove a context. The gateway keeps the key: `flotilla key revoke` revokes it.
    Rm {
        /// The context.
        name: String,
    },
}

/// `flotilla login`.
#[derive(Debug, clap::Args)]
pub(crate) struct LoginArgs {
    /// The gateway's address. The key is --api-key, FLOTILLA_API_KEY, typed, or a line of standard input.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    gateway: String,
    /// The context's name; default: the gateway's host, and its port if it has one.
    #[arg(long)]
    name: Option<String>,
}

/// `flotilla context …`.
pub(crate) fn run(connection: &Connection, output: &Output, arguments: ContextArgs) -> Result<Exit> {
    let directory = contexts::directory()?;
    match arguments.command {
        ContextCommand::Ls => list(connection, output, &contexts::load(&directory)?)?,
        ContextCommand::Use { name } => contexts::change(&directory, |contexts| {
            contexts.get(&name)?;
            contexts.current = Some(name);
            Ok(())
        })?,
        ContextCommand::Add { name } => {
            let url = connection.url.clone().context("give the gateway's address with --url")?;
            parse_url(&url)?;
            let api_key = read_key(connection)?;
            // An address or a key that no call could use must not be kept.
            Client::at(&url, &api_key)?;
            let context = Context::Gateway { url, api_key, operator_key: Secret::default() };
            contexts::change(&directory, |contexts| contexts.set(&name, context))?;
        }
        ContextCommand::Rm { name } => contexts::change(&directory, |contexts| contexts.remove(&name))?,
    }
    Ok(Exit::Done)
}

/// A context in a list.
pub(crate) struct ContextEntry<'a> {
    pub(crate) name: &'a str,
    /// None: its stack does not run.
    pub(crate) url: Option<String>,
    /// The data directory of a stack on this machine.
    pub(crate) data: Option<&'a Path>,
    pub(crate) is_current: bool,
    pub(crate) is_used_here: bool,
}

impl ContextEntry<'_> {
    pub(crate) fn to_json(&self) -> Value {
        let Self { name, url, data, is_current, is_used_here } = self;
        json!({
            "type": "context", "name": name, "url": url, "data": data, "is_current": is_current,
            "is_used_here": is_used_here,
        })
    }
}

fn list(connection: &Connection, output: &Output, contexts: &Contexts) -> Result<()> {
    let chosen = target::choose(connection).ok();
    let entry = |(name, context)| -> Result<ContextEntry<'_>> {
        let name: &String = name;
        let url = target::of_context(name, context)?.map(|target| target.url);
        Ok(ContextEntry {
            name,
            is_used_here: chosen
                .as_ref()
                .is_some_and(|chosen| is_used(chosen, name, context, url.as_deref())),
            url,
            data: if let Context::Stack { data } = context { Some(data) } else { None },
            is_current: contexts.current.as_ref() == Some(name),
        })
    };
    let entries = contexts.contexts.iter().map(entry).collect::<Result<Vec<_>>>()?;
    let none = "no contexts yet; `flotilla up` and `flotilla login URL` make them";
    output.list(&entries, &ListText { to_json: ContextEntry::to_json, table: &table, none })
}

/// Whether commands use the context. The stack of a directory has no name of its own; it is the context with its address.
fn is_used(chosen: &Target, name: &str, context: &Context, url: Option<&str>) -> bool {
    match (&chosen.context, context) {
        (Some(chosen), _) => chosen == name,
        (None, Context::Stack { .. }) => url == Some(chosen.url.as_str()),
        (None, Context::Gateway { .. }) => false,
    }
}

fn table(entries: &[ContextEntry<'_>], paint: Paint) -> String {
    let mut table = Table::new([("", Side::Left), ("CONTEXT", Side::Left), ("GATEWAY", Side::Left)]);
    for ContextEntry { name, url, is_current, is_used_here, .. } in entries {
        let mut words = url.as_deref().unwrap_or("not running").to_owned();
        if *is_current {
            words.push_str(" (current)");
        }
        table.push([if *is_used_here { "*" } else { "" }.to_owned(), (*name).to_owned(), words]);
    }
    table.text(paint)
}

/// `flotilla login URL`.
pub(crate) async fn login(connection: &Connection, output: &Output, arguments: LoginArgs) -> Result<Exit> {
    let LoginArgs { gateway: url, name } = arguments;
    let uri = parse_url(&url)?;
    let host = uri.host().unwrap_or_default();
    let is_named = name.is_some();
    let name = name.unwrap_or_else(|| default_name(&uri));
    let directory = contexts::directory()?;
    if let Some(other) = contexts::load(&directory)?.contexts.get(&name).and_then(|known| taken(known, &url))
    {
        if !is_named {
            bail!(
                "the context {name} is {other}; choose another name with --name, or replace it with --name {name}"
            );
        }
        output.note(&format!("the context {name} was {other}"));
    }
    if uri.scheme_str() == Some("http") && !is_this_machine(host) {
        output.note(
            "warning: the address begins with http, so the API key crosses the network without encryption",
        );
    }
    let api_key = read_key(connection)?;
    let client = Client::at(&url, &api_key)?;
    let page = Some(Page { limit: 1, cursor: String::new() });
    call("check the API key", || async {
        client.projects().list_projects(ListProjectsRequest { page: page.clone() }).await
    })
    .await?;
    let object = login_json(&name, &url);
    contexts::change(&directory, |contexts| {
        contexts.set(&name, Context::Gateway { url, api_key, operator_key: Secret::default() })?;
        contexts.current = Some(name.clone());
        Ok(())
    })?;
    output.result(&format!("{name} is the current context"), &object)?;
    Ok(Exit::Done)
}

/// The name of a context without one: the host, and the port if the address has one.
fn default_name(uri: &Uri) -> String {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    uri.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// What a context is, if it is not this gateway.
fn taken(known: &Context, url: &str) -> Option<String> {
    match known {
        Context::Gateway { url: other, .. } => (other != url).then(|| other.clone()),
        Context::Stack { data } => Some(format!("the stack in {}", data.display())),
    }
}

pub(crate) fn login_json(name: &str, url: &str) -> Value {
    json!({"type": "login", "context": name, "url": url})
}

/// The key of the flag or the environment; else asks for it, or reads one line if standard input is no terminal.
fn read_key(connection: &Connection) -> Result<Secret<String>> {
    if let Some(key) = &connection.api_key {
        return Ok(key.clone());
    }
    let key = if std::io::stdin().is_terminal() {
        rpassword::prompt_password("API key: ").context("read the API key")?
    } else {
        let mut line = String::new();
        let mut reader = std::io::stdin().lock().take(KEY_BYTES_MAX);
        reader.read_line(&mut line).context("read the API key from standard input")?;
        line
    };
    match key.trim() {
        "" => bail!("no API key was given"),
        key => Ok(Secret::new(key.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateways_of_one_host_have_different_names_and_do_not_replace_each_other() {
        let name = |url: &str| parse_url(url).map(|uri| default_name(&uri)).unwrap_or_default();
        let urls = [
            "http://127.0.0.1:4096",
            "http://127.0.0.1:4097/",
            "https://flotilla.example.com",
            "http://[::1]:80",
        ];
        assert_eq!(urls.map(name), ["127.0.0.1:4096", "127.0.0.1:4097", "flotilla.example.com", "::1:80"]);
        let gateway = Context::Gateway {
            url: "http://h:1".to_owned(),
            api_key: Secret::default(),
            operator_key: Secret::default(),
        };
        assert_eq!(taken(&gateway, "http://h:1"), None);
        assert_eq!(taken(&gateway, "http://h:2").as_deref(), Some("http://h:1"));
        let stack = Context::Stack { data: "/data".into() };
        assert_eq!(taken(&stack, "http://h:1").as_deref(), Some("the stack in /data"));
    }

    #[test]
    fn only_the_context_in_use_has_a_star() {
        let url = "http://h";
        let gateway = Context::Gateway {
            url: url.to_owned(),
            api_key: Secret::default(),
            operator_key: Secret::default(),
        };
        let stack = Context::Stack { data: "/data".into() };
        let chosen = |context: Option<&str>| Target {
            url: url.to_owned(),
            api_key: Secret::default(),
            operator_key: Secret::default(),
            source: String::new(),
            context: context.map(str::to_owned),
            is_only_one: false,
        };
        let used = |context: Option<&str>, name: &str, entry: &Context| {
            is_used(&chosen(context), name, entry, Some(url))
        };
        assert!(used(Some("work"), "work", &gateway) && !used(Some("work"), "home", &gateway));
        // An address is no context. The stack of a directory is one.
        assert!(!used(None, "work", &gateway) && used(None, "local", &stack));
        assert!(!is_used(&chosen(None), "local", &stack, None));
    }
}
