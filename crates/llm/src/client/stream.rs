//! A streaming answer: the connection, its decoder and its timeouts.

use super::transport::transport;
use crate::decode::Decoder;
use crate::error::{Error, ErrorKind};
use crate::event::Event;
use crate::provider::Provider;
use bytes::Bytes;
use futures::Stream;
use futures::stream::BoxStream;
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Sleep;

/// Longest model answer from head to end: keep-alives alone must not hold a turn forever. Milliseconds.
const MODEL_ANSWER_TIMEOUT_MS: u64 = 3_600_000;

/// The events of one answer, then `None`. The stream ends exactly once, with `Finished` or with an error. Dropping it
/// closes the connection.
pub struct EventStream {
    bytes: BoxStream<'static, Result<Bytes, reqwest::Error>>,
    decoder: Decoder,
    ready: VecDeque<Event>,
    /// Delivered after everything in `ready`.
    failure: Option<Error>,
    is_over: bool,
    silence_ms: u64,
    /// Runs only while the client waits for bytes, so that a slow reader does not look like a silent provider.
    silence: Option<Pin<Box<Sleep>>>,
    whole: Pin<Box<Sleep>>,
    provider_id: String,
    request_id: Option<String>,
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream")
            .field("provider_id", &self.provider_id)
            .field("request_id", &self.request_id)
            .field("is_over", &self.is_over)
            .finish_non_exhaustive()
    }
}

impl EventStream {
    pub(super) fn new(
        response: reqwest::Response,
        decoder: Decoder,
        provider: &Provider,
        request_id: Option<String>,
    ) -> Self {
        Self {
            bytes: Box::pin(response.bytes_stream()),
            decoder,
            ready: VecDeque::new(),
            failure: None,
            is_over: false,
            silence_ms: provider.chunk_timeout_ms,
            silence: None,
            whole: Box::pin(tokio::time::sleep(Duration::from_millis(MODEL_ANSWER_TIMEOUT_MS))),
            provider_id: provider.id.clone(),
            request_id,
        }
    }

    /// The provider's id of the call.
    pub fn request_id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }

    /// Handles what the connection returned. An error is kept until the events before it have been read.
    fn take(&mut self, read: Option<Result<Bytes, reqwest::Error>>) {
        let mut events = Vec::new();
        let outcome = match read {
            Some(Ok(bytes)) => self.decoder.push(&bytes, &mut events),
            Some(Err(error)) => Err(transport("the connection broke in the middle of the answer", error)),
            None => self.decoder.end(&mut events),
        };
        self.ready.extend(events);
        if let Err(error) = outcome {
            self.fail(error);
        }
    }

    fn fail(&mut self, error: Error) {
        let mut error = error.of(&self.provider_id);
        error.request_id = self.request_id.clone();
        self.failure = Some(error);
        // The rest of the body is not needed: return the connection to the pool at once.
        self.bytes = Box::pin(futures::stream::empty());
    }

    /// Returns the error if a timeout has expired; otherwise both timers wake the task.
    fn poll_clocks(&mut self, cx: &mut Context<'_>) -> Option<Error> {
        let silence_ms = self.silence_ms;
        let silence = self
            .silence
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(Duration::from_millis(silence_ms))));
        if silence.as_mut().poll(cx).is_ready() {
            return Some(Error::new(
                ErrorKind::Timeout,
                format!("the provider sent nothing for {silence_ms} ms in the middle of the answer"),
            ));
        }
        if self.whole.as_mut().poll(cx).is_ready() {
            let text = format!("the answer was not complete after {MODEL_ANSWER_TIMEOUT_MS} ms");
            return Some(Error::new(ErrorKind::Timeout, text));
        }
        None
    }
}

impl Stream for EventStream {
    type Item = Result<Event, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.is_over |= matches!(event, Event::Finished { .. });
                return Poll::Ready(Some(Ok(event)));
            }
            if self.is_over {
                return Poll::Ready(None);
            }
            if let Some(error) = self.failure.take() {
                self.is_over = true;
                return Poll::Ready(Some(Err(error)));
            }
            match self.bytes.as_mut().poll_next(cx) {
                Poll::Ready(read) => {
                    self.silence = None;
                    self.take(read);
                }
                Poll::Pending => match self.poll_clocks(cx) {
                    Some(error) => self.fail(error),
                    None => return Poll::Pending,
                },
            }
        }
    }
}
