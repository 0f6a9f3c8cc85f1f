//! Accepts a new connection: the client must show its protocol within a time limit. The connection counts against the
//! limit as long as it is open, even after it becomes a WebSocket.

use super::admission::Admission;
use crate::grpc::PortCertificate;
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

/// The HTTP/2 connection preface. Any other bytes mean HTTP/1.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// An accepted connection with a known protocol.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) protocol: Protocol,
    stream: Wire,
    /// The bytes that were read to detect the protocol. They are replayed together with the bytes that follow, because
    /// hyper doubles its buffer for the life of the connection if the first read is not a whole head.
    said: Vec<u8>,
    pub(super) admission: Arc<Admission>,
}

/// Detects the protocol of a connection.
///
/// # Errors
/// `TimedOut` if the client does not show it `within` the time, `UnexpectedEof` if the connection ends before that.
pub(super) async fn open(
    stream: TcpStream,
    certificate: Option<Arc<PortCertificate>>,
    within: Duration,
    admission: Arc<Admission>,
) -> io::Result<Connection> {
    let opening = async {
        let mut stream = match certificate {
            Some(certificate) => Wire::Right(Box::new(certificate.encrypt(stream).await?)),
            None => Wire::Left(stream),
        };
        let (protocol, said) = hear(&mut stream).await?;
        Ok(Connection { protocol, stream, said, admission })
    };
    tokio::time::timeout(within, opening).await?
}

/// What the bytes of a connection travel in: plain text, or TLS.
type Wire = Either<TcpStream, Box<TlsStream<TcpStream>>>;

async fn hear(stream: &mut Wire) -> io::Result<(Protocol, Vec<u8>)> {
    let mut bytes = [0; PREFACE.len()];
    let mut length = 0;
    while length < PREFACE.len() {
        match stream.read(&mut bytes[length..]).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => length += read,
        }
        if !PREFACE.starts_with(&bytes[..length]) {
            return Ok((Protocol::Http1, bytes[..length].to_vec()));
        }
    }
    Ok((Protocol::Http2, bytes.to_vec()))
}

impl AsyncRead for Connection {
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
            // The result can be ignored: an end or an error shows again at the next read.
            let _ = Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
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
