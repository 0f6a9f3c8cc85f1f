//! `bash`: runs a command in the session's sandbox. The sandbox owns the process, so the process survives its worker.
// Continues in sandbox::grpc and sandbox::exec.

mod excerpt;
mod hints;
mod plain;

use self::excerpt::{OutputExcerpt, TOOL_PROGRESS_BYTES};
use super::{
    context::{Bounds, CallContext},
    outcome::{OUTPUT_PATH, Output, TRUNCATED, ToolError, completed_metadata, sandbox_error},
    spec::{parse_arguments, tool_spec},
};
use crate::process::sandbox::{Sandbox, has_code, is_away};
use domain::policy::tool;
use domain::{
    conversation::part::{self, Span, ToolState},
    ids::{PartId, Timestamp},
    limits, text,
};
use rpc::v1::{self, ErrorCode, ExecEnd, attach_exec_response::Item};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep_until, timeout_at};
use tonic::Status;

/// Time between two stored views of a running command's output; milliseconds.
const TOOL_PROGRESS_MS: u64 = 1_000;

/// The arguments of a call.
#[derive(Debug, Deserialize)]
pub(crate) struct Input {
    command: String,
    /// Milliseconds.
    timeout: Option<u32>,
    workdir: Option<String>,
    description: Option<String>,
}

/// The started call for a command that a person requested. Its id is the id of the requesting part.
pub(crate) fn call(part_id: &PartId, command: &str, now: Timestamp) -> part::Tool {
    let (input, time) = (json!({"command": command}), Span { start: now, end: None });
    let state = ToolState::Running { input, title: None, metadata: Some(begun_metadata()), time };
    part::Tool { call_id: part_id.to_string(), tool: "bash".to_owned(), state }
}

/// The metadata of a command before its first output: clients show an empty screen.
pub(crate) fn begun_metadata() -> Map<String, Value> {
    Map::from_iter([(OUTPUT.to_owned(), "".into())])
}

pub(crate) fn spec() -> tool::Spec {
    tool_spec(
        "bash",
        "Runs a command with bash in the workspace and returns its output and exit code. Each call starts a new shell: \
         use `workdir` instead of cd. The network ends at a proxy that allows only the \
         hosts in `environment.network.allow` of the project's settings. A command may run for ten minutes at most: run what takes longer, or \
         never ends, in the background with its output in a file, and look at that with later calls.",
        json!({
            "type": "object",
            "properties": {
                "command": {"type": "string", "minLength": 1, "description": "The command"},
                "timeout": {"type": "integer", "minimum": 1, "maximum": limits::EXEC_TIMEOUT_MAX_MS,
                            "description": "Milliseconds after which it is ended; default 120000"},
                "workdir": {"type": "string", "description": "Directory to run in; default /workspace"},
                "description": {"type": "string", "description": "What it does, in five to ten words"}
            },
            "required": ["command"],
            "additionalProperties": false
        }),
    )
}

/// The metadata key for what clients show on the screen of a command. OpenCode's name.
pub(crate) const OUTPUT: &str = "output";
/// The metadata of the first command after the session lost its sandbox. The note for the model is no part of the output: a call that is
/// repeated with the same output is a repetition, whichever sandbox it runs in.
const IN_NEW_SANDBOX: &str = "in_new_sandbox";
/// The metadata of the first command after something went wrong at the start of its sandbox: what, for people and the model.
const START_FAILURE: &str = "start_failure";
/// The metadata of a command about which there is something to say: the note below its output, so that clients can tell the two apart.
const NOTE: &str = "note";
/// The note with the first command in another sandbox.
const NEW_SANDBOX: &str = "Before this command the sandbox was cleaned: background processes of earlier commands, /tmp and the home \
                           directory are gone. /workspace is as it was.";
