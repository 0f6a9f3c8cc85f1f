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
use clap::{ArgMatches, parser::ValueSource};
use std::{
    env,
    path::{Path, PathBuf},
};

/// The flags that choose a gateway and a key.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Connection and output")]
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
    /// The settings that a person gave as flags; the others come from the environment.
    #[arg(skip)]
    pub given: Vec<&'static str>,
}

/// The flags of [`Connection`].
pub(crate) const FLAGS: [&str; 4] = [URL, API_KEY, CONTEXT, DATA];
const URL: &str = "url";
const API_KEY: &str = "api_key";
const CONTEXT: &str = "context";
const DATA: &str = "data";
/// The flag of the commands of operators.
const OPERATOR_KEY: &str = "operator_key";

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
    /// Nobody chose it: it is the only context that can be used.
    pub(crate) is_only_one: bool,
}

#[derive(Debug, Clone, Copy)]
enum Choice<'a> {
    Url(&'a str),
    Context(&'a str),
    Data(&'a Path),
    Nearest,
}

impl Connection {
    /// Notes which settings are flags.
    pub(crate) fn note_flags(&mut self, matches: &ArgMatches) {
        // The innermost command knows the common flags, wherever they stand, and its own.
        let mut command = matches;
        while let Some((_, inner)) = command.subcommand() {
            command = inner;
        }
        let is_flag = |name: &&str| {
            command.try_contains_id(name).unwrap_or_default()
                && command.value_source(name) == Some(ValueSource::CommandLine)
        };
        self.given = FLAGS.into_iter().chain([OPERATOR_KEY]).filter(is_flag).collect();
    }

    /// What names the gateway: the flag, else a variable. No variable counts beside a flag.
    ///
    /// # Errors
    /// `usage`: two flags, or two variables, name different gateways.
    fn choice(&self) -> Result<Choice<'_>> {
        let named = [
            (URL, self.url.as_deref().map(Choice::Url)),
            (CONTEXT, self.context.as_deref().map(Choice::Context)),
            (DATA, self.data.as_deref().map(Choice::Data)),
        ];
        let named = named.into_iter().filter_map(|(flag, choice)| Some((flag, choice?)));
        let (flags, variables): (Vec<_>, Vec<_>) = named.partition(|(flag, _)| self.given.contains(flag));
        match (&flags[..], &variables[..]) {
            ([(first, _), (second, _), ..], _) => {
                Err(coded(USAGE, format!("--{first} and --{second} name two gateways; give one")))
            }
            ([], [(URL, _), (CONTEXT, _), ..]) => Err(coded(
                USAGE,
                "FLOTILLA_URL and FLOTILLA_CONTEXT name two gateways; unset one, or give --url or --context",
            )),
            ([(_, choice)], _) | ([], [(_, choice), ..]) => Ok(*choice),
            ([], []) => Ok(Choice::Nearest),
        }
    }

    /// Whether a key that a person gave with `flag`, or with its variable, replaces that of the chosen gateway. A variable does not, if a flag chose a
    /// gateway that has a key: the variable is meant for another one.
    fn replaces(&self, flag: &str, key: &Secret<String>) -> bool {
        let is_chosen = [URL, CONTEXT, DATA].iter().any(|flag| self.given.contains(flag));
        self.given.contains(&flag) || !is_chosen || key.expose().is_empty()
    }

    /// The operator's key for a gateway; `given`: that of the flag or the variable.
    pub(crate) fn operator_key<'a>(
        &self,
        target: &'a Target,
        given: Option<&'a Secret<String>>,
    ) -> &'a Secret<String> {
        given.filter(|_| self.replaces(OPERATOR_KEY, &target.operator_key)).unwrap_or(&target.operator_key)
    }
}

/// The directories in which commands look for stacks and contexts.
#[derive(Debug)]
struct Places<'a> {
    here: &'a Path,
    /// `None`: no configuration directory is known, so there are no contexts.
    configuration: Option<&'a Path>,
}

