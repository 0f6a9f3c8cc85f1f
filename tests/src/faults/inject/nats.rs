//! An outsider on NATS that repeats every message: once immediately, and once more when it is old. It implements the
//! protocol itself, because an observer must not depend on the client that it disturbs.

use crate::faults::cluster::address;
use anyhow::{Context as _, Result, bail};
use serde_json::json;
use std::{collections::VecDeque, time::Duration};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
};

/// Number of later messages after which a message is repeated the second time.
const LATER: usize = 25;

/// Repeats all messages of a period, and returns the number of repetitions.
///
/// # Errors
/// If NATS is unreachable or closes the connection.
pub(super) async fn repeat_everything(url: &str, namespace: &str, for_: Duration) -> Result<usize> {
    let mut stream = BufReader::new(TcpStream::connect(address(url)?).await.context("connect to NATS")?);
    let (user, password) = login(url).context("find the login in the URL of NATS")?;
    // Without echo it does not receive its own messages.
    let hello = json!({"user": user, "pass": password, "echo": false, "verbose": false, "headers": true});
    let hello = format!("CONNECT {hello}\r\nSUB {namespace}.> 1\r\n");
    stream.write_all(hello.as_bytes()).await?;
    let (mut count, mut old) = (0, VecDeque::new());
    let until = tokio::time::Instant::now() + for_;
    // A message that is cut off at the end of the period is not repeated.
    while let Ok(message) = tokio::time::timeout_at(until, next(&mut stream)).await {
        let message = message?;
        stream.write_all(&message).await?;
        count += 1;
        old.push_back(message);
        if old.len() > LATER
            && let Some(message) = old.pop_front()
        {
            stream.write_all(&message).await?;
            count += 1;
        }
    }
    Ok(count)
}

fn login(url: &str) -> Option<(&str, &str)> {
    let (_, rest) = url.split_once("://")?;
    rest.split_once('@')?.0.split_once(':')
}

/// Waits for the next message and returns the command that publishes it again.
async fn next(stream: &mut BufReader<TcpStream>) -> Result<Vec<u8>> {
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            bail!("NATS closed the connection");
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["PING"] => stream.write_all(b"PONG\r\n").await?,
            ["MSG", subject, .., length] => {
                let mut payload = vec![0; length.parse::<usize>().context("a length")? + 2];
                stream.read_exact(&mut payload).await?;
                return Ok([format!("PUB {subject} {length}\r\n").as_bytes(), &payload].concat());
            }
            ["HMSG", subject, .., head, length] => {
                let mut payload = vec![0; length.parse::<usize>().context("a length")? + 2];
                stream.read_exact(&mut payload).await?;
                return Ok([format!("HPUB {subject} {head} {length}\r\n").as_bytes(), &payload].concat());
            }
            ["-ERR", ..] => bail!("NATS reports an error: {}", line.trim()),
            _ => {}
        }
    }
}
