//! The body of a streamed answer: frames with their delays, and the faults that hit it.

use super::journal::Open;
use super::script::FaultKind;
use axum::body::Body;
use bytes::Bytes;
use std::collections::VecDeque;
use std::io;
use std::time::Duration;
use tokio::sync::watch;

/// Bytes that are neither text nor any protocol.
const GARBAGE: &[u8] = b"data: \xff\xfe\x00garbage\x80\n\n";

/// One event on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    text: String,
    /// Whether it carries a piece of the answer. Only such frames are delayed, and only they count for faults.
    is_piece: bool,
}

impl Frame {
    pub(super) fn new(text: String) -> Self {
        Self { text, is_piece: false }
    }

    pub(super) fn piece(self) -> Self {
        Self { is_piece: true, ..self }
    }
}

/// `text` in pieces of `chars` characters; no pieces for an empty text.
pub(super) fn split(text: &str, chars: usize) -> Vec<String> {
    let all: Vec<char> = text.chars().collect();
    all.chunks(chars.max(1)).map(|piece| piece.iter().collect()).collect()
}

#[derive(Debug, Clone, Copy)]
enum BodyEnd {
    Whole,
    Broken,
    Silent,
    Garbage,
}

struct State {
    frames: VecDeque<Frame>,
    end: BodyEnd,
    delay: Duration,
    stop: watch::Receiver<bool>,
    _open: Open,
}

/// The body that sends `frames`, with `fault`. It breaks off when `stop` becomes true.
pub(super) fn stream(
    frames: Vec<Frame>,
    fault: Option<&FaultKind>,
    delay_ms: u64,
    stop: watch::Receiver<bool>,
    open: Open,
) -> Body {
    let (pieces_max, end) = match fault {
        Some(FaultKind::Cut { pieces, is_clean: true }) => (*pieces, BodyEnd::Whole),
        Some(FaultKind::Cut { pieces, is_clean: false }) => (*pieces, BodyEnd::Broken),
        Some(FaultKind::Stall { pieces }) => (pieces.unwrap_or_default(), BodyEnd::Silent),
        Some(FaultKind::Garbage { pieces }) => (*pieces, BodyEnd::Garbage),
        // These faults replace the whole answer, so they do not reach a body.
        Some(FaultKind::Status { .. } | FaultKind::Html | FaultKind::Blind) | None => {
            (usize::MAX, BodyEnd::Whole)
        }
    };
    let delay = Duration::from_millis(delay_ms);
    let state = State { frames: cut(frames, pieces_max), end, delay, stop, _open: open };
    Body::from_stream(futures::stream::unfold(Some(state), next))
}

/// The frames up to and including piece number `pieces_max`. An answer with fewer pieces is cut before its last frames,
/// so that a fault always has an effect.
fn cut(frames: Vec<Frame>, pieces_max: usize) -> VecDeque<Frame> {
    if pieces_max == usize::MAX {
        return frames.into();
    }
    let last_piece = frames.iter().rposition(|frame| frame.is_piece).map_or(0, |at| at + 1);
    let mut beginning = VecDeque::new();
    let mut pieces = 0;
    for frame in frames.into_iter().take(last_piece) {
        if frame.is_piece && pieces == pieces_max {
            break;
        }
        pieces += usize::from(frame.is_piece);
        beginning.push_back(frame);
    }
    beginning
}

/// The next bytes and the next state; the state is `None` at the end.
async fn next(state: Option<State>) -> Option<(io::Result<Bytes>, Option<State>)> {
    let mut state = state?;
    let Some(frame) = state.frames.pop_front() else {
        return match state.end {
            BodyEnd::Whole => None,
            BodyEnd::Broken => {
                // Returns the server time to flush: an error discards its buffer.
                tokio::task::yield_now().await;
                Some((Err(io::Error::other("cut by the script")), None))
            }
            BodyEnd::Garbage => {
                state.end = BodyEnd::Whole;
                Some((Ok(Bytes::from_static(GARBAGE)), Some(state)))
            }
            BodyEnd::Silent => {
                stopped(&mut state.stop).await;
                Some((Err(io::Error::other("the server stops")), None))
            }
        };
    };
    if frame.is_piece && !state.delay.is_zero() {
        tokio::select! {
            () = tokio::time::sleep(state.delay) => {}
            () = stopped(&mut state.stop) => return Some((Err(io::Error::other("the server stops")), None)),
        }
    }
    Some((Ok(Bytes::from(frame.text)), Some(state)))
}

/// Waits until the server stops.
pub(super) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // A dropped sender also means that the server has stopped.
    let _ = stop.wait_for(|is_stopped| *is_stopped).await;
}
