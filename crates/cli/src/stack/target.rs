//! The choice of the gateway that a command calls.

use crate::{
    exit::{USAGE, coded},
    stack::{
        contexts::{self, Context},
        running::{self, Stack},
    },
};
use anyhow::{Context as _, Result};
use chassis::secret::Secret;
use std::{
    env,
    path::{Path, PathBuf},
};

/// The flags that choose a gateway and a key.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Connection {
    /// The gateway's address; default: that of the context.
    #[arg(long, env = "FLOTILLA_URL", value_name = "URL", global = true)]
    pub url: Option<String>,
    /// The API key; default: that of the context.
    #[arg(long, env = "FLOTILLA_API_KEY", hide_env_values = true, value_name = "KEY", global = true)]
    pub api_key: Option<Secret<String>>,
    /// The context; default: the stack of this directory or of one above, else the current context.
    #[arg(long, env = "FLOTILLA_CONTEXT", value_name = "NAME", global = true)]
    pub context: Option<String>,
    /// The data directory of a stack on this machine; default for `up`: ./.flotilla.
    #[arg(long, env = "FLOTILLA_DATA", value_name = "DIRECTORY", global = true)]
    pub data: Option<PathBuf>,
}

/// The flags of [`Connection`].
pub(crate) const FLAGS: [&str; 4] = ["url", "api_key", "context", "data"];

/// The code of an error that says that there is no gateway to call.
const GATEWAY_MISSING: &str = "gateway_missing";

/// A gateway and the keys for it. An empty key is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) url: String,
    pub(crate) api_key: Secret<String>,
    pub(crate) operator_key: Secret<String>,
    /// How it was chosen, for people.
    pub(crate) source: String,
    /// The context that it comes from; none for an address and for the stack of a directory.
    pub(crate) context: Option<String>,
}

/// The directories in which commands look for stacks and contexts.
#[derive(Debug)]
struct Places<'a> {
    here: &'a Path,
    /// `None`: no configuration directory is known, so there are no contexts.
    configuration: Option<&'a Path>,
}

/// Chooses the gateway: `--url`, else `--context`, else `--data`, else the stack of the current directory or of one above, else the
/// current context, else the only context that can be used.
///
/// # Errors
/// A sentence that says what to do, if there is no gateway or the flags contradict each other.
pub(crate) fn choose(connection: &Connection) -> Result<Target> {
    let here = env::current_dir().context("read the current directory")?;
    let configuration = contexts::directory().ok();
    choose_at(connection, &Places { here: &here, configuration: configuration.as_deref() })
}

fn choose_at(connection: &Connection, places: &Places<'_>) -> Result<Target> {
    let Connection { url, api_key, context, data } = connection;
    let mut target = match (url, context, data) {
        (Some(_), Some(_), _) => {
            let message =
                "--url and --context (or FLOTILLA_URL and FLOTILLA_CONTEXT) name two gateways; give one";
            return Err(coded(USAGE, message));
        }
        // The keys of a context never go to another address.
        (Some(url), None, _) => Target {
            url: url.clone(),
            api_key: Secret::default(),
            operator_key: Secret::default(),
            source: origin_of(url).to_owned(),
            context: None,
        },
        (None, Some(name), _) => named(name, places)?,
        (None, None, Some(data)) => match running::read(data)? {
            Some(stack) => of_stack(stack, data.display().to_string()),
            None => {
                let message = format!("no stack runs in {}; `flotilla up` starts one", data.display());
                return Err(coded(GATEWAY_MISSING, message));
            }
        },
        (None, None, None) => nearest(places)?,
    };
    if let Some(key) = api_key {
        target.api_key = key.clone();
    }
    Ok(target)
}

/// Says which of the two gave the address: the flag or the variable.
fn origin_of(url: &str) -> &'static str {
    if env::var_os("FLOTILLA_URL").is_some_and(|value| value == url) { "FLOTILLA_URL" } else { "--url" }
}

fn named(name: &str, places: &Places<'_>) -> Result<Target> {
    let configuration =
        places.configuration.context("there are no contexts: neither XDG_CONFIG_HOME nor HOME is set")?;
    let contexts = contexts::load(configuration)?;
    let context = contexts.get(name)?;
    match (of_context(name, context)?, context) {
        (Some(target), _) => Ok(target),
        (None, Context::Stack { data }) => {
            let message = format!(
                "the stack of the context {name} does not run; `flotilla up --data {}` starts it",
                data.display()
            );
            Err(coded(GATEWAY_MISSING, message))
        }
        (None, Context::Gateway { .. }) => {
            Err(coded(GATEWAY_MISSING, format!("the context {name} has no address")))
        }
    }
}

fn nearest(places: &Places<'_>) -> Result<Target> {
    if let Some(stack) = running::find_above(places.here)? {
        return Ok(of_stack(stack, "the stack of this directory".to_owned()));
    }
    let contexts = places.configuration.map(contexts::load).transpose()?.unwrap_or_default();
    if let Some(current) = &contexts.current {
        return named(current, places);
    }
    let mut usable = Vec::new();
    for (name, context) in &contexts.contexts {
        usable.extend(of_context(name, context)?);
    }
    match usable.len() {
        0 => Err(coded(
            GATEWAY_MISSING,
            "no gateway found; start one with `flotilla up`, use one with `flotilla login URL`, or set FLOTILLA_URL and FLOTILLA_API_KEY",
        )),
        1 => Ok(usable.remove(0)),
        _ => Err(coded(
            GATEWAY_MISSING,
            "there are several contexts and none is current; `flotilla context use NAME` chooses one",
        )),
    }
}

