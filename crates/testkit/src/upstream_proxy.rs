//! The HTTP proxy of a network on a loopback port: programs reach hosts outside through it alone. It may want a login, knows the addresses of hosts
//! by itself, and notes what it is asked for.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::{collections::HashMap, io, net::SocketAddr, sync::Arc};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

/// Bytes of the head of a request.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// A proxy that runs as long as this value lives.
#[derive(Debug)]
pub struct UpstreamProxy {
    pub address: SocketAddr,
    requests: watch::Sender<Vec<String>>,
    task: JoinHandle<()>,
}

struct Network {
    /// The value of the header that opens the proxy; `None`: it is open.
    authorization: Option<String>,
    hosts: HashMap<String, SocketAddr>,
    requests: watch::Sender<Vec<String>>,
}

impl UpstreamProxy {
    /// Starts a proxy that wants this `user:password` and knows these hosts. It connects to a host that is an address without knowing it.
    pub async fn start(login: &str, hosts: &[(&str, SocketAddr)]) -> Self {
        Self::start_with(Some(format!("Basic {}", STANDARD.encode(login))), hosts).await
    }

    /// Starts a proxy that wants no login.
    pub async fn start_open(hosts: &[(&str, SocketAddr)]) -> Self {
        Self::start_with(None, hosts).await
    }

    async fn start_with(authorization: Option<String>, hosts: &[(&str, SocketAddr)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let requests = watch::Sender::new(vec![]);
        let network = Arc::new(Network {
            authorization,
            hosts: hosts.iter().map(|(host, address)| ((*host).to_owned(), *address)).collect(),
            requests: requests.clone(),
        });
        let task = tokio::spawn(async move {
            loop {
                // A client that left before it was accepted must not stop the proxy.
                let Ok((client, _)) = listener.accept().await else { continue };
                let network = Arc::clone(&network);
                // An error is the end of a connection.
                tokio::spawn(async move { drop(network.serve(client).await) });
            }
        });
        Self { address, requests, task }
    }

    /// Its URL with a login as it stands in a URL.
    pub fn url(&self, login: &str) -> String {
        format!("http://{login}@{}", self.address)
    }

    /// The requests so far, those without the login too: `CONNECT pypi.org:443` or `GET http://pypi.org/simple/`.
    pub fn requests(&self) -> Vec<String> {
        self.requests.borrow().clone()
    }
}

impl Drop for UpstreamProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Network {
    async fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        let head = read_head(&mut client).await?;
        let mut words = head.split(' ');
        let (Some(method), Some(target)) = (words.next(), words.next()) else { return Ok(()) };
        self.requests.send_modify(|requests| requests.push(format!("{method} {target}")));
        let headers = head.lines().filter_map(|line| line.split_once(": "));
        let mut logins = headers.filter(|(name, _)| name.eq_ignore_ascii_case("proxy-authorization"));
        if let Some(want) = &self.authorization
            && logins.next().is_none_or(|(_, value)| value != want.as_str())
        {
            let refusal = "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"network\"\r\nContent-Length: 0\r\n\r\n";
            return client.write_all(refusal.as_bytes()).await;
        }
        let plain = target.strip_prefix("http://").and_then(|rest| rest.split_once('/'));
        let Some(address) = self.find(plain.map_or(target, |(host, _)| host)) else {
            return client.write_all(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n").await;
        };
        let mut server = TcpStream::connect(address).await?;
        match plain {
            None => client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?,
            Some((_, path)) => {
                let head = head.replacen(target, &format!("/{path}"), 1);
                let is_own = |line: &&str| line.to_ascii_lowercase().starts_with("proxy-");
                let lines = head.split_inclusive("\r\n").filter(|line| !is_own(line));
                server.write_all(lines.collect::<String>().as_bytes()).await?;
            }
        }
        copy_bidirectional(&mut client, &mut server).await.map(drop)
    }

    /// The address of a host with or without a port.
    fn find(&self, authority: &str) -> Option<SocketAddr> {
        let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
        self.hosts.get(host).copied().or_else(|| authority.parse().ok())
    }
}

/// Reads a head, and nothing after it.
async fn read_head(client: &mut TcpStream) -> io::Result<String> {
    let mut head = vec![];
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == HEAD_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        head.push(client.read_u8().await?);
    }
    String::from_utf8(head).map_err(|_| io::ErrorKind::InvalidData.into())
}