pub(crate) async fn run(ctx: &CallContext, input: Input) -> Result<Output, ToolError> {
    let title = title(&input);
    if !ctx.call.resumed {
        start(ctx, &input).await?;
    }
    let mut excerpt = OutputExcerpt::new(ctx.bounds);
    let followed = follow(ctx, &input, &mut excerpt).await;
    let exit = match followed {
        // The intent was stored, but the command never reached the sandbox. The sandbox knows this loop's epoch, so it
        // refuses a delayed start from the previous worker.
        Err(_) if ctx.call.resumed && is_unknown(&followed) => {
            return Err(ToolError::Model(
                "This command was interrupted before it started, when its worker stopped. Run it again if it is still \
                 needed."
                    .to_owned(),
            ));
        }
        Err(status) => return Err(sandbox_error(&status)),
        Ok(exit) => exit,
    };
    let is_lost = exit.end() == ExecEnd::Lost;
    let is_of_person = ctx.call.person_timeout_ms.is_some();
    let output = output_of(&with_advice(exit, is_of_person), &excerpt);
    if is_lost {
        return Err(ToolError::Model(output.text));
    }
    Ok(Output { title, ..output })
}

/// The end of a command with what helps whoever ran it, if its time was up.
fn with_advice(mut exit: v1::ExecExit, is_of_person: bool) -> v1::ExecExit {
    if exit.end() == ExecEnd::Timeout && !exit.message.is_empty() {
        exit.message += if is_of_person {
            "; `--timeout SECONDS` of the command line gives a command more time"
        } else {
            "; start servers in the background with `&`, and what takes longer than ten minutes too, with its output in a file"
        };
    }
    exit
}

/// The answer of a command that has ended, without a title.
fn output_of(exit: &v1::ExecExit, excerpt: &OutputExcerpt) -> Output {
    let mut metadata = live_metadata(excerpt);
    metadata.insert(
        "exit".to_owned(),
        if exit.end() == ExecEnd::Exited { json!(exit.code) } else { Value::Null },
    );
    metadata.insert("duration_ms".to_owned(), json!(exit.duration_ms));
    if exit.in_new_sandbox {
        metadata.insert(IN_NEW_SANDBOX.to_owned(), true.into());
    }
    if !exit.start_failure.is_empty() {
        let failure = text::without_nul(&exit.start_failure).into_owned();
        metadata.insert(START_FAILURE.to_owned(), failure.into());
    }
    if !excerpt.is_shown_whole() {
        metadata.insert(TRUNCATED.to_owned(), true.into());
        metadata.insert(OUTPUT_PATH.to_owned(), exit.spill_path.clone().into());
    }
    let printed = excerpt.text(&exit.spill_path);
    if let Some(note) = note(exit, &printed) {
        metadata.insert(NOTE.to_owned(), text::without_nul(&note).into_owned().into());
    }
    let text = answer(exit, printed);
    // Clients show how the command ended. An abort is the person's own, so they show only what the command printed.
    if exit.end() != ExecEnd::Killed {
        let shown = with_notes(&text, start_failure(&metadata));
        metadata.insert(
            OUTPUT.to_owned(),
            text::tail(&shown, TOOL_PROGRESS_BYTES).replace('\0', "\u{fffd}").into(),
        );
    }
    Output { text, metadata: completed_metadata(metadata), ..Output::default() }
}

/// Reads the answer of a command that an abort ended, as far as the sandbox gives it until then. Returns `None` if the command
/// did not start.
pub(crate) async fn read_aborted(
    sandbox: &Sandbox,
    request: v1::AttachExecRequest,
    bounds: Bounds,
    until: Instant,
) -> Option<Output> {
    let mut excerpt = OutputExcerpt::new(bounds);
    let (mut is_attached, mut exit) = (false, None);
    let read = async {
        let mut stream = sandbox.client().attach_exec(request).await?.into_inner();
        is_attached = true;
        while let Some(message) = stream.message().await? {
            match message.item {
                Some(Item::Output(output)) => excerpt.push(output.offset_bytes, &output.data),
                Some(Item::Exit(ended)) => {
                    exit = Some(ended);
                    break;
                }
                None => {}
            }
        }
        Ok::<(), Status>(())
    };
    let read = timeout_at(until, read).await.unwrap_or(Ok(()));
    match exit {
        Some(exit) if exit.end() != ExecEnd::Lost => Some(output_of(&exit, &excerpt)),
        // The kill reached it before it started.
        _ if is_unknown(&read) => None,
        Some(_) | None => is_attached.then(|| aborted(live_metadata(&excerpt))),
    }
}

