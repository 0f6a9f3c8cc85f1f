//! Starts a command: checks the request, enters the exec id once, and asks the sandbox.

use crate::{
    disk::workspace::Purpose,
    error::Error,
    exec::{
        attach, kill,
        record::{self, Spec},
        variables::{NO_TERMINAL, environment},
    },
    programs::start_script,
    session::{caller::Caller, state::Session},
    workspace::{changes, snapshots::merge},
};
use domain::limits;
use rpc::v1::{self, ErrorCode};
use std::{collections::HashMap, sync::Arc};

/// Bytes of the environment of one exec: with the command below Linux' limit for all arguments. Beyond it: `argument_invalid`.
const EXEC_ENV_BYTES_MAX: usize = 64 * 1024;

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
            requested => requested.min(limits::SHELL_TIMEOUT_MAX_MS),
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
        env: environment(message.env, NO_TERMINAL, &session.shared.doors.variables(), &meta.env),
        timeout_ms: spec.timeout_ms,
        output_bytes_max: spec.output_bytes_max,
        ..sandbox_wire::v1::Exec::default()
    };
    let started = async {
        let permit = caller.root.disk.admit(Purpose::Command(&command.command)).await?;
        let sandbox = caller.enter().await?.with(permit);
        if session.take_is_new().await && session.execs.has_earlier().await? {
            record::mark_in_new_sandbox(&entered.directory).await?;
        }
        // A caller that kills the command need not wait for the start of its sandbox.
        tokio::select! {
            () = start_script::run(caller, &sandbox, &meta) => {}
            () = kill::killed(&entered) => {}
        }
        if let Some(failure) = sandbox.start().take_failure() {
            record::mark_start_failure(&entered.directory, &failure).await?;
        }
        // The sandbox may have taken seconds to start. If a successor took over meanwhile, the command must not start.
        let _right = caller.hold().await?;
        let tasks = session.shared.tasks.clone();
        session.execs.start(&tasks, sandbox, Arc::clone(&entered), spec.clone(), command).await
    };
    if let Err(error) = started.await {
        session.execs.cancel(&spec, &entered).await;
        return Err(error);
    }
    Ok(v1::StartExecResponse { started: true })
}

/// Finds a command of the caller's session. One without an entry counts as lost if the machine was started since the workspace was made.
pub(super) async fn find(caller: &Caller, exec_id: &str) -> Result<attach::Source, Error> {
    let session = &caller.session;
    let unknown = match session.execs.get(exec_id).await {
        Err(error) if error.code() == ErrorCode::ExecUnknown => error,
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

/// Ends a command of the caller's session, and returns when it has ended.
pub(super) async fn kill(caller: &Caller, exec_id: &str) -> Result<v1::KillExecResponse, Error> {
    let right = caller.hold().await?;
    let session = &caller.session;
    let Some(exec) = session.execs.find_running(exec_id).await else {
        return Ok(v1::KillExecResponse { was_running: false });
    };
    kill::ask_to_end(&exec, session.find_sandbox().await.as_deref()).await;
    drop(right);
    Ok(v1::KillExecResponse { was_running: kill::wait_for_end(&exec).await })
}

/// Keeps the whole output of a tool of `session`.
pub(super) async fn keep(
    caller: &Caller,
    message: v1::KeepOutputRequest,
) -> Result<v1::KeepOutputResponse, Error> {
    check_output_id(&message.output_id)?;
    if message.data.len() as u64 > limits::EXEC_OUTPUT_BYTES_MAX {
        let text = format!("the output is too large; the limit is {} bytes", limits::EXEC_OUTPUT_BYTES_MAX);
        return Err(Error::refused(ErrorCode::FileTooLarge, text));
    }
    caller.session.disk.check_host()?;
    let _right = caller.hold().await?;
    let path = caller.session.execs.keep(&message.output_id, message.data).await?;
    Ok(v1::KeepOutputResponse { path })
}

/// Keeps the changes of a workspace as a patch of `caller`.
pub(super) async fn keep_patch(
    caller: &Caller,
    message: v1::KeepPatchRequest,
) -> Result<v1::KeepPatchResponse, Error> {
    check_output_id(&message.output_id)?;
    changes::keep_patch(caller, &message.from_commit, &message.output_id).await
}

/// Merges the changes of the workspace of `copy` into that of `caller`.
pub(super) async fn merge_copy(
    caller: &Caller,
    copy: &Caller,
    message: v1::MergeCopyRequest,
) -> Result<v1::MergeCopyResponse, Error> {
    check_output_id(&message.output_id)?;
    merge::run(caller, copy, &message).await
}

fn check_output_id(id: &str) -> Result<(), Error> {
    if id.is_empty() || id.len() > limits::EXEC_ID_BYTES_MAX {
        return Err(Error::refused(
            ErrorCode::ArgumentInvalid,
            "output_id must have between 1 and 128 bytes",
        ));
    }
    Ok(())
}

/// Gives an output that `session` kept.
pub(super) async fn get_output(session: &Session, path: &str) -> Result<v1::GetOutputResponse, Error> {
    Ok(v1::GetOutputResponse { data: session.execs.read_output(path).await? })
}

fn check(message: &v1::StartExecRequest) -> Result<(), Error> {
    let invalid = |text: &str| Err(Error::refused(ErrorCode::ArgumentInvalid, text));
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
    let invalid = |text: &str| Err(Error::refused(ErrorCode::ArgumentInvalid, text));
    let env_bytes: usize = env.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    if env_bytes > EXEC_ENV_BYTES_MAX {
        return invalid("the environment is too large");
    }
    if env.keys().any(|name| name.is_empty() || name.contains('=')) {
        return invalid("the name of an environment variable is empty or contains an equals sign");
    }
    Ok(())
}
