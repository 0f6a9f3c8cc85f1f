//! The proxy of one session.

use super::{
    access::Access,
    clock::now,
    head::{self, Protocol, Target},
    hello,
    refusal::Refusal,
    relay::{Cut, IDLE, Quota, Relay},
    rules::Grants,
};
use crate::outside::names::{AllowedAddresses, Names};
use domain::{
    egress::{
        allow::{AllowLists, HostRefusal},
        host::HostName,
    },
    ids::TenantId,
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

/// Bytes that a session may transfer, in both directions together. Beyond it: `egress_quota_used_up`.
pub const QUOTA_BYTES: u64 = 5 * 1024 * 1024 * 1024;
/// Time in which a client must send its head, and then the first message of TLS.
const OPENING: Duration = Duration::from_secs(30);

/// The proxy. It serves every connection to the socket of its session.
#[derive(Debug)]
pub struct Proxy {
    tenant: TenantId,
    allow: Mutex<Arc<AllowLists>>,
    grants: Mutex<Arc<Grants>>,
    names: Arc<Names>,
    quota: Arc<Quota>,
    quota_bytes: u64,
}

impl Proxy {
    /// The proxy of a session of `tenant`, which may transfer this number of bytes.
    pub fn new(tenant: TenantId, allow: AllowLists, names: Arc<Names>, quota_bytes: u64) -> Self {
        let (allow, quota) = (Mutex::new(Arc::new(allow)), Arc::new(Quota::new(quota_bytes)));
        Self { tenant, allow, grants: Mutex::default(), names, quota, quota_bytes }
    }

    /// The bytes that the session may still transfer, here and elsewhere.
    pub(super) fn quota(&self) -> Arc<Quota> {
        Arc::clone(&self.quota)
    }

    /// Allows what these lists allow, from the next connection on.
    pub fn allow(&self, lists: AllowLists) {
        *self.allow.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(lists);
    }

    /// Opens the hosts that people have allowed, from the next connection on.
    pub(super) fn grant(&self, grants: Grants) {
        *self.grants.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(grants);
    }

    fn is_granted(&self, host: &HostName) -> bool {
        let grants = Arc::clone(&self.grants.lock().unwrap_or_else(PoisonError::into_inner));
        grants.allow(host, now())
    }

    /// Whether the lists, and people where the lists let them, allow a host.
    fn check(&self, host: &HostName) -> Result<(), Refusal> {
        let lists = Arc::clone(&self.allow.lock().unwrap_or_else(PoisonError::into_inner));
        match lists.check(host) {
            Ok(()) => Ok(()),
            Err(HostRefusal::NeedsPermission) if self.is_granted(host) => Ok(()),
            Err(HostRefusal::NeedsPermission) => Err(Refusal::NeedsPermission(host.clone())),
            Err(HostRefusal::NotListed(setting)) => {
                Err(Refusal::NotAllowed { host: host.clone(), setting: setting.to_owned() })
            }
            Err(HostRefusal::NoList) => Err(Refusal::NothingAllowed(host.clone())),
        }
    }

    /// How far pages of a host may be read: without any list, those of the public internet.
    ///
    /// # Errors
    /// `NotAllowed`.
    pub(super) fn check_for_page(&self, host: &HostName) -> Result<AllowedAddresses, Refusal> {
        match self.check(host) {
            Ok(()) => Ok(AllowedAddresses::Opened),
            Err(Refusal::NothingAllowed(_)) => Ok(AllowedAddresses::Public),
            Err(refusal) => Err(refusal),
        }
    }

    /// The refusal of a session that has transferred all that it may.
    pub(super) fn quota_refusal(&self) -> Refusal {
        Refusal::Quota(self.quota_bytes)
    }

    /// Serves one connection to its end, or until `closing`.
    pub async fn serve(
        &self,
        mut client: impl AsyncRead + AsyncWrite + Unpin,
        closing: &CancellationToken,
    ) -> Access {
        let (begun_at, relay) = (Instant::now(), Relay::new(Arc::clone(&self.quota)));
        let mut host = None;
        let served = closing.run_until_cancelled(self.answer(&mut client, &relay, &mut host)).await;
        let refusal = match served.unwrap_or(Err(Ending::Cut(Refusal::Closed))) {
            Ok(()) => None,
            Err(Ending::Refused(refusal)) => {
                refuse(&mut client, &refusal).await;
                Some(refusal)
            }
            Err(Ending::Cut(refusal)) => Some(refusal),
        };
        Access { host, bytes: relay.bytes(), duration: begun_at.elapsed(), refusal }
    }

    async fn answer(
        &self,
        client: &mut (impl AsyncRead + AsyncWrite + Unpin),
        relay: &Relay,
        host: &mut Option<HostName>,
    ) -> Result<(), Ending> {
        let head = timeout(OPENING, head::read(&mut *client)).await;
        let (target, rest) = head.map_err(|_| Refusal::Head("its head did not arrive in time"))??;
        *host = Some(target.host.clone());
        self.forward(client, target, rest, relay).await
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
            return Err(self.quota_refusal().into());
        }
        let route = self.names.find(self.tenant, &target.host, target.port).await.map_err(Refusal::from)?;
        let is_plain = matches!(target.protocol, Protocol::Plain(_));
        let opened = if is_plain {
            route.open_plain().await
        } else {
            route.open_tunnel(&target.host, target.port).await
        };
        let opened = opened.map_err(Refusal::from)?;
        let mut server = opened.ok_or_else(|| Refusal::Unreachable(target.host.clone()))?;
        let first = match target.protocol {
            Protocol::Plain(head) => route.plain_head(&target.host, head),
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
                Cut::Quota => self.quota_refusal(),
                Cut::Idle => Refusal::Idle(IDLE),
            })
        };
        relay.note(first.len() as u64).map_err(cut)?;
        if !matches!(timeout(OPENING, server.write_all(&first)).await, Ok(Ok(()))) {
            return Err(Ending::Cut(Refusal::Unreachable(target.host)));
        }
        if is_plain {
            let begin = timeout(IDLE, route.begin_plain_answer(&mut server)).await;
            let begin = begin.map_err(|_| Refusal::Idle(IDLE))?.map_err(Refusal::from)?;
            relay.note(begin.len() as u64).map_err(cut)?;
            // An error means that the client left, which the relay finds too.
            let _ = client.write_all(&begin).await;
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

async fn refuse(client: &mut (impl AsyncWrite + Unpin), refusal: &Refusal) {
    let text = format!("{refusal}\n");
    let head = format!(
        "HTTP/1.1 {}\r\nx-flotilla-code: {}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        refusal.status(),
        refusal.code().as_str(),
        text.len()
    );
    // A client that left needs no answer.
    let _ = client.write_all([head, text].concat().as_bytes()).await;
    let _ = client.shutdown().await;
}
