//! The head of a request to the proxy: `CONNECT host:443`, or `GET http://host/path` without TLS.

use super::refusal::Refusal;
use domain::egress::host::HostName;
use httparse::{EMPTY_HEADER, Header, Request, Status};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Bytes of a head. Programs send a few hundred. Beyond it: `egress_request_invalid`.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Headers of a head. Beyond it: `egress_request_invalid`.
const HEADERS_MAX: usize = 100;
/// Headers that concern one connection, and are not for the host.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) host: HostName,
    pub(super) port: u16,
    pub(super) protocol: Protocol,
}

/// How the client talks to the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Protocol {
    /// A tunnel for TLS.
    Tls,
    /// Plain HTTP, with the head for the host.
    Plain(Vec<u8>),
}

/// Reads a head, and what the client sent after it.
///
/// # Errors
/// Those of a request that is refused by itself.
pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<(Target, Vec<u8>), Refusal> {
    let mut bytes = Vec::with_capacity(1024);
    loop {
        if let Some(parsed) = parse(&bytes)? {
            let (target, length) = parsed;
            return Ok((target, bytes.split_off(length)));
        }
        if bytes.len() >= HEAD_BYTES_MAX {
            return Err(Refusal::Head("its head is too long"));
        }
        let room = HEAD_BYTES_MAX - bytes.len();
        let count = (&mut *stream).take(room as u64).read_buf(&mut bytes).await;
        if count.unwrap_or(0) == 0 {
            return Err(Refusal::Head("it ends before its head does"));
        }
    }
}

/// The target, and the bytes of the head; `None`: more bytes are needed.
fn parse(bytes: &[u8]) -> Result<Option<(Target, usize)>, Refusal> {
    let mut headers = [EMPTY_HEADER; HEADERS_MAX];
    let mut request = Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) => return Ok(None),
        Err(_) => return Err(Refusal::Head("it is no HTTP/1 request")),
    };
    let (Some(method), Some(path)) = (request.method, request.path) else {
        return Err(Refusal::Head("it has no address"));
    };
    let target = if method == "CONNECT" { tunnel(path)? } else { plain(method, path, request.headers)? };
    Ok(Some((target, length)))
}

fn tunnel(authority: &str) -> Result<Target, Refusal> {
    let (host, port) = authority.rsplit_once(':').ok_or(Refusal::Head("its address has no port"))?;
    let target = Target { host: HostName::parse(host)?, port: port_of(port)?, protocol: Protocol::Tls };
    if target.port == 443 { Ok(target) } else { Err(Refusal::Port(target.port)) }
}

fn plain(method: &str, url: &str, headers: &[Header<'_>]) -> Result<Target, Refusal> {
    let Some(rest) = url.strip_prefix("http://") else {
        return Err(Refusal::Head("its address does not begin with http://"));
    };
    if !matches!(method, "GET" | "HEAD") {
        return Err(Refusal::Method(method.chars().take(20).collect()));
    }
    let (authority, path) = match rest.find(['/', '?', '#']) {
        Some(at) if rest[at..].starts_with('/') => rest.split_at(at),
        Some(_) => return Err(Refusal::Head("its address has no path")),
        None => (rest, "/"),
    };
    let (name, port) = split_port(authority)?;
    let host = HostName::parse(name)?;
    if port != 80 {
        return Err(Refusal::Port(port));
    }
    let mut hosts = headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
    let named = hosts.next().and_then(|header| std::str::from_utf8(header.value).ok());
    let (named, of_header) = split_port(named.ok_or(Refusal::Head("it has no header Host"))?.trim())?;
    if hosts.next().is_some() || HostName::parse(named)? != host || of_header != port {
        return Err(Refusal::Head("its header Host and its address differ"));
    }
    let has_body = |header: &Header<'_>| {
        header.name.eq_ignore_ascii_case("transfer-encoding")
            || header.name.eq_ignore_ascii_case("content-length") && header.value.trim_ascii() != b"0"
    };
    if headers.iter().any(has_body) {
        return Err(Refusal::Head("a GET without TLS has no body"));
    }
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n").into_bytes();
    for Header { name, value } in headers {
        let is_own = HOP_BY_HOP.iter().chain(&["host"]).any(|own| name.eq_ignore_ascii_case(own));
        if !is_own {
            head.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
        }
    }
    head.extend(b"\r\n");
    Ok(Target { host, port, protocol: Protocol::Plain(head) })
}

/// The name, and the port: without one, that of http.
fn split_port(authority: &str) -> Result<(&str, u16), Refusal> {
    match authority.rsplit_once(':') {
        Some((name, port)) => Ok((name, port_of(port)?)),
        None => Ok((authority, 80)),
    }
}

