//! Completion of the command line in a shell: the shell calls this program, which knows the sessions, projects, models and contexts too.

use crate::{
    client::Client,
    commands::{models, project},
    exit::Exit,
    lookup,
    stack::{
        contexts,
        target::{self, Connection},
    },
    terminal::{output::Output, paint::one_line},
};
use anyhow::{Context as _, Result};
use clap::{Arg, Args as _, Command, FromArgMatches as _};
use clap_complete::{
    CompleteEnv, Shell,
    engine::{ArgValueCandidates, CompletionCandidate},
    env::Shells,
};
use std::{env, ffi::OsString, time::Duration};

/// The variable by which the shell asks for completions.
const VARIABLE: &str = "FLOTILLA_COMPLETE";
/// How long a person waits for completions of a gateway.
const WITHIN: Duration = Duration::from_secs(2);
/// Characters of a title.
const TITLE_CHARS: usize = 50;
/// Sessions to choose from, the last used ones.
const SESSIONS_MAX: usize = 100;

/// Answers the shell, if it asks, and then ends the process.
pub(crate) fn answer_shell(command: fn() -> Command) {
    CompleteEnv::with_factory(command).var(VARIABLE).complete();
}

/// Prints what makes a shell ask this program.
pub(crate) fn register(output: &Output, shell: Shell) -> Result<Exit> {
    let shells = Shells::builtins();
    let completer = shells.completer(&shell.to_string()).context("find the shell")?;
    let mut script = vec![];
    completer
        .write_registration(VARIABLE, "flotilla", "flotilla", "flotilla", &mut script)
        .context("write the completions")?;
    output.write(&String::from_utf8(script).context("read the completions")?)?;
    Ok(Exit::Done)
}

/// Completes the words of a command that name sessions, projects, models and contexts.
pub(crate) fn with_values(mut command: Command) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    for name in names {
        command = command.mut_subcommand(name, with_values);
    }
    command.mut_args(|arg| match candidates(&arg) {
        Some(candidates) => arg.add(candidates),
        None => arg,
    })
}

fn candidates(arg: &Arg) -> Option<ArgValueCandidates> {
    Some(match arg.get_id().as_str() {
        "id" | "ids" | "session" => ArgValueCandidates::new(|| ask(sessions)),
        "project" => ArgValueCandidates::new(|| ask(projects)),
        "model" => ArgValueCandidates::new(|| ask(models_of)),
        "context" => ArgValueCandidates::new(list_contexts),
        _ => return None,
    })
}

fn list_contexts() -> Vec<CompletionCandidate> {
    let known = contexts::directory().and_then(|directory| contexts::load(&directory));
    let names = known.map(|known| known.contexts.into_keys().collect::<Vec<_>>()).unwrap_or_default();
    names.into_iter().map(CompletionCandidate::new).collect()
}

/// Asks the gateway that the words before name. There is nothing to choose from if it does not answer.
fn ask<Fut>(load: impl FnOnce(Client) -> Fut) -> Vec<CompletionCandidate>
where
    Fut: Future<Output = Result<Vec<CompletionCandidate>>>,
{
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return vec![];
    };
    let answer = runtime.block_on(async {
        let target = target::choose(&connection(env::args_os())?)?;
        tokio::time::timeout(WITHIN, load(Client::at(&target.url, &target.api_key)?)).await?
    });
    answer.unwrap_or_default()
}

/// What the words of an unfinished command line say about the gateway.
fn connection(words: impl Iterator<Item = OsString>) -> Result<Connection> {
    let flags = target::FLAGS.map(|flag| format!("--{}", flag.replace('_', "-")));
    let (mut kept, mut words) = (vec![OsString::from("flotilla")], words.skip(1));
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        let is_whole = flags.iter().any(|flag| text.starts_with(&format!("{flag}=")));
        if is_whole {
            kept.push(word);
        } else if flags.iter().any(|flag| text == *flag) {
            kept.extend([word].into_iter().chain(words.next()));
        }
    }
    let matches = Connection::augment_args(Command::new("flotilla")).try_get_matches_from(kept)?;
    let mut connection = Connection::from_arg_matches(&matches)?;
    connection.note_flags(&matches);
    Ok(connection)
}

async fn sessions(client: Client) -> Result<Vec<CompletionCandidate>> {
    let sessions = lookup::newest_sessions(&client, SESSIONS_MAX).await?;
    let candidate = |(order, session): (usize, rpc::v1::Session)| {
        let title = one_line(&session.title, TITLE_CHARS);
        CompletionCandidate::new(session.id).help(Some(title.into())).display_order(Some(order))
    };
    Ok(sessions.into_iter().enumerate().map(candidate).collect())
}

async fn projects(client: Client) -> Result<Vec<CompletionCandidate>> {
    let projects = project::list_all(&client).await?;
    Ok(projects.into_iter().map(|project| CompletionCandidate::new(project.name)).collect())
}

async fn models_of(client: Client) -> Result<Vec<CompletionCandidate>> {
    let models = models::load(&client).await?;
    let candidate =
        |model: models::Model| CompletionCandidate::new(model.name).help(Some(model.title.into()));
    Ok(models.into_iter().map(candidate).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::arguments;

    #[test]
    fn the_flags_of_an_unfinished_line_choose_the_gateway() {
        let words = ["flotilla", "--", "flotilla", "diff", "--context", "work", "--api-key=k", "--message"];
        let connection = connection(words.into_iter().map(OsString::from)).unwrap();
        assert_eq!(
            (connection.context.as_deref(), connection.given),
            (Some("work"), vec!["api_key", "context"])
        );
    }

    #[test]
    fn words_that_name_something_of_the_gateway_are_completed() {
        let command = arguments::command();
        for (name, arg) in
            [("say", "id"), ("delete", "ids"), ("run", "project"), ("run", "model"), ("ls", "context")]
        {
            let sub = command.find_subcommand(name).unwrap();
            let arg = sub.get_arguments().find(|it| it.get_id() == arg).unwrap();
            assert!(arg.get::<ArgValueCandidates>().is_some(), "{name} {arg:?}");
        }
    }
}
