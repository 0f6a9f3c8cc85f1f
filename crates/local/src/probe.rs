//! Detects by the first bytes of its protocol whether a server answers. An open port is not enough: Postgres opens it
//! early.

use std::{io, net::SocketAddr, time::Duration};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// Longest wait for the first bytes of one answer.
const ANSWER: Duration = Duration::from_secs(2);
/// A startup message of protocol 3.0 for user and database `postgres`: length, version, names.
const POSTGRES_HELLO: &[u8] = b"\0\0\0\x29\0\x03\0\0user\0postgres\0database\0postgres\0\0";

/// Whether the server in `role` at `address` accepts clients.
pub(crate) async fn answers(role: &str, address: SocketAddr) -> bool {
    let (hello, expected): (&[u8], &[&[u8]]) = match role {
        // 'R' requests a password; 'E' means that the server is still starting.
        "postgres" => (POSTGRES_HELLO, &[b"R"]),
        // Redis requests a password only once it is running.
        "redis" => (b"PING\r\n", &[b"-NOAUTH", b"+PONG"]),
        _ => (b"", &[b"INFO"]),
    };
    let answer = tokio::time::timeout(ANSWER, first_bytes(hello, address)).await;
    matches!(answer, Ok(Ok(bytes)) if expected.iter().any(|prefix| bytes.starts_with(prefix)))
}

async fn first_bytes(hello: &[u8], address: SocketAddr) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(hello).await?;
    let mut bytes = vec![0; 64];
    let length = stream.read(&mut bytes).await?;
    bytes.truncate(length);
    Ok(bytes)
}