fn port_of(text: &str) -> Result<u16, Refusal> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number).ok_or(Refusal::Head("its port is no number"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    fn code(head: &str) -> &'static str {
        match parse(head.as_bytes()) {
            Ok(Some(_)) => "passes",
            Ok(None) => "partial",
            Err(refusal) => refusal.code().as_str(),
        }
    }

    #[test]
    fn a_tunnel_goes_to_the_port_of_tls() {
        let (target, length) =
            parse(b"CONNECT Pypi.org.:443 HTTP/1.1\r\nHost: other\r\n\r\n\x16\x03").unwrap().unwrap();
        let host = HostName::parse("pypi.org").unwrap();
        assert_eq!(target, Target { host, port: 443, protocol: Protocol::Tls });
        assert_eq!(length, 47);
        for (authority, want) in [
            ("pypi.org:80", "egress_port_refused"),
            ("pypi.org:22", "egress_port_refused"),
            ("pypi.org", "egress_request_invalid"),
            ("pypi.org:+443", "egress_request_invalid"),
            ("pypi.org:443:443", "egress_host_invalid"),
            ("127.0.0.1:443", "egress_host_invalid"),
            ("[::1]:443", "egress_host_invalid"),
            ("2130706433:443", "egress_host_invalid"),
            ("localhost:443", "egress_host_invalid"),
            ("pypi.org@evil.com:443", "egress_host_invalid"),
            ("pypi.org%00.evil.com:443", "egress_host_invalid"),
        ] {
            assert_eq!(code(&format!("CONNECT {authority} HTTP/1.1\r\n\r\n")), want, "{authority}");
        }
    }

    #[test]
    fn a_plain_request_reaches_its_host_alone() {
        let head = "GET http://Deb.debian.org/debian/?a=b HTTP/1.1\r\nHost: deb.debian.org:80\r\nUser-Agent: apt\r\nProxy-Connection: keep-alive\r\n\r\n";
        let (target, _) = parse(head.as_bytes()).unwrap().unwrap();
        let Protocol::Plain(head) = target.protocol else { panic!() };
        assert_eq!(
            String::from_utf8(head).unwrap(),
            "GET /debian/?a=b HTTP/1.1\r\nHost: deb.debian.org\r\nConnection: close\r\nUser-Agent: apt\r\n\r\n"
        );
        for (request, want) in [
            ("GET http://a.b HTTP/1.1\r\nHost: a.b\r\n\r\n", "passes"),
            ("HEAD http://a.b/ HTTP/1.1\r\nHost: a.b\r\n\r\n", "passes"),
            ("POST http://a.b/ HTTP/1.1\r\nHost: a.b\r\n\r\n", "egress_method_refused"),
            ("GET https://a.b/ HTTP/1.1\r\nHost: a.b\r\n\r\n", "egress_request_invalid"),
            ("GET / HTTP/1.1\r\nHost: a.b\r\n\r\n", "egress_request_invalid"),
            ("GET http://a.b:8080/ HTTP/1.1\r\nHost: a.b:8080\r\n\r\n", "egress_port_refused"),
            ("GET http://u:p@a.b/ HTTP/1.1\r\nHost: a.b\r\n\r\n", "egress_request_invalid"),
            ("GET http://u@a.b/ HTTP/1.1\r\nHost: a.b\r\n\r\n", "egress_host_invalid"),
            ("GET http://a.b?x HTTP/1.1\r\nHost: a.b\r\n\r\n", "egress_request_invalid"),
            ("GET http://a.b/ HTTP/1.1\r\nHost: c.d\r\n\r\n", "egress_request_invalid"),
            ("GET http://a.b/ HTTP/1.1\r\nHost: a.b\r\nHost: c.d\r\n\r\n", "egress_request_invalid"),
            ("GET http://a.b/ HTTP/1.1\r\n\r\n", "egress_request_invalid"),
            ("GET http://a.b/ HTTP/1.1\r\nHost: a.b\r\nContent-Length: 5\r\n\r\n", "egress_request_invalid"),
            (
                "GET http://a.b/ HTTP/1.1\r\nHost: a.b\r\nTransfer-Encoding: chunked\r\n\r\n",
                "egress_request_invalid",
            ),
            ("GET http://a.b/ HTTP/1.1\r\nHost: a.b\r\n", "partial"),
            ("\x16\x03\x01", "egress_request_invalid"),
        ] {
            assert_eq!(code(request), want, "{request:?}");
        }
    }

    #[tokio::test]
    async fn what_follows_the_head_is_kept() {
        let (mut client, mut server) = tokio::io::duplex(100);
        let sent = tokio::spawn(async move {
            for piece in ["CONNECT a.b:443 HT", "TP/1.1\r\n\r", "\nhello"] {
                tokio::io::AsyncWriteExt::write_all(&mut client, piece.as_bytes()).await.unwrap();
            }
        });
        let (target, rest) = read(&mut server).await.unwrap();
        assert_eq!((target.port, rest), (443, b"hello".to_vec()));
        sent.await.unwrap();
        let endless = "CONNECT a.b:443 HTTP/1.1\r\nX: ".to_owned() + &"x".repeat(HEAD_BYTES_MAX);
        assert_eq!(read(&mut endless.as_bytes()).await, Err(Refusal::Head("its head is too long")));
        assert_eq!(read(&mut &b"CONNECT"[..]).await, Err(Refusal::Head("it ends before its head does")));
    }

    proptest! {
        #[test]
        fn no_head_splits_a_request_to_the_host(value in "[ -~\r\n]{0,60}", path in "[ -~\r\n]{0,30}") {
            let request = format!("GET http://a.b/{path} HTTP/1.1\r\nHost: a.b\r\nX: {value}\r\n\r\n");
            if let Ok(Some((Target { protocol: Protocol::Plain(head), .. }, _))) = parse(request.as_bytes()) {
                let mut headers = [EMPTY_HEADER; HEADERS_MAX];
                let mut sent = Request::new(&mut headers);
                prop_assert_eq!(sent.parse(&head).unwrap(), Status::Complete(head.len()));
                let hosts = sent.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
                prop_assert_eq!(hosts.count(), 1);
            }
        }
    }
}