/// Chooses the gateway: by the flag `--url`, `--context` or `--data`, else by their variables in this order, else the stack of the current directory or of
/// one above, else the current context, else the only context that can be used.
///
/// # Errors
/// A sentence that says what to do, if there is no gateway or two are named.
pub(crate) fn choose(connection: &Connection) -> Result<Target> {
    let here = env::current_dir().context("read the current directory")?;
    let configuration = contexts::directory().ok();
    choose_at(connection, &Places { here: &here, configuration: configuration.as_deref() })
}

fn choose_at(connection: &Connection, places: &Places<'_>) -> Result<Target> {
    let mut target = match connection.choice()? {
        // The keys of a context never go to another address.
        Choice::Url(url) => Target {
            url: url.to_owned(),
            api_key: Secret::default(),
            operator_key: Secret::default(),
            source: if connection.given.contains(&URL) { "--url" } else { "FLOTILLA_URL" }.to_owned(),
            context: None,
            is_only_one: false,
        },
        Choice::Context(name) => named(name, places)?,
        Choice::Data(data) => match running::read(data)? {
            Some(stack) => of_stack(stack, data.display().to_string()),
            None => {
                let message = format!("no stack runs in {}; `flotilla up` starts one", data.display());
                return Err(coded(GATEWAY_MISSING, message));
            }
        },
        Choice::Nearest => nearest(places)?,
    };
    if let Some(key) = &connection.api_key
        && connection.replaces(API_KEY, &target.api_key)
    {
        target.api_key = key.clone();
    }
    Ok(target)
}

/// The data directory of a stack on this machine, whether it runs or not: the one that is named, else that of the current directory or of one above,
/// else that of the current context or of the only one. The variable of an address names no directory, so that of a directory counts beside it.
///
/// # Errors
/// A sentence that says what to do, if there is no such directory.
pub(crate) fn data_directory(connection: &Connection) -> Result<PathBuf> {
    let contexts = || contexts::load(&contexts::directory()?);
    let of_context = |name: &str| match contexts()?.get(name)? {
        Context::Stack { data } => Ok(data.clone()),
        Context::Gateway { url, .. } => {
            Err(coded(GATEWAY_MISSING, format!("the context {name} is no stack on this machine, but {url}")))
        }
    };
    let beside_url = connection.data.as_ref().filter(|_| !connection.given.contains(&URL));
    match (connection.choice()?, beside_url) {
        (Choice::Data(data), _) => return Ok(data.to_owned()),
        (Choice::Context(name), _) => return of_context(name),
        (Choice::Url(_), Some(data)) => return Ok(data.clone()),
        (Choice::Url(_), None) | (Choice::Nearest, _) => {}
    }
    let here = env::current_dir().context("read the current directory")?;
    let mut above = here.ancestors().map(|directory| directory.join(running::DATA_DIR));
    if let Some(data) = above.find(|data| data.join(running::LOCK_FILE).exists()) {
        return Ok(data);
    }
    let known = contexts().unwrap_or_default();
    let stacks = known.contexts.iter().filter(|(_, context)| matches!(context, Context::Stack { .. }));
    let names: Vec<&String> = stacks.map(|(name, _)| name).collect();
    match (&known.current, names.as_slice()) {
        (Some(current), _) if names.contains(&current) => of_context(current),
        (_, [only]) => of_context(only),
        _ => Err(coded(
            GATEWAY_MISSING,
            "no stack belongs to this directory; name one with --data or --context",
        )),
    }
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
        1 => Ok(Target { is_only_one: true, ..usable.remove(0) }),
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
            is_only_one: false,
        }),
    })
}

