//! A terminal with a program: the test types into it and reads its screen.

use nix::{
    pty::{Winsize, openpty},
    sys::{
        signal::{Signal, kill},
        termios::Termios,
    },
    unistd::Pid,
};
use rustix::termios::LocalModes;
use std::{
    fs::File,
    io::{Read as _, Write as _},
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    process::{Child, Command},
    sync::watch,
};

/// Rows and columns.
const SIZE: (u16, u16) = (44, 110);
/// Time limit for an expected text.
const APPEARS: Duration = Duration::from_secs(40);

/// A program and its screen. Dropping it ends the program.
pub(crate) struct Screen {
    parser: Arc<Mutex<vt100::Parser>>,
    /// Notified at every change of the screen.
    drawn: watch::Receiver<u64>,
    keys: File,
    program: Child,
}

impl Screen {
    /// Starts a program in a terminal.
    pub(crate) fn start(mut command: Command) -> Self {
        let (rows, columns) = SIZE;
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None::<&Termios>).unwrap();
        let (keys, inside) = (File::from(pty.master), File::from(pty.slave));
        let twin = || Stdio::from(inside.try_clone().unwrap());
        let program = command.stdin(twin()).stdout(twin()).stderr(twin()).spawn().unwrap();
        let parser = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 0)));
        let (draws, drawn) = watch::channel(0_u64);
        let (mut output, terminal) = (keys.try_clone().unwrap(), Arc::clone(&parser));
        // Reading a terminal blocks, so a thread does it. The thread ends with the program.
        std::thread::spawn(move || {
            let mut bytes = [0; 16 * 1024];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                terminal.lock().unwrap().process(&bytes[..count]);
                draws.send_modify(|count| *count += 1);
            }
        });
        Self { parser, drawn, keys, program }
    }

    /// Returns the lines of the screen.
    pub(crate) fn text(&self) -> String {
        self.parser.lock().unwrap().screen().contents()
    }

    /// Changes the size of the window.
    pub(crate) fn resize(&mut self, rows: u16, columns: u16) {
        let size = rustix::termios::Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&self.keys, size).unwrap();
        // The terminal of a login tells its programs. This one belongs to no login.
        self.signal(Signal::SIGWINCH);
    }

    /// Whether the terminal shows what is typed and collects it into lines, as it does for a shell.
    pub(crate) fn is_cooked(&self) -> bool {
        let wanted = LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        rustix::termios::tcgetattr(&self.keys).unwrap().local_modes.contains(wanted)
    }

    /// Whether anything on the screen has a colour.
    pub(crate) fn is_coloured(&self) -> bool {
        let parser = self.parser.lock().unwrap();
        let (rows, columns) = parser.screen().size();
        let mut cells = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        cells.any(|(row, column)| {
            let cell = parser.screen().cell(row, column);
            cell.is_some_and(|cell| cell.fgcolor() != vt100::Color::Default)
        })
    }

    /// Sends the program a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = self.program.id().expect("the program runs");
        kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
    }

    /// Waits for the end of the program, and returns its exit code.
    pub(crate) async fn exit_code(&mut self) -> Option<i32> {
        let ended = tokio::time::timeout(APPEARS, self.program.wait()).await;
        ended.unwrap_or_else(|_| panic!("the program does not end\n{}", self.text())).unwrap().code()
    }

    pub(crate) fn type_in(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the condition holds for the screen.
    pub(crate) async fn until(&mut self, what: &str, matches: impl Fn(&str) -> bool) {
        let search = async {
            while !matches(&self.text()) {
                assert!(self.drawn.changed().await.is_ok(), "the program ended\n{}", self.text());
            }
        };
        let found = tokio::time::timeout(APPEARS, search).await;
        assert!(found.is_ok(), "never seen: {what}\n{}", self.text());
    }

    /// Waits until the screen contains a text.
    pub(crate) async fn until_output(&mut self, text: &str) {
        self.until(text, |screen| screen.contains(text)).await;
    }
}
