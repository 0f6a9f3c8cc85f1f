//! A connection that must say what it speaks before long, and that has its place among all of them as long as it is open, whatever
//! it becomes: a WebSocket is no request any more, and still a connection.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::OwnedSemaphorePermit,
    time::Sleep,
};

/// How HTTP/2 begins. Until a connection differs from it, or has said all of it, nobody else keeps its time.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// One connection.
#[derive(Debug)]
pub(super) struct Opening {
    stream: TcpStream,
    /// What is left of the preface, and when it must be there; nothing when it is known what the connection speaks.
    awaited: Option<(&'static [u8], Pin<Box<Sleep>>)>,
    _place: OwnedSemaphorePermit,
}

impl Opening {
    pub(super) fn new(stream: TcpStream, within: Duration, place: OwnedSemaphorePermit) -> Self {
        let awaited = Some((PREFACE, Box::pin(tokio::time::sleep(within))));
        Self { stream, awaited, _place: place }
    }
}

impl AsyncRead for Opening {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let known = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let Some((left, deadline)) = &mut self.awaited else { return read };
        match read {
            Poll::Pending => deadline.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into())),
            Poll::Ready(_) => {
                let said = &buffer.filled()[known..];
                match left.strip_prefix(said) {
                    Some(rest) if !rest.is_empty() => *left = rest,
                    _ => self.awaited = None,
                }
                read
            }
        }
    }
}

impl AsyncWrite for Opening {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
