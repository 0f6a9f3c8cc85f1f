//! What the broker says to the upstream proxy by itself: `CONNECT` for a tunnel, or the head of a request without TLS.

use super::{error::UpstreamError, proxy::UpstreamProxy};
use domain::egress::host::HostName;
use httparse::{EMPTY_HEADER, Response, Status};
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// Bytes of the head of an answer of the upstream proxy. Proxies send a few hundred. Beyond it: `egress_upstream_failed`.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Headers of such a head. Beyond it: `egress_upstream_failed`.
const HEADERS_MAX: usize = 100;
/// Time in which the proxy must take a connection.
const DIAL: Duration = Duration::from_secs(10);
/// Time in which the proxy must open a tunnel: it resolves the name, and connects.
const OPENING: Duration = Duration::from_secs(30);
/// Bytes from the beginning of an answer to the end of its status: `HTTP/1.1 407`.
const STATUS_BYTES: u64 = 12;

impl UpstreamProxy {
    /// Connects to the proxy.
    ///
    /// # Errors
    /// `Unreachable`.
    pub(super) async fn dial(&self) -> Result<TcpStream, UpstreamError> {
        let host = self.address.host.trim_start_matches('[').trim_end_matches(']');
        let connected = timeout(DIAL, TcpStream::connect((host, self.address.port))).await;
        let connected = connected.map_err(|_| self.unreachable("it does not answer in time".to_owned()))?;
        let stream = connected.map_err(|error| self.unreachable(error.to_string()))?;
        // Small messages of TLS must not wait for each other.
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }

    /// Opens a tunnel to a host. The proxy resolves the name.
    ///
    /// # Errors
    /// Those of [`UpstreamError`].
    pub(super) async fn open_tunnel(&self, host: &HostName, port: u16) -> Result<TcpStream, UpstreamError> {
        let mut stream = self.dial().await?;
        let opened = timeout(OPENING, self.ask_for_tunnel(&mut stream, host, port)).await;
        opened.map_err(|_| UpstreamError::Silent { proxy: self.name() })??;
        Ok(stream)
    }

    async fn ask_for_tunnel(
        &self,
        stream: &mut TcpStream,
        host: &HostName,
        port: u16,
    ) -> Result<(), UpstreamError> {
        let line = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n");
        let head = [line.as_bytes(), &self.login_line(), b"\r\n"].concat();
        stream.write_all(&head).await.map_err(|error| self.unreachable(error.to_string()))?;
        let mut answer = Vec::with_capacity(1024);
        loop {
            match status(&answer).map_err(|reason| self.refused(reason))? {
                None => {}
                Some(200..=299) => return Ok(()),
                Some(407) => return Err(UpstreamError::Login { proxy: self.name() }),
                Some(status) => return Err(self.refused(&format!("it answers {status}"))),
            }
            let room = HEAD_BYTES_MAX - answer.len();
            let count = (&mut *stream).take(room as u64).read_buf(&mut answer).await;
            if count.unwrap_or(0) == 0 {
                return Err(self.refused("it closes the connection"));
            }
        }
    }

    /// The head of a request without TLS as the proxy wants it: with the whole URL and the login. `head` has a path in its first line.
    pub(super) fn head(&self, host: &HostName, head: &[u8]) -> Vec<u8> {
        let path = head.iter().position(|byte| *byte == b' ').map_or(0, |space| space + 1);
        let headers = head.windows(2).position(|pair| pair == b"\r\n").map_or(head.len(), |line| line + 2);
        let (method, rest) = head.split_at(path.min(headers));
        let (target, headers) = rest.split_at(headers - method.len());
        let origin = format!("http://{host}");
        [method, origin.as_bytes(), target, &self.login_line(), headers].concat()
    }

    /// Reads the beginning of the answer to such a request. It is the host's, or the proxy's that refuses the login.
    ///
    /// # Errors
    /// `Login`.
    pub(super) async fn begin_answer(&self, stream: &mut TcpStream) -> Result<Vec<u8>, UpstreamError> {
        let mut bytes = vec![];
        // After an error the relay finds the connection ended, and says so.
        let _ = stream.take(STATUS_BYTES).read_to_end(&mut bytes).await;
        if bytes.starts_with(b"HTTP/") && bytes.ends_with(b" 407") {
            return Err(UpstreamError::Login { proxy: self.name() });
        }
        Ok(bytes)
    }

