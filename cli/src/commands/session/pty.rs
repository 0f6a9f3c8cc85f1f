//! `flotilla pty`: a terminal in the sandbox of a session, in the person's own terminal. It speaks `PtyService`, whose terminals are those of
//! OpenCode's clients: a terminal outlives the connection to it.

use crate::{
    client::{Client, call},
    exit::{self, CodedError, Exit, coded},
    lookup::{self, Fit},
    terminal::{
        output::{ListText, Output},
        paint::{Paint, one_line},
        progress::Amount,
        raw::{RawTerminal, ScreenSize},
        table::{Side, Table},
    },
};
use anyhow::{Context as _, Result, bail};
use futures::stream;
use rpc::v1::{
    AttachPtyRequest, AttachPtyResponse, CreatePtyRequest, DeletePtyRequest, ErrorCode, GetPtyRequest,
    ListPtysRequest, Terminal, TerminalSize, UpdatePtyRequest, attach_pty_response::Item,
};
use serde_json::{Value, json};
use std::io::{IsTerminal as _, Read as _};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
};

/// The end of the help.
pub(crate) const HELP: &str = "Ctrl-] q leaves the terminal and lets its program run; `flotilla pty SESSION --attach PTY` returns to it. \
Ctrl-] Ctrl-] types Ctrl-]. The exit code is that of the program: 128 plus the number of the signal that ended it. It is 1 if the terminal \
cannot be opened or the connection is lost; the program then runs on.";

/// Ctrl-], which begins a command to this program.
const ESCAPE: u8 = 0x1d;
/// Pieces of input that wait for the gateway. A person types less; a paste waits.
const INPUT_PIECES_MAX: usize = 16;
/// Bytes that one reading of the keyboard gives at most; far less than the gateway takes in one message. The next reading gives the rest.
const KEYBOARD_BYTES_MAX: usize = 4 * 1024;
/// Characters of a title in the list.
const TITLE_CHARS: usize = 30;
/// Variables that tell a program what the person's terminal can do.
const VARIABLES: [&str; 2] = ["TERM", "COLORTERM"];

/// `flotilla pty`.
#[derive(Debug, clap::Args)]
pub(crate) struct PtyArgs {
    /// The session.
    pub(crate) id: String,
    /// Return to this terminal.
    #[arg(long, value_name = "PTY", conflicts_with = "command")]
    attach: Option<String>,
    /// List the terminals of the session.
    #[arg(long, conflicts_with_all = ["attach", "command"])]
    ls: bool,
    /// The program and its arguments; default: a login shell.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(crate) async fn run(client: &Client, output: &Output, arguments: PtyArgs) -> Result<Exit> {
    let PtyArgs { id, attach, ls, command } = arguments;
    if ls {
        list(client, output, &id).await?;
        return Ok(Exit::Done);
    }
    if output.is_json() {
        bail!("a terminal has no --json; `flotilla shell` runs a command and prints its events");
    }
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        bail!("a terminal needs one here too; `flotilla shell` runs a command without one");
    }
    let start = match attach {
        Some(named) => {
            let pty_id = find(client, &id, &named).await?;
            Start { pty_id, from_offset_bytes: None }
        }
        None => {
            let opening = output.progress("opening the workspace", Amount::Unknown);
            let pty_id = create(client, &id, command).await?;
            drop(opening);
            // The program may have written before this reader comes.
            Start { pty_id, from_offset_bytes: Some(0) }
        }
    };
    let pty_id = start.pty_id.clone();
    output.note(&format!("terminal {pty_id}; Ctrl-] q leaves it and lets its program run"));
    let back = format!("`flotilla pty {id} --attach {pty_id}` returns to it");
    match relay(client, start).await {
        Ok(PtyEnd::Exit(code)) => {
            delete(client, &pty_id).await;
            Ok(Exit::Program(u8::try_from(code).unwrap_or(u8::MAX)))
        }
        Ok(PtyEnd::Left) => {
            output.note(&format!("left the terminal; {back}"));
            Ok(Exit::Done)
        }
        Ok(PtyEnd::Signal(number)) => {
            output.note(&format!("signal {number}; {back}"));
            Ok(Exit::Program(u8::try_from(128 + number).unwrap_or(u8::MAX)))
        }
        Err(error) if is_gone(&error) => Err(gone(&id, &pty_id)),
        Err(error) => Err(error.context(format!("lost the terminal; {back}"))),
    }
}

