//! Terminals: what a person sees and types, what is kept for a later reader, and how they end.

use crate::harness::{Machine, Session, TOKEN, code, directory, fresh, is_root};
use chassis::grpc::{self, ServerCheck, Windows};
use domain::limits::TERMINAL_INPUT_BYTES_MAX;
use rpc::v1::{self, attach_terminal_response::Item, terminal_service_client::TerminalServiceClient};
use sandbox::{
    isolation::terminals::TERMINALS_MAX,
    terminal::limits::{KEPT_BYTES_MAX, READERS_MAX, TERMINALS_TENANT_MAX},
};
use std::time::{Duration, Instant};
use tonic::{Request, Status, Streaming, transport::Channel};

/// The terminals of a session, as a gateway asks for them.
struct Terminals {
    client: TerminalServiceClient<Channel>,
    session: Session,
}

/// The output that a reader of a terminal has seen.
struct Reader {
    items: Streaming<v1::AttachTerminalResponse>,
    replay: v1::TerminalReplay,
    seen: String,
    offset: u64,
    exit: Option<u32>,
}

fn with_token<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {TOKEN}").parse().unwrap());
    request
}

impl Terminals {
    async fn of(machine: &Machine, session: &Session) -> Self {
        let check = ServerCheck::default();
        let channel = grpc::channel_with_windows(&machine.url, &check, Windows::CLIENT_STREAMS).unwrap();
        let session = Session { epoch: 0, ..session.clone() };
        Self { client: TerminalServiceClient::new(channel), session }
    }

    fn request(&self, id: &str, command: &str, args: &[&str]) -> v1::CreateTerminalRequest {
        v1::CreateTerminalRequest {
            fence: self.session.fence(),
            terminal_id: id.to_owned(),
            command: command.to_owned(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            ..Default::default()
        }
    }

    async fn create(&self, request: v1::CreateTerminalRequest) -> Result<v1::Terminal, Status> {
        let response = self.client.clone().create_terminal(with_token(request)).await?;
        Ok(response.into_inner().terminal.unwrap())
    }

    /// Runs a script at a new terminal.
    async fn run(&self, id: &str, script: &str) -> v1::Terminal {
        self.create(self.request(id, "bash", &["-c", script])).await.unwrap()
    }

    async fn list(&self) -> Vec<v1::Terminal> {
        let request = v1::ListTerminalsRequest { fence: self.session.fence() };
        self.client.clone().list_terminals(with_token(request)).await.unwrap().into_inner().terminals
    }

    async fn get(&self, id: &str) -> Result<v1::Terminal, Status> {
        let request = v1::GetTerminalRequest { fence: self.session.fence(), terminal_id: id.to_owned() };
        Ok(self.client.clone().get_terminal(with_token(request)).await?.into_inner().terminal.unwrap())
    }

    async fn write(&self, id: &str, text: &str) -> Result<(), Status> {
        let (fence, data) = (self.session.fence(), text.as_bytes().to_vec());
        let request = v1::WriteTerminalRequest { fence, terminal_id: id.to_owned(), data };
        self.client.clone().write_terminal(with_token(request)).await.map(drop)
    }

    async fn resize(&self, id: &str, rows: u32, columns: u32) -> Result<v1::Terminal, Status> {
        let request = v1::UpdateTerminalRequest {
            fence: self.session.fence(),
            terminal_id: id.to_owned(),
            title: String::new(),
            size: Some(v1::TerminalSize { rows, columns }),
        };
        Ok(self.client.clone().update_terminal(with_token(request)).await?.into_inner().terminal.unwrap())
    }

    async fn delete(&self, id: &str) -> Result<(), Status> {
        let request = v1::DeleteTerminalRequest { fence: self.session.fence(), terminal_id: id.to_owned() };
        self.client.clone().delete_terminal(with_token(request)).await.map(drop)
    }

    async fn attach(&self, id: &str, from_offset_bytes: Option<u64>) -> Result<Reader, Status> {
        let request = v1::AttachTerminalRequest {
            fence: self.session.fence(),
            terminal_id: id.to_owned(),
            from_offset_bytes,
            exit_only: false,
        };
        let mut items = self.client.clone().attach_terminal(with_token(request)).await?.into_inner();
        let Some(Item::Replay(replay)) = items.message().await?.unwrap().item else {
            panic!("a stream must begin with where it begins");
        };
        let offset = replay.from_offset_bytes;
        Ok(Reader { items, replay, seen: String::new(), offset, exit: None })
    }

    /// The output of a terminal until its program ends.
    async fn to_end(&self, id: &str, from: u64) -> Reader {
        let mut reader = self.attach(id, Some(from)).await.unwrap();
        while reader.next().await {}
        reader
    }
}

impl Reader {
    async fn next(&mut self) -> bool {
        match self.items.message().await.unwrap().unwrap().item.unwrap() {
            Item::Output(piece) => {
                assert_eq!(piece.offset_bytes, self.offset);
                self.offset += piece.data.len() as u64;
                self.seen.push_str(&String::from_utf8_lossy(&piece.data));
            }
            Item::Exit(exit) => self.exit = Some(exit.code),
            Item::Replay(replay) => panic!("a second beginning: {replay:?}"),
        }
        self.exit.is_none()
    }