    /// The header with the login, or nothing.
    fn login_line(&self) -> Vec<u8> {
        let line = self.login.as_ref().map(|login| {
            let name: &[u8] = b"Proxy-Authorization: ";
            [name, login.as_bytes(), b"\r\n"].concat()
        });
        line.unwrap_or_default()
    }
}

/// The status of an answer. `None`: more bytes are needed.
fn status(answer: &[u8]) -> Result<Option<u16>, &'static str> {
    let mut headers = [EMPTY_HEADER; HEADERS_MAX];
    let mut response = Response::new(&mut headers);
    match response.parse(answer) {
        Ok(Status::Complete(length)) => {
            let status = response.code.unwrap_or_default();
            // The client speaks first in TLS, so these bytes are not the host's.
            if (200..300).contains(&status) && length < answer.len() {
                return Err("it sends something before the host is asked");
            }
            Ok(Some(status))
        }
        Ok(Status::Partial) if answer.len() >= HEAD_BYTES_MAX => Err("the head of its answer is too long"),
        Ok(Status::Partial) => Ok(None),
        Err(_) => Err("it does not answer as a proxy"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::net::TcpListener;

    /// What comes of a tunnel if the proxy answers with these bytes, and then closes.
    async fn open(answer: Vec<u8>) -> Result<(), UpstreamError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://ann:hunter2@{}", listener.local_addr().unwrap());
        let proxy = UpstreamProxy::parse(&url, vec![]).unwrap();
        let host = HostName::parse("pypi.org").unwrap();
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = vec![];
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            // The broker may close the connection before it has read all.
            let _ = stream.write_all(&answer).await;
            String::from_utf8(head).unwrap()
        };
        let (opened, head) = tokio::join!(proxy.open_tunnel(&host, 443), serve);
        let want = "CONNECT pypi.org:443 HTTP/1.1\r\nHost: pypi.org:443\r\nProxy-Authorization: Basic YW5uOmh1bnRlcjI=\r\n\r\n";
        assert_eq!(head, want);
        opened.map(drop)
    }

    #[tokio::test]
    async fn only_a_tunnel_is_taken_for_one() {
        for answer in ["HTTP/1.1 200 Connection established\r\n\r\n", "HTTP/1.0 200 OK\r\nVia: x\r\n\r\n"] {
            assert_eq!(open(answer.into()).await, Ok(()), "{answer}");
        }
        let long = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(HEAD_BYTES_MAX));
        for (answer, want) in [
            ("HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 1\r\n\r\nx", "(407)"),
            ("HTTP/1.1 403 Forbidden\r\n\r\n", "it answers 403"),
            ("HTTP/1.1 200 OK\r\n\r\nmore", "before the host is asked"),
            ("HTTP/1.1 200 OK\r\n", "it closes the connection"),
            ("", "it closes the connection"),
            ("SSH-2.0-server\r\n", "it does not answer as a proxy"),
            (long.as_str(), "is too long"),
        ] {
            let error = open(answer.into()).await.unwrap_err().to_string();
            assert!(error.contains(want) && !error.contains("hunter2"), "{answer:.40}: {error}");
        }
    }

    #[test]
    fn a_request_without_tls_gets_the_whole_url() {
        let host = HostName::parse("a.b").unwrap();
        let head = b"GET /x?y=z HTTP/1.1\r\nHost: a.b\r\n\r\n";
        for (login, line) in [("", ""), ("ann:hunter2@", "Proxy-Authorization: Basic YW5uOmh1bnRlcjI=\r\n")] {
            let proxy = UpstreamProxy::parse(&format!("http://{login}proxy.acme.dev"), vec![]).unwrap();
            let sent = String::from_utf8(proxy.head(&host, head)).unwrap();
            assert_eq!(sent, format!("GET http://a.b/x?y=z HTTP/1.1\r\n{line}Host: a.b\r\n\r\n"));
        }
    }
}