/// The answer of an aborted command with this metadata, which has the newest output that the worker knows.
pub(crate) fn aborted(mut metadata: Map<String, Value>) -> Output {
    let shown = metadata.get(OUTPUT).and_then(Value::as_str).unwrap_or_default();
    let text = with_abort_note(&excerpt::plain(shown));
    metadata.insert("exit".to_owned(), Value::Null);
    Output { text, metadata: completed_metadata(metadata), ..Output::default() }
}

/// The output of an aborted command, with the note in OpenCode's words.
fn with_abort_note(output: &str) -> String {
    format!("{output}\n\n<shell_metadata>\nUser aborted the command\n</shell_metadata>")
}

async fn start(ctx: &CallContext, input: &Input) -> Result<(), ToolError> {
    let request = v1::StartExecRequest {
        fence: ctx.identity.fence(),
        exec_id: ctx.call.exec_id.clone(),
        command: input.command.clone(),
        directory: input.workdir.clone().unwrap_or_default(),
        env: HashMap::new(),
        timeout_ms: timeout_ms(ctx, input),
        output_bytes_max: limits::EXEC_OUTPUT_BYTES_MAX,
        is_repeated: false,
    };
    let mut is_repeated = false;
    // A repeated start is safe: the sandbox starts an exec id once.
    let started = ctx.deps.sandbox.call(|mut client| {
        let request = v1::StartExecRequest { is_repeated, ..request.clone() };
        is_repeated = true;
        async move { client.start_exec(request).await }
    });
    started.await.map(|_| ()).map_err(|status| sandbox_error(&status))
}

/// Milliseconds after which the sandbox ends the command: those of a person, or those of the arguments, which the schema bounds.
fn timeout_ms(ctx: &CallContext, input: &Input) -> u32 {
    ctx.call.person_timeout_ms.or(input.timeout).unwrap_or(limits::EXEC_TIMEOUT_MS)
}

fn is_unknown<T>(followed: &Result<T, Status>) -> bool {
    followed.as_ref().is_err_and(|status| has_code(status, ErrorCode::ExecUnknown))
}

/// Follows the output to the exit, across lost connections, and reports progress.
async fn follow(
    ctx: &CallContext,
    input: &Input,
    excerpt: &mut OutputExcerpt,
) -> Result<v1::ExecExit, Status> {
    let title = title(input);
    let mut show_at = Instant::now() + Duration::from_millis(TOOL_PROGRESS_MS);
    let mut shown_offset = 0;
    let give_up =
        Instant::now() + Duration::from_millis(u64::from(timeout_ms(ctx, input)) + limits::SANDBOX_WAIT_MS);
    loop {
        let request = v1::AttachExecRequest {
            fence: ctx.identity.fence(),
            exec_id: ctx.call.exec_id.clone(),
            from_offset_bytes: excerpt.next_offset,
        };
        let mut stream = ctx
            .deps
            .sandbox
            .call(|mut client| {
                let request = request.clone();
                async move { client.attach_exec(request).await }
            })
            .await?;
        loop {
            let message = tokio::select! {
                message = stream.message() => message,
                () = sleep_until(show_at) => {
                    if excerpt.next_offset != shown_offset {
                        shown_offset = excerpt.next_offset;
                        ctx.show_progress(title.clone(), live_metadata(excerpt)).await;
                    }
                    show_at = Instant::now() + Duration::from_millis(TOOL_PROGRESS_MS);
                    continue;
                }
            };
            match message {
                Ok(Some(v1::AttachExecResponse { item: Some(Item::Output(output)) })) => {
                    excerpt.push(output.offset_bytes, &output.data);
                }
                Ok(Some(v1::AttachExecResponse { item: Some(Item::Exit(exit)) })) => return Ok(exit),
                Ok(Some(v1::AttachExecResponse { item: None })) => {}
                Ok(None) => break,
                Err(status) if is_away(&status) => break,
                Err(status) => return Err(status),
            }
        }
        if Instant::now() > give_up {
            return Err(Status::deadline_exceeded("the sandbox did not say how the command ended"));
        }
    }
}

