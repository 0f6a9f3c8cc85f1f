//! The behaviour of a link, as a test sets it.

use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// The state of one direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FlowState {
    #[default]
    All,
    /// They wait, and so does the end of the connection, as if the peer were silent. They arrive later.
    Frozen,
    /// They vanish. A connection that lost bytes is reset when the link recovers.
    Lost,
}

/// One direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flow {
    /// What happens to the bytes.
    pub state: FlowState,
    /// The delay of each piece.
    pub delay: Duration,
    /// The maximum additional delay. It differs for each piece and is identical in every run.
    pub jitter: Duration,
}

/// The behaviour of a link. The default is a good link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rules {
    /// From the client to the server.
    pub up: Flow,
    /// From the server to the client.
    pub down: Flow,
    /// New connections are reset at once.
    pub refuses: bool,
}

impl Rules {
    /// Both directions are silent: connections open, but no bytes arrive.
    pub fn half_open() -> Self {
        let frozen = Flow { state: FlowState::Frozen, ..Flow::default() };
        Self { up: frozen, down: frozen, refuses: false }
    }

    /// One direction loses all bytes.
    pub fn one_way(lost: Direction) -> Self {
        let lossy = Flow { state: FlowState::Lost, ..Flow::default() };
        match lost {
            Direction::Up => Self { up: lossy, ..Self::default() },
            Direction::Down => Self { down: lossy, ..Self::default() },
        }
    }

    /// Every piece is delayed, in both directions.
    pub fn slow(delay: Duration, jitter: Duration) -> Self {
        let slow = Flow { delay, jitter, ..Flow::default() };
        Self { up: slow, down: slow, refuses: false }
    }
}

/// How the proxy ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// By RST: both sides get an error.
    Reset,
    /// By FIN: both sides see an end.
    Finish,
}

/// Resets one connection, once, at a moment that a timer could not hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trap {
    /// After this many more bytes of all connections have passed in this direction. The last of them still arrives.
    AfterBytes(Direction, u64),
    /// When the answer to a piece with these bytes comes back: the piece arrives, but its sender never gets the answer.
    AnswerTo(Vec<u8>),
}
