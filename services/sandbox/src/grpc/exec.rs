//! Starts a command: checks the request, enters the exec id once, and asks the sandbox.

use crate::{
    code::Code,
    disk::workspace::Purpose,
    error::Error,
    exec::{
        attach,
        record::{self, Spec},
    },
    session::{caller::Caller, state::Session},
};
use domain::limits;
use rpc::v1;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// Bytes of the environment of one exec: with the command below Linux' limit for all arguments. Beyond it: `argument_invalid`.
const EXEC_ENV_BYTES_MAX: usize = 64 * 1024;

/// The home of every command.
const HOME: &str = "/home/agent";
const ENV_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Starts a command of `session` in the workspace of `root`, once for each exec id.
pub(super) async fn start(
    caller: &Caller,
    message: v1::StartExecRequest,
) -> Result<v1::StartExecResponse, Error> {
    let session = &caller.session;
    check(&message)?;
    let spec = Spec {
        exec_id: message.exec_id,
        timeout_ms: match message.timeout_ms {
            0 => limits::EXEC_TIMEOUT_MS,
            requested => requested.min(limits::EXEC_TIMEOUT_MAX_MS),
        }
        .into(),
        output_bytes_max: match message.output_bytes_max {
            0 => limits::EXEC_OUTPUT_BYTES_MAX,
            requested => requested.min(limits::EXEC_OUTPUT_BYTES_MAX),
        },
        epoch: caller.epoch.unwrap_or_default(),
    };
    let meta = caller.root.workspace().await?;
    // Admission and entry are one step: an admitted successor either finds the entry, or no entry will follow.
    let right = caller.hold().await?;
    let entered = if message.is_repeated && meta.is_of_earlier_boot(&session.shared.boot) {
        session.execs.enter_lost(&spec.exec_id).await?;
        None
    } else {
        session.execs.enter(&spec).await?
    };
    drop(right);
    let Some(entered) = entered else {
        return Ok(v1::StartExecResponse { started: false });
    };
    let command = sandbox_wire::v1::Exec {
        command: message.command,
        directory: message.directory,
        env: environment(message.env, "dumb", &session.shared.doors.variables(), &meta.env),
        timeout_ms: spec.timeout_ms,
        output_bytes_max: spec.output_bytes_max,
        ..sandbox_wire::v1::Exec::default()
    };
    let start = async {
        let permit = caller.root.disk.admit(Purpose::Command(&command.command)).await?;
        let sandbox = caller.enter().await?.with(permit);
        if session.take_is_new().await && session.execs.has_earlier().await? {
            record::mark_in_new_sandbox(&entered.directory).await?;
        }
        // The sandbox may have taken seconds to start. If a successor took over meanwhile, the command must not start.
        let _right = caller.hold().await?;
        let tasks = session.shared.tasks.clone();
        session.execs.start(&tasks, sandbox, Arc::clone(&entered), spec.clone(), command).await
    };
    if let Err(error) = start.await {
        session.execs.cancel(&spec, &entered).await;
        return Err(error);
    }
    Ok(v1::StartExecResponse { started: true })
}

/// Finds a command of the caller's session. One without an entry counts as lost if the machine was started since the workspace was made.
pub(super) async fn find(caller: &Caller, exec_id: &str) -> Result<attach::Source, Error> {
    let session = &caller.session;
    let unknown = match session.execs.get(exec_id).await {
        Err(error) if error.code() == Code::ExecUnknown => error,
        found => return found,
    };
    match caller.root.find_workspace().await? {
        Some(meta) if meta.is_of_earlier_boot(&session.shared.boot) => {
            session.execs.enter_lost(exec_id).await?;
            session.execs.get(exec_id).await
        }
        Some(_) | None => Err(unknown),
    }
}

/// Keeps the whole output of a tool of `session`.
pub(super) async fn keep(
    caller: &Caller,
    message: v1::KeepOutputRequest,
) -> Result<v1::KeepOutputResponse, Error> {
    if message.output_id.is_empty() || message.output_id.len() > limits::EXEC_ID_BYTES_MAX {
        return Err(Error::refused(Code::ArgumentInvalid, "output_id must have between 1 and 128 bytes"));
    }
    if message.data.len() as u64 > limits::EXEC_OUTPUT_BYTES_MAX {
        let text = format!("the output is too large; the limit is {} bytes", limits::EXEC_OUTPUT_BYTES_MAX);
        return Err(Error::refused(Code::FileTooLarge, text));
    }
    caller.session.disk.check_host()?;
    let _right = caller.hold().await?;
    let path = caller.session.execs.keep(&message.output_id, message.data).await?;
    Ok(v1::KeepOutputResponse { path })
}

/// Gives an output that `session` kept.
pub(super) async fn get_output(session: &Session, path: &str) -> Result<v1::GetOutputResponse, Error> {
    Ok(v1::GetOutputResponse { data: session.execs.read_output(path).await? })
}

fn check(message: &v1::StartExecRequest) -> Result<(), Error> {
    let invalid = |text: &str| Err(Error::refused(Code::ArgumentInvalid, text));
    if message.exec_id.is_empty() || message.exec_id.len() > limits::EXEC_ID_BYTES_MAX {
        return invalid("exec_id must have between 1 and 128 bytes");
    }
    if message.command.len() > limits::EXEC_COMMAND_BYTES_MAX {
        return invalid("the command is too long; write it to a file and run that");
    }
    check_environment(&message.env)
}

/// Checks the environment of a command.
pub(super) fn check_environment(env: &HashMap<String, String>) -> Result<(), Error> {
    let invalid = |text: &str| Err(Error::refused(Code::ArgumentInvalid, text));
    let env_bytes: usize = env.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    if env_bytes > EXEC_ENV_BYTES_MAX {
        return invalid("the environment is too large");
    }
    if env.keys().any(|name| name.is_empty() || name.contains('=')) {
        return invalid("the name of an environment variable is empty or contains an equals sign");
    }
    Ok(())
}

/// The environment of a command: the variables of the caller; those of the network; those of the image, except what says who the user is; and those
/// that every command needs.
pub(super) fn environment(
    requested: HashMap<String, String>,
    term: &str,
    network: &[(&str, &str)],
    image: &[String],
) -> Vec<String> {
    let fixed = [("HOME", HOME), ("TERM", term), ("PATH", ENV_PATH), ("LANG", "C.UTF-8")];
    let image = image.iter().filter_map(|variable| variable.split_once('='));
    let image = image.filter(|(name, _)| !["HOME", "TERM"].contains(name));
    let mut env: BTreeMap<&str, &str> =
        fixed.into_iter().chain(image).chain(network.iter().copied()).collect();
    env.extend(requested.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    env.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;

    #[test]
    fn the_caller_comes_before_the_image_and_the_image_before_the_rest() {
        let requested =
            HashMap::from([("CI".to_owned(), "1".to_owned()), ("TERM".to_owned(), "xterm".to_owned())]);
        let image = ["PATH=/opt/go/bin", "HOME=/root", "TERM=vt100", "CI=0", "EMPTY=", "no_proxy=*"]
            .map(ToOwned::to_owned);
        let env = environment(requested, "dumb", &[("no_proxy", "localhost")], &image);
        assert_eq!(
            env,
            [
                "CI=1",
                "EMPTY=",
                "HOME=/home/agent",
                "LANG=C.UTF-8",
                "PATH=/opt/go/bin",
                "TERM=xterm",
                "no_proxy=localhost"
            ]
        );
    }
}