/// The id of a terminal that a person names by it, or by the beginning or the end of it. Checks that there is such a terminal, before anything is said
/// about it.
async fn find(client: &Client, session_id: &str, named: &str) -> Result<String> {
    let request = ListPtysRequest { session_id: session_id.to_owned() };
    let list = async || client.ptys().list_ptys(request.clone()).await;
    let ptys = call("list the terminals", list).await?.ptys;
    match lookup::fit(&ptys, |pty| &pty.id, named) {
        Fit::One(pty) => return Ok(pty.id.clone()),
        Fit::Several(_) => {
            let message = format!("several terminals fit {named:?}; give more of the id");
            return Err(coded("pty_ambiguous", message));
        }
        Fit::Nothing => {}
    }
    let request = GetPtyRequest { pty_id: named.to_owned() };
    let get = async || client.ptys().get_pty(request.clone()).await;
    match call("find the terminal", get).await {
        Ok(_) => Ok(named.to_owned()),
        Err(error) if is_gone(&error) => Err(gone(session_id, named)),
        Err(error) => Err(error),
    }
}

fn is_gone(error: &anyhow::Error) -> bool {
    exit::has_code(error, ErrorCode::PtyNotFound)
}

fn gone(session_id: &str, pty_id: &str) -> anyhow::Error {
    let message = format!(
        "there is no terminal {pty_id}, or its program has ended; `flotilla pty {session_id} --ls` lists the terminals"
    );
    coded(ErrorCode::PtyNotFound, message)
}

/// A terminal, and the output to begin with.
struct Start {
    pty_id: String,
    /// None: only new output.
    from_offset_bytes: Option<u64>,
}

/// Starts a program in a new terminal. The call is made once: a repetition would start another one.
async fn create(client: &Client, session_id: &str, command: Vec<String>) -> Result<String> {
    let mut words = command.into_iter();
    let variables =
        VARIABLES.into_iter().filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)));
    let request = CreatePtyRequest {
        session_id: session_id.to_owned(),
        command: words.next().unwrap_or_default(),
        args: words.collect(),
        env: variables.collect(),
        size: ScreenSize::of_terminal().map(to_wire),
        ..CreatePtyRequest::default()
    };
    let answer = client.ptys().create_pty(request).await.context("open a terminal")?;
    Ok(answer.into_inner().pty.unwrap_or_default().id)
}

fn to_wire(size: ScreenSize) -> TerminalSize {
    TerminalSize { rows: size.rows.into(), columns: size.columns.into() }
}

/// Removes a terminal whose program has ended.
async fn delete(client: &Client, pty_id: &str) {
    let request = DeletePtyRequest { pty_id: pty_id.to_owned() };
    // Without this, the sandbox removes it after a day.
    drop(client.ptys().delete_pty(request).await);
}

async fn resize(client: &Client, pty_id: &str) {
    if let Some(size) = ScreenSize::of_terminal() {
        let pty_id = pty_id.to_owned();
        let request = UpdatePtyRequest { pty_id, title: String::new(), size: Some(to_wire(size)) };
        // The program keeps the old size. The connection itself reports a gateway that is gone.
        drop(client.ptys().update_pty(request).await);
    }
}

/// How a person came back from a terminal.
#[derive(Debug, PartialEq, Eq)]
enum PtyEnd {
    Exit(u32),
    /// The person left with Ctrl-] q, or closed the keyboard.
    Left,
    /// A signal ended this command.
    Signal(i32),
}

/// Connects the person's terminal with the program until either ends. The terminal is as before afterwards, also after an error.
async fn relay(client: &Client, start: Start) -> Result<PtyEnd> {
    let Start { pty_id, from_offset_bytes } = start;
    let (input, receiver) = mpsc::channel(INPUT_PIECES_MAX);
    let first = AttachPtyRequest { pty_id: pty_id.clone(), from_offset_bytes, data: vec![] };
    input.send(first).await.context("begin the connection")?;
    let requests =
        stream::unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) });
    let mut items = client.ptys().attach_pty(requests).await?.into_inner();
    let mut endings = Endings::listen()?;
    let mut resized = signal(SignalKind::window_change()).context("listen for changes of the window")?;
    let mut terminal = RawTerminal::enter()?;
    resize(client, &pty_id).await;
    let mut keys = read_keyboard();
    let (mut commands, mut unsent) = (Commands::default(), vec![]);
    loop {
        tokio::select! {
            biased;
            number = endings.next() => return Ok(PtyEnd::Signal(number)),
            item = items.message() => match item?.map(|AttachPtyResponse { item }| item) {
                Some(Some(Item::Output(output))) => terminal.write(&output.data)?,
                Some(Some(Item::Exit(exit))) => return Ok(PtyEnd::Exit(exit.code)),
                Some(Some(Item::Replay(_)) | None) => {}
                None => {
                    let message = "the gateway ended the connection".to_owned();
                    return Err(CodedError { code: "connection_lost".into(), message }.into());
                }
            },
            _ = resized.recv() => resize(client, &pty_id).await,
            permit = input.reserve(), if !unsent.is_empty() => {
                // The gateway reads no more input; the next item says why.
                let Ok(permit) = permit else { unsent.clear(); continue };
                permit.send(AttachPtyRequest { data: std::mem::take(&mut unsent), ..Default::default() });
            }
            typed = keys.recv(), if unsent.is_empty() => {
                let Some(typed) = typed else { return Ok(PtyEnd::Left) };
                let Typed { data, leaves } = commands.read(&typed);
                if leaves {
                    return Ok(PtyEnd::Left);
                }
                unsent = data;
            }
        }
    }
}