/// The target of a context; none if its stack does not run.
pub(crate) fn of_context(name: &str, context: &Context) -> Result<Option<Target>> {
    let (source, name) = (format!("the context {name}"), Some(name.to_owned()));
    Ok(match context {
        Context::Stack { data } => {
            running::read(data)?.map(|stack| Target { context: name, ..of_stack(stack, source) })
        }
        Context::Gateway { url, api_key, operator_key } => Some(Target {
            url: url.clone(),
            api_key: api_key.clone(),
            operator_key: operator_key.clone(),
            source,
            context: name,
        }),
    })
}

fn of_stack(stack: Stack, source: String) -> Target {
    let Stack { gateway_url: url, api_key, operator_key, .. } = stack;
    let (api_key, operator_key) = (Secret::new(api_key), Secret::new(operator_key));
    Target { url, api_key, operator_key, source, context: None }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;
    use std::fs;

    /// Writes the `ready.json` of a stack; it runs if this process stands in for its launcher.
    fn put_stack(data: &Path, url: &str, pid: u32) {
        let stack = Stack {
            gateway_url: url.to_owned(),
            api_key: format!("key of {url}"),
            operator_key: format!("operator of {url}"),
            pids: [("up".to_owned(), pid)].into(),
            ..Stack::default()
        };
        fs::create_dir_all(data).unwrap();
        fs::write(data.join(running::READY_FILE), serde_json::to_string(&stack).unwrap()).unwrap();
    }

    fn remote(url: &str) -> Context {
        Context::Gateway {
            url: url.to_owned(),
            api_key: Secret::new(format!("key of {url}")),
            operator_key: Secret::default(),
        }
    }

    #[test]
    fn the_nearest_choice_wins() {
        let dir = tempfile::tempdir().unwrap();
        let (configuration, here) = (dir.path().join("configuration"), dir.path().join("a/b"));
        fs::create_dir_all(&here).unwrap();
        let places = Places { here: &here, configuration: Some(&configuration) };
        let url = |connection: &Connection| {
            choose_at(connection, &places).map(|target| {
                let key = target.api_key.expose();
                assert!(key.is_empty() || *key == format!("key of {}", target.url), "{target:?}: {key}");
                target.url
            })
        };
        let error = |connection: &Connection| url(connection).unwrap_err().to_string();
        let plain = Connection::default();
        assert!(error(&plain).contains("flotilla login"), "{}", error(&plain));
        assert_eq!(crate::exit::code(&choose_at(&plain, &places).unwrap_err()), GATEWAY_MISSING);

        let change = |change: &dyn Fn(&mut contexts::Contexts)| {
            contexts::change(&configuration, |contexts| {
                change(contexts);
                Ok(())
            })
            .unwrap();
        };
        change(&|contexts| contexts.set("work", remote("http://work")).unwrap());
        change(&|contexts| contexts.current = None);
        assert_eq!(url(&plain).unwrap(), "http://work", "the only one");
        change(&|contexts| contexts.set("home", remote("http://home")).unwrap());
        assert_eq!(url(&plain).unwrap(), "http://home", "the first that is set is current");
        change(&|contexts| contexts.current = None);
        assert!(error(&plain).contains("flotilla context use"), "{}", error(&plain));
        change(&|contexts| contexts.current = Some("work".to_owned()));
        assert_eq!(url(&plain).unwrap(), "http://work");

        let data = dir.path().join("a/.flotilla");
        put_stack(&data, "http://near", std::process::id());
        assert_eq!(url(&plain).unwrap(), "http://near", "a directory above");
        let home = Connection { context: Some("home".to_owned()), ..Connection::default() };
        assert_eq!(url(&home).unwrap(), "http://home");
        let other = Connection { url: Some("http://other".to_owned()), ..Connection::default() };
        let target = choose_at(&other, &places).unwrap();
        assert_eq!(target.api_key.expose(), "", "no key of a context goes to another address");
        assert_eq!((target.source.as_str(), target.context), ("--url", None));
        assert_eq!(choose_at(&home, &places).unwrap().context.as_deref(), Some("home"));
        assert!(error(&Connection { context: Some("home".to_owned()), ..other }).contains("two gateways"));
        let named = Connection { data: Some(data.clone()), ..Connection::default() };
        assert_eq!(url(&named).unwrap(), "http://near");
        let with_key = Connection { api_key: Some(Secret::new("mine".to_owned())), ..named.clone() };
        assert_eq!(choose_at(&with_key, &places).unwrap().api_key.expose(), "mine");

        // The launcher was killed: its file is still there.
        put_stack(&data, "http://near", u32::MAX);
        assert_eq!(url(&plain).unwrap(), "http://work");
        assert!(error(&named).contains("no stack runs in"), "{}", error(&named));
        change(&|contexts| {
            contexts.current = Some(contexts.set_stack(&data, |_| true).unwrap());
        });
        assert!(error(&plain).contains("flotilla up --data"), "{}", error(&plain));
    }
}
