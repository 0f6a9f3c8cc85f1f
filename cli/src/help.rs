//! The help of the program: its commands in groups, and what stands below the flags of a command.

use clap::{Arg, Command};
use std::fmt::Write as _;

/// The version, with the commit if the program was built in a checkout of its repository.
pub(crate) const VERSION: &str = env!("FLOTILLA_VERSION");

/// All commands that are shown, in the order of their groups.
const GROUPS: [(&str, &[&str]); 8] = [
    (
        "Sessions",
        &[
            "run", "say", "watch", "shell", "pty", "ls", "tree", "messages", "export", "rename", "archive",
            "abort", "delete",
        ],
    ),
    ("Results", &["diff", "output", "checkout", "push", "revert", "unrevert", "fork", "restart-workspace"]),
    ("Requests and limits", &["answer", "approvals", "why", "budget", "egress"]),
    ("Projects", &["project", "worktree", "env", "secret", "config", "models"]),
    ("Gateways", &["login", "context", "doctor", "version", "completion", "man"]),
    ("A stack on this machine", &["up", "down"]),
    ("Administration", &["key", "audit", "github", "tenant", "admin", "migrate"]),
    ("Services, each with all settings", &["gateway", "worker", "sandbox", "broker", "model-script"]),
];

/// What every argument says that names a session.
const SESSION: &str = "The session";
const SESSION_FORMS: &str =
    "The session: its id, the beginning or the end of it, or @ for the last used one of this directory";

pub(crate) const AFTER: &str = "\
Examples:
  flotilla up                                  start everything on this machine
  flotilla run \"fix the failing tests\"         in a repository of yours
  flotilla say @ \"and add one for empty input\" continue the last session of this directory
  flotilla checkout @                          take the result as a branch

A SESSION is an id, the beginning or the end of one, or @: the last used one of this directory.

Environment:
  FLOTILLA_URL, _API_KEY, _CONTEXT, _DATA      the flags above; a flag beats every variable
  NO_COLOR                                     turns colours off
  FLOTILLA_PAGER, PAGER                        the pager; an empty one turns it off
  FLOTILLA_LOG                                 the log of `up` and of the services, such as info or debug

`flotilla COMMAND --help` says more. docs/cli.md describes every command, docs/json.md the output of --json.";

/// The exit codes of the commands that show a turn.
pub(crate) const EXIT_CODES: &str = "Exit codes: 0 done, 1 wrong usage (also a --command that does not exist) or no connection, 2 failed or aborted, 3 needs a human, \
4 out of budget, 5 still running after --timeout, 130 Ctrl-C (the turn continues). On a terminal the command asks you what the agent asks, and goes on.";

pub(crate) const RUN: &str = "\
Examples:
  flotilla run \"fix the failing tests\"
  flotilla run --dirty --outputs \"why does the build fail?\"
  git diff | flotilla run --agent plan \"review this\"
  flotilla run --ask bash --deny webfetch --budget 2.50 \"update the dependencies\"
  flotilla run --continue \"and now the documentation\"";

pub(crate) const SAY: &str = "\
Examples:
  flotilla say @ \"and add one for empty input\"
  flotilla say qoN3rF2Kgk --file screenshot.png \"it looks like this\"";

pub(crate) const SHELL: &str = "\
Only the output of the command is printed, and the exit code is that of the command.

Examples:
  flotilla shell @ 'git log --oneline' | head
  flotilla shell @ --patch 'make format'";

pub(crate) const CHECKOUT: &str = "\
Examples:
  flotilla checkout @ --switch
  flotilla checkout qoN3rF2Kgk --branch fix/parser --squash";

pub(crate) const ANSWER: &str = "\
Examples:
  flotilla answer                              list what agents ask
  flotilla answer per_1ffcce3d once
  flotilla answer @ reject --message \"use the script instead\"";

pub(crate) const LOGIN: &str = "\
Examples:
  flotilla login https://flotilla.example.com
  flotilla login http://127.0.0.1:4096 --name laptop < key.txt";

pub(crate) const ENV: &str = "\
Examples:
  flotilla env init                            write .flotilla/config.yaml from the lock files
  flotilla env check --allow -- npm test       try it, and allow it if the tests pass";

pub(crate) const UP: &str = "\
Examples:
  flotilla up
  flotilla up --detach; flotilla down
  flotilla up --data /srv/flotilla --listen 127.0.0.1:4096";

pub(crate) const COMPLETION: &str = "\
Examples:
  echo 'source <(flotilla completion bash)' >> ~/.bashrc
  flotilla completion fish > ~/.config/fish/completions/flotilla.fish";

pub(crate) const MAN: &str = "\
Example:
  flotilla man ~/.local/share/man/man1; man flotilla-run";

/// Examples, and the exit codes of a command that shows a turn.
pub(crate) fn with_exit_codes(examples: &str) -> String {
    format!("{examples}\n\n{EXIT_CODES}")
}

/// Shows the commands in their groups, and says at each session how it may be named.
pub(crate) fn with_groups(command: Command) -> Command {
    let heading = *command.get_styles().get_header();
    let mut groups = String::new();
    for (title, names) in GROUPS {
        // Writing to a string cannot fail.
        let _ = writeln!(groups, "{heading}{title}:{heading:#}");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(groups, "  {name:<18} {}", about.trim_end_matches('.'));
        }
        groups.push('\n');
    }
    let options = format!("{heading}Options:{heading:#}");
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}{options}\n{{options}}{{after-help}}"
    );
    with_session_forms(command).help_template(template)
}

/// Says at each argument that names a session which forms it has.
fn with_session_forms(mut command: Command) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    for name in names {
        command = command.mut_subcommand(name, with_session_forms);
    }
    let is_session = |arg: &Arg| arg.get_help().is_some_and(|help| help.to_string() == SESSION);
    command.mut_args(|arg| if is_session(&arg) { arg.help(SESSION_FORMS) } else { arg })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::arguments;
    use std::collections::BTreeSet;

    /// Columns of a terminal in which a line of the list of commands does not wrap.
    const COLUMNS: usize = 120;

    #[test]
    fn every_command_is_in_a_group_and_on_a_line() {
        let command = arguments::command();
        let listed: Vec<&str> = GROUPS.into_iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let commands: BTreeSet<&str> = command.get_subcommands().map(Command::get_name).collect();
        let without_help: BTreeSet<&str> = commands.into_iter().filter(|name| *name != "help").collect();
        assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), without_help);
        assert_eq!(listed.len(), without_help.len(), "no command is listed twice");
        let help = command.clone().render_help().to_string();
        for line in help.lines() {
            assert!(line.chars().count() <= COLUMNS, "{line}");
        }
        for word in ["Sessions:", "  run ", "Services", "NO_COLOR", "--json", "FLOTILLA_URL"] {
            assert!(help.contains(word), "{word}: {help}");
        }
    }

    #[test]
    fn words_that_people_type_lead_to_commands() {
        let command = arguments::command();
        for (word, name) in [
            ("list", "ls"),
            ("ps", "ls"),
            ("logs", "messages"),
            ("exec", "shell"),
            ("rm", "delete"),
            ("attach", "watch"),
            ("status", "why"),
        ] {
            assert_eq!(command.find_subcommand(word).map(Command::get_name), Some(name), "{word}");
        }
    }
}
