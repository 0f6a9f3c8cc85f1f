//! A terminal with a program: the test types into it and reads its screen.

use nix::{
    pty::{Winsize, openpty},
    sys::termios::Termios,
};
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
pub(super) struct Screen {
    parser: Arc<Mutex<vt100::Parser>>,
    /// Notified at every change of the screen.
    drawn: watch::Receiver<u64>,
    keys: File,
    _program: Child,
}

impl Screen {
    /// Starts a program in a terminal.
    pub(super) fn start(mut command: Command) -> Self {
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
        Self { parser, drawn, keys, _program: program }
    }

    /// Returns the lines of the screen.
    pub(super) fn text(&self) -> String {
        self.parser.lock().unwrap().screen().contents()
    }

    /// Types keys.
    pub(super) fn type_in(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the condition holds for the screen.
    pub(super) async fn until(&mut self, what: &str, matches: impl Fn(&str) -> bool) {
        let search = async {
            while !matches(&self.text()) {
                assert!(self.drawn.changed().await.is_ok(), "the program ended\n{}", self.text());
            }
        };
        let found = tokio::time::timeout(APPEARS, search).await;
        assert!(found.is_ok(), "never seen: {what}\n{}", self.text());
    }

    /// Waits until the screen contains a text.
    pub(super) async fn until_output(&mut self, text: &str) {
        self.until(text, |screen| screen.contains(text)).await;
    }
}
