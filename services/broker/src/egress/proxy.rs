//! The proxy of one session.

use super::{
    access::Access,
    head::{self, Protocol, Target},
    hello,
    names::Names,
    refusal::Refusal,
    relay::{Cut, IDLE, Quota, Relay},
};
use domain::egress::{allow::AllowLists, host::HostName};
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    time::{Instant, timeout},
};

/// Bytes that a session may transfer, in both directions together. Beyond it: `egress_quota_used_up`.
pub const QUOTA_BYTES: u64 = 5 * 1024 * 1024 * 1024;
/// Time in which a client must send its head, and then the first message of TLS.
const OPENING: Duration = Duration::from_secs(30);
/// Time in which an address of a host must answer.
const DIAL: Duration = Duration::from_secs(10);

/// The proxy. It serves every connection to the socket of its session.
#[derive(Debug)]
pub struct Proxy {
    allow: Mutex<Arc<AllowLists>>,
    names: Arc<Names>,
    quota: Arc<Quota>,
    quota_bytes: u64,
}

impl Proxy {
    /// The proxy of a session that may transfer this number of bytes.
    pub fn new(allow: AllowLists, names: Arc<Names>, quota_bytes: u64) -> Self {
        let (allow, quota) = (Mutex::new(Arc::new(allow)), Arc::new(Quota::new(quota_bytes)));
        Self { allow, names, quota, quota_bytes }
    }

    /// Allows what these lists allow, from the next connection on.
    pub fn allow(&self, lists: AllowLists) {
        *self.allow.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(lists);
    }

    /// Whether the lists allow a host.
    fn check(&self, host: &HostName) -> Result<(), Refusal> {
        let lists = Arc::clone(&self.allow.lock().unwrap_or_else(PoisonError::into_inner));
        lists.check(host).map_err(|setting| match setting {
            Some(setting) => Refusal::NotAllowed { host: host.clone(), setting: setting.to_owned() },
            None => Refusal::NothingAllowed(host.clone()),
        })
    }

    /// Serves one connection to its end. Dropping the future cuts it.
    pub async fn serve(&self, mut client: impl AsyncRead + AsyncWrite + Unpin) -> Access {
        let (begun_at, relay) = (Instant::now(), Relay::new(Arc::clone(&self.quota)));
        let mut host = None;
        let result = match timeout(OPENING, head::read(&mut client)).await {
            Err(_) => Err(Refusal::Head("its head did not arrive in time").into()),
            Ok(Err(refusal)) => Err(refusal.into()),
            Ok(Ok((target, rest))) => {
                host = Some(target.host.clone());
                self.forward(&mut client, target, rest, &relay).await
            }
        };
        let refusal = match result {
            Ok(()) => None,
            Err(Ending::Refused(refusal)) => {
                answer(&mut client, &refusal).await;
                Some(refusal)
            }
            Err(Ending::Cut(refusal)) => Some(refusal),
        };
        Access { host, bytes: relay.bytes(), duration: begun_at.elapsed(), refusal }
    }

    /// Refuses one connection without reading what it asks for.
    pub(super) async fn refuse(
        &self,
        mut client: impl AsyncRead + AsyncWrite + Unpin,
        refusal: Refusal,
    ) -> Access {
        let begun_at = Instant::now();
        answer(&mut client, &refusal).await;
        Access { host: None, bytes: 0, duration: begun_at.elapsed(), refusal: Some(refusal) }
    }

    async fn forward(
        &self,
        client: &mut (impl AsyncRead + AsyncWrite + Unpin),
        target: Target,
        rest: Vec<u8>,
        relay: &Relay,
    ) -> Result<(), Ending> {
        self.check(&target.host)?;
        if self.quota.is_used_up() {
            return Err(Refusal::Quota(self.quota_bytes).into());
        }
        let addresses = self.names.find(&target.host, target.port).await?;
        let mut server = dial(&addresses).await.ok_or_else(|| Refusal::Unreachable(target.host.clone()))?;
        let is_plain = matches!(target.protocol, Protocol::Plain(_));
        let first = match target.protocol {
            Protocol::Plain(head) => head,
            Protocol::Tls => {
                // An error means that the client left, which the next read says.
                let _ = client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await;
                let host = target.host.as_str();
                let checked = timeout(OPENING, hello::check(client, rest, host)).await;
                checked
                    .unwrap_or(Err("its first message did not arrive in time"))
                    .map_err(|reason| Ending::Cut(Refusal::Tls { host: target.host.clone(), reason }))?
            }
        };
        let cut = |cut| {
            Ending::Cut(match cut {
                Cut::Quota => Refusal::Quota(self.quota_bytes),
                Cut::Idle => Refusal::Idle(IDLE),
            })
        };
        relay.note(first.len() as u64).map_err(cut)?;
        if server.write_all(&first).await.is_err() {
            return Err(Ending::Cut(Refusal::Unreachable(target.host)));
        }
        if is_plain {
            // After a request without a body the client can only send a second request, which the proxy has not checked.
            relay.run_one_way(server, client).await.map_err(cut)
        } else {
            relay.run(client, server).await.map_err(cut)
        }
    }
}

/// How a connection ends early.
enum Ending {
    /// The client is told.
    Refused(Refusal),
    /// Nothing can be said any more: the bytes of the host have begun.
    Cut(Refusal),
}

impl From<Refusal> for Ending {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Connects to the first address that answers.
async fn dial(addresses: &[SocketAddr]) -> Option<TcpStream> {
    for address in addresses {
        if let Ok(Ok(stream)) = timeout(DIAL, TcpStream::connect(address)).await {
            // Small messages of TLS must not wait for each other.
            let _ = stream.set_nodelay(true);
            return Some(stream);
        }
    }
    None
}

async fn answer(client: &mut (impl AsyncWrite + Unpin), refusal: &Refusal) {
    let text = format!("{refusal}\n");
    let head = format!(
        "HTTP/1.1 {}\r\nx-flotilla-code: {}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        refusal.status(),
        refusal.code(),
        text.len()
    );
    // A client that left needs no answer.
    let _ = client.write_all([head, text].concat().as_bytes()).await;
    let _ = client.shutdown().await;
}
