//! How a connection begins: it must say what it speaks before long. It has its place among all of them as long as it is open,
//! whatever it becomes: a WebSocket is no request any more, and still a connection.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::OwnedSemaphorePermit,
};

/// How HTTP/2 begins. What differs from it is HTTP/1.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// A connection that has begun.
#[derive(Debug)]
pub(super) struct Opened {
    stream: TcpStream,
    /// What was read to know the protocol, until it is read again. It comes together with what follows it: hyper doubles its
    /// buffer, for as long as the connection lasts, when a first piece is no whole head.
    said: Vec<u8>,
    _place: OwnedSemaphorePermit,
}

/// Hears what a connection speaks.
///
/// # Errors
/// `TimedOut` when it does not say so `within` the time, `UnexpectedEof` when it ends before that.
pub(super) async fn open(
    mut stream: TcpStream,
    within: Duration,
    place: OwnedSemaphorePermit,
) -> io::Result<(Protocol, Opened)> {
    let (protocol, said) = tokio::time::timeout(within, hear(&mut stream)).await??;
    Ok((protocol, Opened { stream, said, _place: place }))
}

async fn hear(stream: &mut TcpStream) -> io::Result<(Protocol, Vec<u8>)> {
    let mut said = [0; PREFACE.len()];
    let mut known = 0;
    while known < PREFACE.len() {
        match stream.read(&mut said[known..]).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => known += read,
        }
        if !PREFACE.starts_with(&said[..known]) {
            return Ok((Protocol::Http1, said[..known].to_vec()));
        }
    }
    Ok((Protocol::Http2, said.to_vec()))
}

impl AsyncRead for Opened {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.said.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let fits = self.said.len().min(buffer.remaining());
        buffer.put_slice(&self.said[..fits]);
        self.said.drain(..fits);
        if self.said.is_empty() {
            self.said = vec![];
            // Whether there is more is no matter yet: an end or an error comes again at the next reading.
            let _ = Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Opened {
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