fn of_stack(stack: Stack, source: String) -> Target {
    let Stack { gateway_url: url, api_key, operator_key, .. } = stack;
    let (api_key, operator_key) = (Secret::new(api_key), Secret::new(operator_key));
    Target { url, api_key, operator_key, source, context: None, is_only_one: false }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
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
        assert!(choose_at(&plain, &places).unwrap().is_only_one, "nobody chose it");
        change(&|contexts| contexts.set("home", remote("http://home")).unwrap());
        assert_eq!(url(&plain).unwrap(), "http://home", "the first that is set is current");
        assert!(!choose_at(&plain, &places).unwrap().is_only_one);
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
        assert_eq!((target.source.as_str(), target.context), ("FLOTILLA_URL", None));
        assert_eq!(choose_at(&home, &places).unwrap().context.as_deref(), Some("home"));
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

    #[test]
    fn a_flag_beats_every_variable() {
        let dir = tempfile::tempdir().unwrap();
        let (configuration, data) = (dir.path().join("configuration"), dir.path().join("data"));
        contexts::change(&configuration, |contexts| contexts.set("home", remote("http://home"))).unwrap();
        put_stack(&data, "http://near", std::process::id());
        let places = Places { here: dir.path(), configuration: Some(&configuration) };
        let all = |given: &[&'static str]| Connection {
            url: Some("http://other".to_owned()),
            api_key: Some(Secret::new("mine".to_owned())),
            context: Some("home".to_owned()),
            data: Some(data.clone()),
            given: given.to_vec(),
        };
        for (given, url, key, operator_key) in [
            (&[URL][..], "http://other", "mine", "mine"),
            // A key of the environment is for another gateway.
            (&[CONTEXT], "http://home", "key of http://home", "mine"),
            (&[DATA], "http://near", "key of http://near", "operator of http://near"),
            (&[DATA, API_KEY], "http://near", "mine", "operator of http://near"),
            (&[DATA, OPERATOR_KEY], "http://near", "key of http://near", "mine"),
        ] {
            let (connection, mine) = (all(given), Secret::new("mine".to_owned()));
            let target = choose_at(&connection, &places).unwrap();
            let operator = connection.operator_key(&target, Some(&mine)).expose();
            let chosen = (target.url.as_str(), target.api_key.expose().as_str(), operator.as_str());
            assert_eq!(chosen, (url, key, operator_key), "{given:?}");
        }
        let error = |given: &[&'static str]| choose_at(&all(given), &places).unwrap_err().to_string();
        assert!(
            error(&[]).starts_with("FLOTILLA_URL and FLOTILLA_CONTEXT name two gateways"),
            "{}",
            error(&[])
        );
        assert_eq!(error(&[URL, DATA]), "--url and --data name two gateways; give one");
        assert_eq!(error(&[CONTEXT, DATA]), "--context and --data name two gateways; give one");
    }

    #[test]
    fn the_data_directory_is_the_one_that_is_named() {
        let named = Connection { data: Some(PathBuf::from("/named")), ..Connection::default() };
        let url = Some("http://other".to_owned());
        for connection in [
            named.clone(),
            // Both are variables.
            Connection { url: url.clone(), ..named.clone() },
            Connection { url, given: vec![DATA], ..named.clone() },
            Connection { context: Some("home".to_owned()), given: vec![DATA], ..named },
        ] {
            assert_eq!(data_directory(&connection).unwrap(), Path::new("/named"), "{connection:?}");
        }
    }

    #[test]
    fn the_flags_of_a_line_are_told_from_the_environment_wherever_they_stand() {
        for words in [&["flotilla", "--data", "d", "ls"][..], &["flotilla", "env", "ls", "--data=d"]] {
            let cli = crate::arguments::parse(words.iter().map(Into::into)).unwrap();
            assert_eq!(cli.connection.given, [DATA], "{words:?}");
        }
        let words = ["flotilla", "admin", "queue", "--operator-key", "k", "--context", "c"];
        let cli = crate::arguments::parse(words.into_iter().map(Into::into)).unwrap();
        assert_eq!(cli.connection.given, [CONTEXT, OPERATOR_KEY]);
    }
}