/// Reads the keyboard until this process ends.
fn read_keyboard() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(1);
    // Reading a terminal blocks, and nothing can interrupt it: a thread of the runtime would hold up the end of the process.
    std::thread::spawn(move || {
        let mut bytes = [0; KEYBOARD_BYTES_MAX];
        while let Ok(length @ 1..) = std::io::stdin().lock().read(&mut bytes) {
            if sender.blocking_send(bytes[..length].to_vec()).is_err() {
                break;
            }
        }
    });
    receiver
}

/// The signals that end this command.
struct Endings([(i32, Signal); 4]);

impl Endings {
    fn listen() -> Result<Self> {
        let listen = |kind: SignalKind| Ok::<_, std::io::Error>((kind.as_raw_value(), signal(kind)?));
        let kinds = || -> std::io::Result<_> {
            Ok([
                listen(SignalKind::hangup())?,
                listen(SignalKind::interrupt())?,
                listen(SignalKind::quit())?,
                listen(SignalKind::terminate())?,
            ])
        };
        Ok(Self(kinds().context("listen for signals")?))
    }

    /// The number of the next signal.
    async fn next(&mut self) -> i32 {
        let [a, b, c, d] = &mut self.0;
        tokio::select! {
            _ = a.1.recv() => a.0,
            _ = b.1.recv() => b.0,
            _ = c.1.recv() => c.0,
            _ = d.1.recv() => d.0,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Typed {
    data: Vec<u8>,
    leaves: bool,
}

/// Finds commands to this program in what a person types.
#[derive(Debug, Default)]
struct Commands {
    /// Whether the last key was Ctrl-].
    has_escape: bool,
}

impl Commands {
    fn read(&mut self, typed: &[u8]) -> Typed {
        let mut data = Vec::with_capacity(typed.len());
        for &byte in typed {
            match (std::mem::take(&mut self.has_escape), byte) {
                (false, ESCAPE) => self.has_escape = true,
                (true, b'q') => return Typed { data, leaves: true },
                (true, ESCAPE) | (false, _) => data.push(byte),
                (true, _) => data.extend([ESCAPE, byte]),
            }
        }
        Typed { data, leaves: false }
    }
}

async fn list(client: &Client, output: &Output, session_id: &str) -> Result<()> {
    let request = ListPtysRequest { session_id: session_id.to_owned() };
    let ptys = async || client.ptys().list_ptys(request.clone()).await;
    let ptys = call("list the terminals", ptys).await?.ptys;
    output.list(&ptys, &ListText { to_json, table: &table, none: "the session has no terminals" })
}

fn table(ptys: &[Terminal], paint: Paint) -> String {
    let heading = ["TERMINAL", "STATE", "TITLE", "COMMAND"];
    let mut table = Table::new(heading.map(|name| (name, Side::Left)));
    for pty in ptys {
        let state = pty.exit_code.map_or_else(|| "running".to_owned(), |code| format!("exit {code}"));
        let command = [std::slice::from_ref(&pty.command), &pty.args].concat().join(" ");
        table.push([pty.id.clone(), state, one_line(&pty.title, TITLE_CHARS), command]);
    }
    table.text(paint)
}

fn to_json(pty: &Terminal) -> Value {
    json!({
        "type": "pty", "id": pty.id, "title": pty.title, "command": pty.command, "args": pty.args,
        "directory": pty.directory, "pid": pty.pid, "exit_code": pty.exit_code,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_leaves_the_terminal_and_all_others_are_typed() {
        let typed = |pieces: &[&[u8]]| {
            let mut commands = Commands::default();
            pieces.iter().map(|piece| commands.read(piece)).collect::<Vec<_>>()
        };
        let data = |data: &[u8]| Typed { data: data.to_vec(), leaves: false };
        assert_eq!(typed(&[b"ls\r", b"\x03q"]), [data(b"ls\r"), data(b"\x03q")]);
        assert_eq!(typed(&[b"a\x1d", b"q"]), [data(b"a"), Typed { data: vec![], leaves: true }]);
        assert_eq!(typed(&[b"a\x1dqb"]), [Typed { data: b"a".to_vec(), leaves: true }]);
        assert_eq!(typed(&[b"\x1d\x1d", b"q"]), [data(b"\x1d"), data(b"q")]);
        assert_eq!(typed(&[b"\x1dx"]), [data(b"\x1dx")]);
    }
}