    /// Returns when the program has ended, even if output was missed.
    async fn ended(mut self) {
        while !matches!(self.items.message().await.unwrap().unwrap().item, Some(Item::Exit(_))) {}
    }

    async fn until(&mut self, text: &str) {
        while !self.seen.contains(text) {
            assert!(self.next().await, "{text:?} did not come: {:?}", self.seen);
        }
    }
}

#[tokio::test]
async fn a_person_types_and_reads_the_output() {
    let (_directory, machine, session) = fresh(&[]).await;
    session.sh("mkdir sub").await;
    let terminals = Terminals::of(&machine, &session).await;
    let request = v1::CreateTerminalRequest {
        directory: "/workspace/sub".to_owned(),
        env: [("PS1".to_owned(), "> ".to_owned()), ("GREETING".to_owned(), "ahoj".to_owned())].into(),
        ..terminals.request("pty_1", "bash", &["--norc"])
    };
    let terminal = terminals.create(request.clone()).await.unwrap();
    assert_eq!(
        (terminal.title.as_str(), terminal.exit_code, terminal.pid > 1),
        ("Terminal ty_1", None, true)
    );
    let mut reader = terminals.attach("pty_1", Some(0)).await.unwrap();
    terminals.write("pty_1", "tty; pwd; echo $GREETING-$TERM; id -u\n").await.unwrap();
    reader.until("/dev/pts/0\r\n/workspace/sub\r\nahoj-xterm-256color\r\n1000\r\n").await;
    // A job that is stopped by a key: the terminal is the shell's own, with its signals.
    terminals.write("pty_1", "sleep 1000\n").await.unwrap();
    reader.until("sleep 1000\r\n").await;
    session.sh("until pgrep -x sleep; do :; done").await;
    terminals.write("pty_1", "\u{3}").await.unwrap();
    reader.until("^C").await;
    terminals.write("pty_1", "echo code-$?; exit 3\n").await.unwrap();
    while reader.next().await {}
    assert!(reader.seen.contains("code-130\r\n"), "{:?}", reader.seen);
    assert_eq!(reader.exit, Some(3));
    assert_eq!(
        terminals.get("pty_1").await.unwrap(),
        v1::Terminal { exit_code: Some(3), ..terminal.clone() }
    );
    assert_eq!(code(terminals.write("pty_1", "x").await), "terminal_unknown");
    // The same call again returns the existing terminal.
    assert_eq!(terminals.create(request).await.unwrap().exit_code, Some(3));
    terminals.delete("pty_1").await.unwrap();
    assert_eq!(code(terminals.get("pty_1").await), "terminal_unknown");
    assert!(terminals.list().await.is_empty());
}

#[tokio::test]
async fn a_terminal_has_the_requested_size() {
    let (_directory, machine, session) = fresh(&[]).await;
    let terminals = Terminals::of(&machine, &session).await;
    let script = "trap 'stty size; exit' WINCH; stty size; while :; do read -r -t 1 line; done";
    terminals.run("t", script).await;
    let mut reader = terminals.attach("t", Some(0)).await.unwrap();
    reader.until("24 80\r\n").await;
    terminals.resize("t", 20, 132).await.unwrap();
    reader.until("20 132\r\n").await;
    for (rows, columns) in [(0, 80), (24, 65_536)] {
        assert_eq!(code(terminals.resize("t", rows, columns).await), "argument_invalid");
    }
}

#[tokio::test]
async fn a_later_reader_gets_the_kept_output() {
    let (_directory, machine, session) = fresh(&[]).await;
    let terminals = Terminals::of(&machine, &session).await;
    terminals.run("short", "printf 0123456789").await;
    let all = terminals.to_end("short", 0).await;
    assert_eq!((all.seen.as_str(), all.exit), ("0123456789", Some(0)));
    assert_eq!(terminals.to_end("short", 7).await.seen, "789");
    assert_eq!(terminals.to_end("short", 999).await.seen, "");
    let bytes = KEPT_BYTES_MAX + 1_000;
    terminals.run("long", &format!("head -c {bytes} /dev/zero | tr '\\0' x; printf end")).await;
    terminals.attach("long", None).await.unwrap().ended().await;
    let reader = terminals.to_end("long", 5).await;
    let want =
        v1::TerminalReplay { from_offset_bytes: 1_003, to_offset_bytes: bytes as u64 + 3, lost_bytes: 998 };
    assert_eq!(reader.replay, want);
    assert_eq!((reader.seen.len(), reader.seen.ends_with("xend")), (KEPT_BYTES_MAX, true));
}

#[tokio::test]
async fn readers_that_do_not_read_stall_no_other_reader() {
    let (_directory, machine, session) = fresh(&[]).await;
    let terminals = Terminals::of(&machine, &session).await;
    let ids = ["a", "b", "c", "read"];
    for id in ids {
        terminals.run(id, &format!("head -c {KEPT_BYTES_MAX} /dev/zero | tr '\\0' x")).await;
        terminals.attach(id, None).await.unwrap().ended().await;
    }
    // Together they leave more unread than the connection of calls lets wait.
    let mut silent = vec![];
    let read = async {
        for id in &ids[..3] {
            for _ in 1..READERS_MAX {
                silent.push(terminals.attach(id, Some(0)).await.unwrap());
            }
        }
        terminals.to_end("read", 0).await
    };
    let reader = testkit::within("a reader gets everything although others do not read", read).await;
    assert_eq!(reader.seen.len(), KEPT_BYTES_MAX);
    assert!(silent.len() * KEPT_BYTES_MAX > Windows::CALLS.connection_bytes as usize);
}

#[tokio::test]
async fn unread_input_is_refused_and_not_truncated() {
    let (_directory, machine, session) = fresh(&[]).await;
    let terminals = Terminals::of(&machine, &session).await;
    terminals.run("t", "stty raw -echo; echo ready; exec sleep 1000").await;
    let mut reader = terminals.attach("t", Some(0)).await.unwrap();
    reader.until("ready").await;
    assert_eq!(
        code(terminals.write("t", &"x".repeat(TERMINAL_INPUT_BYTES_MAX + 1)).await),
        "argument_invalid"
    );
    let piece = "x".repeat(TERMINAL_INPUT_BYTES_MAX);
    let mut typed = 0;
    let refused = loop {
        match terminals.write("t", &piece).await {
            Ok(()) => typed += 1,
            Err(status) => break status,
        }
        assert!(typed < 10, "nothing is refused");
    };
    assert_eq!(code::<()>(Err(refused)), "terminal_input_full");
}

#[tokio::test]
async fn a_session_sees_only_its_own_terminals_and_has_a_bounded_number() {
    let (_directory, machine, session) = fresh(&[]).await;
    let terminals = Terminals::of(&machine, &session).await;
    terminals.run("ended", "exit 0").await;
    terminals.to_end("ended", 0).await;
    for number in 0..TERMINALS_MAX {
        terminals.run(&format!("t{number}"), "exec sleep 1000").await;
    }
    assert_eq!(code(terminals.get("ended").await), "terminal_unknown", "the ended one made room");
    let more = terminals.create(terminals.request("more", "bash", &["-c", "true"])).await;
    assert_eq!(code(more), "terminals_too_many");
    let stranger = machine.empty_session().await;
    let strangers = Terminals::of(&machine, &stranger).await;
    assert_eq!(code(strangers.get("t0").await), "terminal_unknown");
    assert!(strangers.list().await.is_empty());
    let bad = strangers.request("x", "no-such-program", &[]);
    strangers.create(bad).await.unwrap();
    let reader = strangers.to_end("x", 0).await;
    assert_eq!(reader.exit, Some(127));
    assert!(reader.seen.contains("no-such-program"), "{:?}", reader.seen);
}

#[tokio::test]
async fn one_tenant_cannot_take_the_terminals_of_all() {
    let (_directory, machine, first) = fresh(&[]).await;
    let mut last = Terminals::of(&machine, &first).await;
    for number in 0..TERMINALS_TENANT_MAX {
        if number > 0 && number % TERMINALS_MAX == 0 {
            last = Terminals::of(&machine, &machine.empty_session_of(&first.tenant).await).await;
        }
        last.run(&format!("t{number}"), "exec sleep 1000").await;
    }
    let next = machine.empty_session_of(&first.tenant).await;
    let next = Terminals::of(&machine, &next).await;
    let more = next.create(next.request("more", "bash", &["-c", "true"])).await;
    assert_eq!(code(more), "terminals_too_many");
    let stranger = Terminals::of(&machine, &machine.empty_session().await).await;
    stranger.run("mine", "exec sleep 1000").await;
    last.delete(&format!("t{}", TERMINALS_TENANT_MAX - 1)).await.unwrap();
    next.run("more", "true").await;
    if !is_root() {
        return;
    }
    // A command that opens terminals itself meets the same limit, which includes those of people.
    let script = "import os\nheld = []\ntry:\n while True: held.append(os.openpty())\nexcept OSError: print(len(held))";
    assert_eq!(first.sh(&format!("python3 -c '{script}'")).await, (3 * TERMINALS_MAX).to_string());
}

#[tokio::test]
async fn removing_a_terminal_ends_all_its_processes() {
    let (_directory, machine, session) = fresh(&[]).await;
    let terminals = Terminals::of(&machine, &session).await;
    // A program that ignores signals, and children that left its session.
    let script = "trap '' HUP TERM INT; (setsid sleep 1001 &); (setsid nohup sleep 1002 &); echo up; sleep 1003; \
                  sleep 1004";
    terminals.run("t", script).await;
    let mut reader = terminals.attach("t", Some(0)).await.unwrap();
    reader.until("up").await;
    terminals.delete("t").await.unwrap();
    while reader.next().await {}
    assert_eq!(reader.exit, Some(137));
    assert_eq!(session.sh("pgrep -c sleep || true").await, "0");
    assert_eq!(session.sh("ps -A -o stat= | grep -c ^Z || true").await, "0");
}

#[tokio::test]
async fn a_running_terminal_outlives_a_takeover_and_holds_its_sandbox() {
    let (_directory, machine, session) = fresh(&["--idle-ms", "50"]).await;
    let terminals = Terminals::of(&machine, &session).await;
    terminals.run("t", "echo up; read -r line; echo got $line").await;
    let mut reader = terminals.attach("t", Some(0)).await.unwrap();
    reader.until("up").await;
    let successor = Session { epoch: 7, ..session.clone() };
    assert!(!successor.release().await.unwrap(), "the terminal uses the sandbox");
    assert_eq!(successor.sh("echo loop").await, "loop");
    terminals.write("t", "on\n").await.unwrap();
    while reader.next().await {}
    assert!(reader.seen.contains("got on\r\n"), "{:?}", reader.seen);
    assert!(successor.release().await.unwrap(), "an ended one does not");
    // The exit is also reported if another call ends the sandbox.
    terminals.run("u", "exec sleep 1000").await;
    let mut reader = terminals.attach("u", Some(0)).await.unwrap();
    successor.close().await;
    while reader.next().await {}
    assert_eq!(reader.exit, Some(137));
    assert!(terminals.list().await.is_empty());
}

#[tokio::test]
async fn a_terminal_has_the_walls_of_any_command() {
    let data = directory();
    let machine = Machine::start(data.path()).await;
    let session = machine.empty_session().await;
    let other = machine.empty_session().await;
    let theirs = Terminals::of(&machine, &other).await;
    theirs.run("t", "exec sleep 1000").await;
    let terminals = Terminals::of(&machine, &session).await;
    // TIOCSTI and TIOCLINUX type into a terminal: into the own one, into another's, into that of PID 1.
    let script = "echo canary; ls -1 /dev/pts; \
        python3 - <<'END'\nimport fcntl\nfor number in (0x5412, 0x541C):\n try:\n  fcntl.ioctl(1, number, b'x')\n  print('typed')\n \
        except OSError as error:\n  print(error.errno)\nEND\n\
        head -c 0 /dev/pts/1; head -c 0 /proc/1/fd/0; grep -E '^(CapEff|NoNewPrivs|Seccomp:)' /proc/self/status; \
        touch /usr/x; cat /etc/shadow; id -u";
    terminals.run("a", script).await;
    let output = terminals.to_end("a", 0).await.seen.replace('\r', "");
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines[..5], ["canary", "0", "ptmx", "1", "1"], "{output}");
    for refusal in [
        "cannot open '/dev/pts/1' for reading: No such file",
        "cannot open '/proc/1/fd/0' for reading: Permission denied",
        "CapEff:\t0000000000000000",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
        "'/usr/x': Read-only file system",
        "/etc/shadow: No such file",
    ] {
        assert!(output.contains(refusal), "wanted {refusal:?} in {output}");
    }
    assert!(output.ends_with("1000\n"), "{output}");
    // A call without the service's token is refused.
    let request = v1::ListTerminalsRequest { fence: terminals.session.fence() };
    assert_eq!(code(terminals.client.clone().list_terminals(request).await), "token_invalid");
}

