//! The body of an answer that may hold room. It gives large frames out in small pieces, because a connection keeps the piece that its
//! reader has not taken yet. When a reader stops while the answer holds room, the answer is dropped with all that it holds.

use super::taken_room::TakenRoom;
use axum::body::{Body, Bytes, HttpBody};
use chassis::lock;
use http_body::{Frame, SizeHint};
use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, Weak},
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::Instant;

/// Bytes of a piece of a frame.
const PIECE_BYTES: usize = 16 * 1024;
/// Time in which the reader of an answer that holds room must take the next piece.
const READER_SILENCE_MAX: Duration = Duration::from_secs(30);
/// Time between two looks at the readers.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

pub(super) struct AnswerBody(Arc<Mutex<Answer>>);

/// What is left of an answer.
struct Answer {
    /// `None`: the reader was silent, and everything is dropped.
    body: Option<Body>,
    /// The rest of a large frame.
    rest: Bytes,
    taken: TakenRoom,
    /// When the reader took the newest piece; `None`: it waits for the next one.
    given_at: Option<Instant>,
}

impl AnswerBody {
    fn answer(&self) -> MutexGuard<'_, Answer> {
        lock(&self.0)
    }
}

impl Answer {
    fn next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Some(body) = &mut self.body else {
            let error = io::Error::new(io::ErrorKind::TimedOut, "the reader of the answer was silent");
            return Poll::Ready(Some(Err(axum::Error::new(error))));
        };
        if self.rest.is_empty() {
            let Poll::Ready(frame) = Pin::new(body).poll_frame(context) else { return Poll::Pending };
            let Some(Ok(frame)) = frame else { return Poll::Ready(frame) };
            match frame.into_data() {
                Ok(data) => self.rest = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let piece = if self.rest.len() <= PIECE_BYTES {
            std::mem::take(&mut self.rest)
        } else {
            // A copy: a part of the frame would keep all of it.
            Bytes::copy_from_slice(&self.rest.split_to(PIECE_BYTES))
        };
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_abandoned(&self) -> bool {
        self.given_at.is_some_and(|at| at.elapsed() > READER_SILENCE_MAX) && self.taken.is_held()
    }

    fn cut(&mut self) {
        self.body = None;
        self.rest = Bytes::new();
        self.taken.give_back();
    }
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut answer = self.answer();
        let next = answer.next(context);
        answer.given_at = next.is_ready().then(Instant::now);
        next
    }

    fn is_end_stream(&self) -> bool {
        let answer = self.answer();
        answer.rest.is_empty() && answer.body.as_ref().is_some_and(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let answer = self.answer();
        let Some(body) = &answer.body else { return SizeHint::default() };
        let (of_body, rest) = (body.size_hint(), answer.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(of_body.lower() + rest);
        if let Some(upper) = of_body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

/// The readers of all answers that may hold room.
#[derive(Debug, Default)]
pub(super) struct Readers(Mutex<Vec<Weak<Mutex<Answer>>>>);

impl Readers {
    pub(super) fn watch(&self, body: Body, taken: TakenRoom) -> AnswerBody {
        let answer =
            Arc::new(Mutex::new(Answer { body: Some(body), rest: Bytes::new(), taken, given_at: None }));
        lock(&self.0).push(Arc::downgrade(&answer));
        AnswerBody(answer)
    }

    /// Cuts the answers of silent readers for ever.
    pub(super) async fn cut_silent_forever(&self) {
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            self.cut_silent();
        }
    }

    fn cut_silent(&self) {
        let answers: Vec<_> = {
            let mut all = lock(&self.0);
            all.retain(|answer| answer.strong_count() > 0);
            all.iter().filter_map(Weak::upgrade).collect()
        };
        for answer in answers {
            let mut answer = lock(&answer);
            if answer.is_abandoned() {
                answer.cut();
                metrics::counter!("flotilla_silent_readers_total").increment(1);
            }
        }
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer").field("given_at", &self.given_at).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use futures::{FutureExt as _, StreamExt as _};
    use shares::{Permit, Shares};

    const LARGE: usize = 3 * PIECE_BYTES + 1;

    async fn permit() -> Permit {
        Shares::new(1, 1).acquire("tenant", Duration::ZERO).await.unwrap()
    }

    fn is_silent_since_long(readers: &Readers, answer: &Arc<Mutex<Answer>>) -> bool {
        if let Some(at) = &mut lock(answer).given_at {
            *at -= 2 * READER_SILENCE_MAX;
        }
        readers.cut_silent();
        lock(answer).body.is_none()
    }

    #[tokio::test]
    async fn a_large_frame_is_given_out_in_pieces() {
        let body = Readers::default().watch(Body::from(vec![7; LARGE]), TakenRoom::default());
        assert_eq!(HttpBody::size_hint(&body).exact(), Some(LARGE as u64));
        let pieces: Vec<usize> =
            Body::new(body).into_data_stream().map(|piece| piece.unwrap().len()).collect().await;
        assert_eq!(pieces, [PIECE_BYTES, PIECE_BYTES, PIECE_BYTES, 1]);
    }

    #[tokio::test]
    async fn an_answer_that_holds_room_is_dropped_when_its_reader_stops() {
        let (readers, taken) = (Readers::default(), TakenRoom::default());
        let body = readers.watch(Body::from(vec![7; LARGE]), taken.clone());
        let answer = Arc::clone(&body.0);
        let mut pieces = Body::new(body).into_data_stream();
        assert!(!is_silent_since_long(&readers, &answer), "nobody has read yet");
        pieces.next().await.unwrap().unwrap();
        assert!(!is_silent_since_long(&readers, &answer), "it holds no room");
        let held = taken.lend(permit().await);
        assert!(is_silent_since_long(&readers, &answer));
        assert!(pieces.next().await.unwrap().is_err(), "the reader is told");
        drop(held);
        assert!(!taken.is_held());
    }

    #[tokio::test]
    async fn a_reader_that_waits_for_a_stream_is_not_silent() {
        let (readers, taken) = (Readers::default(), TakenRoom::default());
        let first = futures::stream::iter([Ok::<_, io::Error>("first")]);
        let body = readers.watch(Body::from_stream(first.chain(futures::stream::pending())), taken.clone());
        let (answer, _held) = (Arc::clone(&body.0), taken.lend(permit().await));
        let mut pieces = Body::new(body).into_data_stream();
        pieces.next().await.unwrap().unwrap();
        assert!(pieces.next().now_or_never().is_none());
        assert!(!is_silent_since_long(&readers, &answer));
    }
}