/// The metadata of a running command.
fn live_metadata(excerpt: &OutputExcerpt) -> Map<String, Value> {
    Map::from_iter([(OUTPUT.to_owned(), excerpt.newest().into())])
}

/// The answer of a completed call as the model reads it: the output, with the notes about a new sandbox and its start.
pub(crate) fn text_for_model(output: &Arc<String>, metadata: &Map<String, Value>) -> Arc<String> {
    let cleaned = (metadata.get(IN_NEW_SANDBOX) == Some(&Value::Bool(true))).then_some(NEW_SANDBOX);
    let notes: Vec<&str> = cleaned.into_iter().chain(start_failure(metadata)).collect();
    if notes.is_empty() { Arc::clone(output) } else { with_notes(output, notes).into() }
}

/// What went wrong at the start of the sandbox, with the first command in it.
fn start_failure(metadata: &Map<String, Value>) -> Option<&str> {
    metadata.get(START_FAILURE).and_then(Value::as_str)
}

/// A text with notes below it, each in brackets.
fn with_notes<'a>(text: &str, notes: impl IntoIterator<Item = &'a str>) -> String {
    let notes: String = notes.into_iter().map(|note| format!("\n\n({note})")).collect();
    if notes.is_empty() { text.to_owned() } else { format!("{}{notes}", text.trim_end_matches('\n')) }
}

/// The text for the model: the output, and the note about it.
fn answer(exit: &v1::ExecExit, output: String) -> String {
    if exit.end() == ExecEnd::Killed {
        return with_abort_note(&output);
    }
    match (output.is_empty(), note(exit, &output)) {
        (true, None) => "(no output)".to_owned(),
        (false, None) => output,
        (true, Some(note)) => format!("({note})"),
        (false, Some(note)) => format!("{}\n\n({note})", output.trim_end_matches('\n')),
    }
}

/// What there is to say about a command, in sentences: how it ended unless it succeeded, and what may help. An abort is the person's own.
fn note(exit: &v1::ExecExit, output: &str) -> Option<String> {
    let how = match exit.end() {
        ExecEnd::Exited if exit.signal != 0 => Some(format!("It was ended by signal {}.", exit.signal)),
        ExecEnd::Exited if exit.code != 0 => Some(format!("Exit code {}.", exit.code)),
        ExecEnd::Exited => None,
        ExecEnd::Timeout => {
            Some(format!("It was ended after {} ms because its time limit expired.", exit.duration_ms))
        }
        ExecEnd::Killed => return None,
        ExecEnd::Lost => {
            Some("Its outcome is unknown. It may have had effects: check before you run it again.".to_owned())
        }
        ExecEnd::MemoryLimit | ExecEnd::ProcessLimit | ExecEnd::DiskLimit | ExecEnd::Unspecified => {
            Some("A limit of the sandbox ended it.".to_owned())
        }
    };
    let dropped = (exit.dropped_bytes > 0)
        .then(|| format!("Its last {} bytes of output were not kept.", exit.dropped_bytes));
    // The sandbox's message about a limit is more specific than the limit's name.
    let message = (!exit.message.is_empty()).then(|| with_full_stop(&exit.message));
    let adds = matches!(exit.end(), ExecEnd::Exited | ExecEnd::Lost) || message.is_none();
    let how = how.filter(|_| adds);
    let hints = hints::of(exit.code, output).map(ToOwned::to_owned);
    let notes: Vec<String> = how.into_iter().chain(message).chain(dropped).chain(hints).collect();
    (!notes.is_empty()).then(|| notes.join(" "))
}

