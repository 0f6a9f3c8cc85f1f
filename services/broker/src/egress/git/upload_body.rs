//! A body that may take minutes to send. The read timeout of a client of reqwest begins with the request and goes on while the body is sent, so it would end each long
//! upload. Uploads go through a client without one, and this bounds the silence of their server.

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use reqwest::{Body, RequestBuilder, Response};
use std::{io, time::Duration};
use tokio::{sync::watch, time::timeout};

/// Longest time in which a server takes no piece of an upload, and from its last piece to its answer. Beyond it: `push_unreachable`.
const UPLOAD_SILENCE_MAX: Duration = Duration::from_secs(120);

/// The body, and what of it was taken.
#[derive(Debug)]
pub(crate) struct UploadBody {
    body: Body,
    /// Changes with each piece, and ends with the body.
    taken: watch::Receiver<()>,
}

/// Why no answer came.
#[derive(Debug)]
pub(super) enum SendFailure {
    Silence,
    Http(reqwest::Error),
}

impl From<reqwest::Error> for SendFailure {
    fn from(error: reqwest::Error) -> Self {
        Self::Http(error)
    }
}

impl UploadBody {
    pub(crate) fn new(pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Self {
        let (note, taken) = watch::channel(());
        let body = Body::wrap_stream(pieces.inspect(move |_| {
            note.send_replace(());
        }));
        Self { body, taken }
    }

    /// Sends a request with this body. The client must have no read timeout.
    ///
    /// # Errors
    /// `Silence`: the server took nothing for two minutes; `Http`.
    ///
    /// Dropped midway: the server has a part of the body or all of it.
    pub(super) async fn send(self, request: RequestBuilder) -> Result<Response, SendFailure> {
        self.send_within(request, UPLOAD_SILENCE_MAX).await
    }

    async fn send_within(self, request: RequestBuilder, silence: Duration) -> Result<Response, SendFailure> {
        let Self { body, mut taken } = self;
        let mut sent = Box::pin(request.body(body).send());
        let mut has_more = true;
        while has_more {
            tokio::select! {
                biased;
                answer = &mut sent => return Ok(answer?),
                piece = timeout(silence, taken.changed()) => {
                    has_more = piece.map_err(|_| SendFailure::Silence)?.is_ok();
                }
            }
        }
        Ok(timeout(silence, sent).await.map_err(|_| SendFailure::Silence)??)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use futures::stream;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    /// More than the buffers of a connection take.
    const PIECES: usize = 500;
    const PIECE: &[u8] = &[7; 64 * 1024];
    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

    /// Sends an upload to a server that takes so many bytes, then answers or keeps the connection open.
    async fn send(take: usize, answer: &[u8], silence: Duration) -> Result<Response, SendFailure> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let serve = async {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut bytes = vec![0; take];
            connection.read_exact(&mut bytes).await.unwrap();
            connection.write_all(answer).await.unwrap();
            // The connection stays open.
            std::future::pending().await
        };
        let body = UploadBody::new(stream::iter((0..PIECES).map(|_| Ok(Bytes::from_static(PIECE)))));
        let client = chassis::http::upload_builder().no_proxy().build().unwrap();
        tokio::select! {
            answer = body.send_within(client.put(url), silence) => answer,
            answer = serve => answer,
        }
    }

    #[tokio::test]
    async fn an_upload_ends_if_its_server_takes_nothing_or_does_not_answer() {
        for take in [1, PIECES * PIECE.len()] {
            let failure = send(take, b"", Duration::from_millis(300)).await.unwrap_err();
            assert!(matches!(failure, SendFailure::Silence), "{take}: {failure:?}");
        }
    }

    #[tokio::test]
    async fn the_answer_to_an_upload_ends_it() {
        let response = send(PIECES * PIECE.len(), ANSWER, UPLOAD_SILENCE_MAX).await.unwrap();
        assert_eq!(response.status(), 200);
        let early = b"HTTP/1.1 413 Payload Too Large\r\ncontent-length: 0\r\n\r\n";
        let response = send(1, early, UPLOAD_SILENCE_MAX).await.unwrap();
        assert_eq!(response.status(), 413, "before the whole body was taken");
    }
}
