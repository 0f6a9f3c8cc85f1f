//! One connection through a proxy: two directions, each with the current rules.

use super::{
    link::{ConnectionEnd, Direction, Flow, FlowState, Trap},
    state::{Shared, State, reset},
};
use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::watch,
};

/// Bytes that one step moves.
const PIECE_BYTES: usize = 16 * 1024;

pub(super) struct Connection {
    shared: Arc<Shared>,
    number: u64,
    /// The number of cuts before this connection started.
    cuts_before: u64,
    /// Whether it lost bytes.
    lossy: AtomicBool,
    /// Whether the next answer resets it.
    trapped: AtomicBool,
}

/// Why a direction has ended.
enum DirectionEnd {
    /// The sender ended it, and the receiver knows.
    Finished,
    /// The whole connection ends.
    Broken,
}

impl Connection {
    pub(super) fn new(shared: Arc<Shared>, number: u64) -> Self {
        let cuts_before = shared.state.borrow().cuts;
        Self { shared, number, cuts_before, lossy: AtomicBool::new(false), trapped: AtomicBool::new(false) }
    }

    pub(super) async fn run(self, mut client: TcpStream) {
        let target = self.shared.state.borrow().target;
        let Some(Ok(mut server)) = self.unless_cut(TcpStream::connect(target)).await else {
            return reset(&client);
        };
        // Small answers must not wait for each other. On a closed stream the call fails, which is fine.
        drop(client.set_nodelay(true));
        drop(server.set_nodelay(true));
        let (from_client, into_client) = client.split();
        let (from_server, into_server) = server.split();
        let both = self.both(
            self.pump(Direction::Up, from_client, into_server),
            self.pump(Direction::Down, from_server, into_client),
        );
        let end = self.unless_cut(both).await.unwrap_or_else(|| self.shared.state.borrow().end);
        if end == ConnectionEnd::Reset {
            reset(&client);
            reset(&server);
        }
    }

    /// Runs `work` until the link is cut; returns `None` in that case.
    async fn unless_cut<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut state = self.shared.state.subscribe();
        tokio::select! {
            biased;
            // The sender lives as long as `self.shared`.
            _ = state.wait_for(|state| state.cuts > self.cuts_before) => None,
            done = work => Some(done),
        }
    }

    async fn both(
        &self,
        up: impl Future<Output = DirectionEnd>,
        down: impl Future<Output = DirectionEnd>,
    ) -> ConnectionEnd {
        tokio::pin!(up, down);
        let (mut up_runs, mut down_runs) = (true, true);
        while up_runs || down_runs {
            let over = tokio::select! {
                over = &mut up, if up_runs => { up_runs = false; over }
                over = &mut down, if down_runs => { down_runs = false; over }
            };
            if matches!(over, DirectionEnd::Broken) {
                return ConnectionEnd::Reset;
            }
        }
        ConnectionEnd::Finish
    }

    async fn pump(
        &self,
        direction: Direction,
        mut from: ReadHalf<'_>,
        mut into: WriteHalf<'_>,
    ) -> DirectionEnd {
        let mut state = self.shared.state.subscribe();
        let mut buffer = vec![0; PIECE_BYTES];
        let mut pieces = 0_u64;
        loop {
            if self.thawed(direction, &mut state).await == FlowState::All
                && self.lossy.load(Ordering::Relaxed)
            {
                return DirectionEnd::Broken;
            }
            let read = tokio::select! {
                biased;
                _ = state.changed() => continue,
                read = from.read(&mut buffer) => read,
            };
            let Ok(length) = read else { return DirectionEnd::Broken };
            let flow = flow(direction, &state.borrow());
            if flow.state == FlowState::Lost {
                self.lossy.store(true, Ordering::Relaxed);
                if length == 0 {
                    // The end is lost as well, until the link changes.
                    drop(state.changed().await);
                }
                continue;
            }
            pieces += 1;
            tokio::time::sleep(flow.delay + self.jitter(direction, pieces, flow.jitter)).await;
            // The link may have gone silent while the piece was delayed.
            self.thawed(direction, &mut state).await;
            if length == 0 {
                // A receiver that is gone needs no end.
                drop(into.shutdown().await);
                return DirectionEnd::Finished;
            }
            let (pass, breaks) = self.spring_trap(direction, &buffer[..length]);
            if into.write_all(&buffer[..pass]).await.is_err() || breaks {
                return DirectionEnd::Broken;
            }
        }
    }

    /// Waits until the direction is not frozen, and returns its state then.
    async fn thawed(&self, direction: Direction, state: &mut watch::Receiver<State>) -> FlowState {
        loop {
            let now = flow(direction, &state.borrow_and_update()).state;
            if now != FlowState::Frozen {
                return now;
            }
            // The sender lives as long as `self.shared`.
            drop(state.changed().await);
        }
    }

    /// How many bytes of a piece arrive, and whether a trap then resets the connection.
    fn spring_trap(&self, direction: Direction, piece: &[u8]) -> (usize, bool) {
        if direction == Direction::Down && self.trapped.load(Ordering::Relaxed) {
            self.shared.sprung.fetch_add(1, Ordering::Relaxed);
            return (0, true);
        }
        let mut trap = self.shared.trap();
        match &mut *trap {
            Some(Trap::AfterBytes(on, left)) if *on == direction => {
                let length = piece.len() as u64;
                if length < *left {
                    *left -= length;
                    return (piece.len(), false);
                }
                let pass = usize::try_from(*left).unwrap_or(piece.len());
                *trap = None;
                self.shared.sprung.fetch_add(1, Ordering::Relaxed);
                (pass, true)
            }
            Some(Trap::AnswerTo(needle)) if direction == Direction::Up && contains(piece, needle) => {
                *trap = None;
                self.trapped.store(true, Ordering::Relaxed);
                (piece.len(), false)
            }
            Some(Trap::AfterBytes(..) | Trap::AnswerTo(_)) | None => (piece.len(), false),
        }
    }

    fn jitter(&self, direction: Direction, piece: u64, most: Duration) -> Duration {
        let most_us = u64::try_from(most.as_micros()).unwrap_or(u64::MAX - 1);
        let mut hasher = DefaultHasher::new();
        (self.number, direction == Direction::Up, piece).hash(&mut hasher);
        Duration::from_micros(hasher.finish() % (most_us + 1))
    }
}

fn flow(direction: Direction, state: &State) -> Flow {
    match direction {
        Direction::Up => state.rules.up,
        Direction::Down => state.rules.down,
    }
}

fn contains(piece: &[u8], needle: &[u8]) -> bool {
    !needle.is_empty() && piece.windows(needle.len()).any(|window| window == needle)
}