/// The message of the sandbox as a sentence that others can follow.
fn with_full_stop(message: &str) -> String {
    if message.ends_with(['.', '!', '?']) { message.to_owned() } else { format!("{message}.") }
}

fn title(input: &Input) -> String {
    let words = input.description.as_deref().filter(|words| !words.is_empty()).unwrap_or(&input.command);
    words.lines().next().unwrap_or_default().to_owned()
}

/// The title of a call with these arguments.
pub(crate) fn title_of(input: &Value) -> String {
    parse_arguments(input.clone()).map_or_else(|_| String::new(), |input| title(&input))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_told_how_a_command_ended() {
        let exit =
            |end: ExecEnd, code, signal| v1::ExecExit { end: end.into(), code, signal, ..Default::default() };
        for (exit, output, want) in [
            (exit(ExecEnd::Exited, 0, 0), "", "(no output)"),
            (exit(ExecEnd::Exited, 0, 0), "a\n", "a\n"),
            (exit(ExecEnd::Exited, 3, 0), "a\n", "a\n\n(Exit code 3.)"),
            (exit(ExecEnd::Exited, 0, 9), "", "(It was ended by signal 9.)"),
            (
                exit(ExecEnd::Killed, 0, 9),
                "a\n",
                "a\n\n\n<shell_metadata>\nUser aborted the command\n</shell_metadata>",
            ),
        ] {
            assert_eq!(answer(&exit, output.to_owned()), want);
        }
        let late = v1::ExecExit {
            message: "stopped after 1 s".to_owned(),
            dropped_bytes: 7,
            ..exit(ExecEnd::Timeout, 0, 9)
        };
        assert_eq!(
            answer(&late, String::new()),
            "(stopped after 1 s. Its last 7 bytes of output were not kept.)"
        );
        for (is_of_person, advice) in [(true, "`--timeout SECONDS`"), (false, "in the background with `&`")] {
            let ended = with_advice(late.clone(), is_of_person);
            assert!(ended.message.contains(advice), "{}", ended.message);
        }
        assert_eq!(with_advice(exit(ExecEnd::Exited, 1, 0), true).message, "");
        let pip = "ERROR: No matching distribution found for requests";
        let text = answer(&exit(ExecEnd::Exited, 1, 0), pip.to_owned());
        assert!(text.starts_with(pip) && text.contains("The sandbox reaches only the hosts"), "{text}");
        assert!(
            answer(&exit(ExecEnd::Exited, 0, 0), pip.to_owned())
                .contains("The sandbox reaches only the hosts")
        );
        let printed = format!("{pip}\n{}", "more text\n".repeat(200));
        assert_eq!(answer(&exit(ExecEnd::Exited, 0, 0), printed.clone()), printed, "a file with such words");
        let cleaned = v1::ExecExit { in_new_sandbox: true, ..exit(ExecEnd::Exited, 0, 0) };
        let Output { text, metadata, .. } = output_of(&cleaned, &OutputExcerpt::new(Bounds::default()));
        assert_eq!((text.as_str(), metadata.get(NOTE)), ("(no output)", None));
        let told = output_of(&exit(ExecEnd::Exited, 3, 0), &OutputExcerpt::new(Bounds::default()));
        assert_eq!((told.text.as_str(), &told.metadata[NOTE]), ("(Exit code 3.)", &json!("Exit code 3.")));
        let model_text = text_for_model(&text.into(), &metadata);
        assert!(
            model_text.starts_with("(no output)\n\n(Before this command the sandbox was cleaned"),
            "{model_text}"
        );
        // People read that a start failed where they read the output; the output itself is without the note.
        let failed = v1::ExecExit { start_failure: "the start failed".to_owned(), ..cleaned };
        let Output { text, metadata, .. } = output_of(&failed, &OutputExcerpt::new(Bounds::default()));
        assert_eq!(text, "(no output)");
        assert_eq!(metadata[OUTPUT], "(no output)\n\n(the start failed)");
        let model_text = text_for_model(&text.into(), &metadata);
        assert!(model_text.contains("was cleaned") && model_text.ends_with("\n\n(the start failed)"));
    }
}
