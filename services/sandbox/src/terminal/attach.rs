//! Follows a terminal: sends the kept output from an offset on, then new output, then the exit. A reader that is too
//! slow misses output, which the offsets show; the program never waits for a reader.

use super::pty::Terminal;
use rpc::v1::{
    AttachTerminalRequest, AttachTerminalResponse, TerminalExit, TerminalOutput, TerminalReplay,
    attach_terminal_response::Item,
};
use std::sync::Arc;
use tokio::sync::mpsc;

/// The stream of a reader.
pub type Sender = mpsc::Sender<Result<AttachTerminalResponse, tonic::Status>>;

/// Sends the requested output and the exit, until the program ends or the reader disconnects.
pub async fn run(terminal: Arc<Terminal>, request: AttachTerminalRequest, to: Sender) {
    let mut state = terminal.state.subscribe();
    let replay = {
        let scrollback = &state.borrow().scrollback;
        let start = request.from_offset_bytes.filter(|_| !request.exit_only).unwrap_or(scrollback.end);
        let from = start.clamp(scrollback.start(), scrollback.end);
        let lost_bytes = scrollback.start().saturating_sub(start);
        TerminalReplay { from_offset_bytes: from, to_offset_bytes: scrollback.end, lost_bytes }
    };
    let mut offset = replay.from_offset_bytes;
    if !send(Item::Replay(replay), &to).await {
        return;
    }
    loop {
        let (exit_code, (offset_bytes, data)) = {
            let state = state.borrow_and_update();
            let from = if request.exit_only { state.scrollback.end } else { offset };
            (state.info.exit_code, state.scrollback.read(from))
        };
        offset = offset_bytes + data.len() as u64;
        let item = match (data.is_empty(), exit_code) {
            (false, _) => Item::Output(TerminalOutput { offset_bytes, data }),
            (true, Some(code)) => {
                send(Item::Exit(TerminalExit { code }), &to).await;
                return;
            }
            (true, None) => tokio::select! {
                () = to.closed() => return,
                changed = state.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
            },
        };
        if !send(item, &to).await {
            return;
        }
    }
}

async fn send(item: Item, to: &Sender) -> bool {
    to.send(Ok(AttachTerminalResponse { item: Some(item) })).await.is_ok()
}