#[tokio::test]
async fn a_terminal_begins_after_the_start_of_its_sandbox_and_shows_what_went_wrong() {
    let directory = directory();
    let machine = Machine::start(directory.path()).await;
    let session = machine.session();
    let start = "sleep 0.3; echo ready > /tmp/ready; echo no database; exit 3".to_owned();
    session.open(v1::WorkspaceHeader { start, ..Default::default() }, vec![]).await.unwrap();
    let terminals = Terminals::of(&machine, &session).await;
    terminals.run("a", "cat /tmp/ready").await;
    let seen = terminals.to_end("a", 0).await.seen;
    assert!(seen.contains("failed with exit code 3") && seen.contains("no database\r\n"), "{seen}");
    assert!(seen.ends_with("\r\nready\r\n"), "{seen}");
    assert!(session.run("true").await.exit.start_failure.contains("exit code 3"), "commands tell it too");
}

#[tokio::test]
async fn output_without_end_is_read_at_a_pace() {
    let (_directory, machine, session) = fresh(&[]).await;
    let terminals = Terminals::of(&machine, &session).await;
    let begun = Instant::now();
    // A second's worth comes at once, and the other half of it at the pace.
    terminals.run("pty_1", "head -c 6M /dev/zero | tr '\\0' x").await;
    let request = v1::AttachTerminalRequest {
        fence: terminals.session.fence(),
        terminal_id: "pty_1".to_owned(),
        exit_only: true,
        ..Default::default()
    };
    let mut items = terminals.client.clone().attach_terminal(with_token(request)).await.unwrap().into_inner();
    while !matches!(items.message().await.unwrap().unwrap().item, Some(Item::Exit(_))) {}
    assert!(begun.elapsed() >= Duration::from_millis(400), "{:?}", begun.elapsed());
    let whole = terminals.to_end("pty_1", 6 << 20).await;
    assert_eq!((whole.offset, whole.exit), (6 << 20, Some(0)), "nothing of it is lost");
}
