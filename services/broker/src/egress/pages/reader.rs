//! Reads pages of the web for the model of a session. A model chose the address, perhaps because of something that it read, so each host, also after a
//! redirect, passes the checks of the session's proxy: the lists, the look-up, the addresses. A door without any list lets pages of the public internet
//! pass, and no host that the operator opened: permissions then decide what a session reads.

use crate::{
    cause::innermost,
    egress::{
        journal::{Journal, JournalRecord},
        key::DoorKey,
        page_error::PageError,
        proxy::Proxy,
        refusal::Refusal,
        relay::Relay,
    },
    outside::{
        client::OutsideClient,
        names::{AllowedAddresses, CheckedNames, Names},
        proxy::UpstreamProxy,
    },
};
use bytes::Bytes;
use domain::{egress::host::HostName, ids::TenantId, limits::WEB_PAGE_BYTES_MAX};
use futures::{Stream, stream};
use reqwest::{
    ClientBuilder, Response, Url,
    header::{ACCEPT, CONTENT_TYPE, LOCATION},
};
use rpc::v1::ErrorCode;
use shares::{Permit, Shares};
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// Redirects of one page. Beyond it: `page_redirects`.
const REDIRECTS_MAX: usize = 5;
/// Longest time for a whole page. A caller may ask for less. Beyond it: `page_timeout`.
const PAGE_TIME_MAX: Duration = Duration::from_secs(120);
/// Pages that are read at the same time; one tenant gets three quarters. Further ones wait.
const PAGES_MAX: u32 = 64;
/// Longest wait of a page for its turn. Beyond it: `page_busy`.
const TURN_WAIT: Duration = Duration::from_secs(30);
/// The Accept header. Markdown comes first because models read it best.
const ACCEPTED: &str = "text/markdown, text/html;q=0.9, text/plain;q=0.8, */*;q=0.5";
/// The code of a page that its caller left, until something else is known.
const CALLER_LEFT: ErrorCode = ErrorCode::PageCallerLeft;

/// Reads the pages of all sessions.
#[derive(Debug)]
pub(in crate::egress) struct Pages {
    names: Arc<Names>,
    /// For hosts of a list.
    opened: OutsideClient,
    /// For all others.
    public: OutsideClient,
    journal: Arc<Journal>,
    places: Shares<TenantId>,
}

/// The open door of the session that reads a page.
pub(in crate::egress) struct PageDoor {
    pub(in crate::egress) key: DoorKey,
    pub(in crate::egress) proxy: Arc<Proxy>,
    /// Cancelled when it closes.
    pub(in crate::egress) closing: CancellationToken,
}

/// A page that a session asks for.
#[derive(Debug)]
pub struct PageRequest {
    /// Its address: `https://docs.example.com/a`.
    pub url: String,
    /// Time in which it must arrive.
    pub time: Duration,
}

/// A page whose first bytes have come.
pub struct Page {
    /// Its address after all redirects.
    pub url: String,
    /// Its media type, in small letters and without parameters; empty: the server sent none.
    pub media_type: String,
    answer: Response,
    record: JournalRecord,
    visit: Visit,
    _place: Permit,
}

/// What bounds the reading of one page.
struct Visit {
    door: PageDoor,
    /// When the page must have arrived.
    until: Instant,
    time: Duration,
}

impl Visit {
    async fn bounded<T>(&self, work: impl Future<Output = Result<T, PageError>>) -> Result<T, PageError> {
        let closed = || Err(PageError::Refused(Refusal::Closed));
        let work = self.door.closing.run_until_cancelled(timeout_at(self.until, work));
        work.await.map_or_else(closed, |done| done.unwrap_or(Err(PageError::Timeout(self.time))))
    }
}

impl Pages {
    /// # Errors
    /// The certificates of this system cannot be used.
    pub(in crate::egress) fn new(names: Arc<Names>, journal: Arc<Journal>) -> Result<Self, reqwest::Error> {
        let client = |allowed| {
            // No connection of one tenant serves another.
            let build = || chassis::http::builder().pool_max_idle_per_host(0);
            OutsideClient::new(names.upstream(), build, |builder: ClientBuilder| {
                builder.dns_resolver(Arc::new(CheckedNames::new(Arc::clone(&names), allowed)))
            })
        };
        let (opened, public) = (client(AllowedAddresses::Opened)?, client(AllowedAddresses::Public)?);
        Ok(Self { opened, public, names, journal, places: Shares::three_quarters(PAGES_MAX) })
    }

    /// Waits until no page is read.
    pub(in crate::egress) async fn all_ended(&self) {
        self.places.all_free().await;
    }

    /// Asks for a page, and follows its redirects.
    ///
    /// # Errors
    /// Those of [`PageError`].
    ///
    /// Dropped midway: the connection is closed.
    pub(in crate::egress) async fn read(
        &self,
        door: PageDoor,
        request: &PageRequest,
    ) -> Result<Page, PageError> {
        let place = self.places.acquire(door.key.tenant, TURN_WAIT).await.map_err(|_| PageError::Busy)?;
        let time = request.time.min(PAGE_TIME_MAX);
        let visit = Visit { door, until: Instant::now() + time, time };
        let mut url = Url::parse(&request.url).map_err(|_| PageError::Address)?;
        for _ in 0..=REDIRECTS_MAX {
            let relay = Arc::new(Relay::new(visit.door.proxy.quota()));
            let mut record = JournalRecord::begin(&visit.door.key, &self.journal, &relay, CALLER_LEFT);
            let asked = visit.bounded(self.ask(&visit.door.proxy, &url, &mut record)).await;
            record.code = asked.as_ref().err().map(PageError::code);
            let answer = asked?;
            let status = answer.status();
            let to = answer.headers().get(LOCATION).and_then(|to| to.to_str().ok());
            if let Some(to) = to.filter(|_| status.is_redirection()) {
                url = url.join(to).map_err(|_| PageError::Address)?;
                continue;
            }
            if !status.is_success() {
                return Err(PageError::Status(status));
            }
            record.code = Some(CALLER_LEFT);
            let media_type = media_type(&answer);
            return Ok(Page { url: url.to_string(), media_type, answer, record, visit, _place: place });
        }
        Err(PageError::Redirects)
    }

    async fn ask(&self, proxy: &Proxy, url: &Url, record: &mut JournalRecord) -> Result<Response, PageError> {
        let (host, port) = address(url)?;
        host.as_str().clone_into(&mut record.host);
        let allowed = proxy.check_for_page(&host)?;
        if record.relay.is_used_up() {
            return Err(proxy.quota_refusal().into());
        }
        // The client goes this way alone.
        let route =
            self.names.find_within(record.tenant(), &host, port, allowed).await.map_err(Refusal::from)?;
        let mut dialled = url.clone();
        if self.names.is_fixed(&host) {
            // The address that the operator gives to a host has a port of its own, which counts only without one in the URL.
            dialled.set_port(None).map_err(|()| PageError::Address)?;
        }
        let client = if allowed == AllowedAddresses::Opened { &self.opened } else { &self.public };
        let upstream = route.upstream();
        let sent = client.by(upstream).get(dialled).header(ACCEPT, ACCEPTED).send().await;
        let answer = sent.map_err(|error| explain(&error, upstream))?;
        match upstream.and_then(|proxy| proxy.find_refusal(&answer)) {
            Some(error) => Err(Refusal::from(error).into()),
            None => Ok(answer),
        }
    }
}

/// Why a host, or the upstream proxy on the way to it, gives no answer.
fn explain(error: &reqwest::Error, upstream: Option<&UpstreamProxy>) -> PageError {
    match upstream.and_then(|proxy| proxy.explain(error)) {
        Some(error) => Refusal::from(error).into(),
        None => PageError::Transport(innermost(error)),
    }
}

/// The host and the port of an address of the web.
fn address(url: &Url) -> Result<(HostName, u16), PageError> {
    let is_web =
        matches!(url.scheme(), "http" | "https") && url.username().is_empty() && url.password().is_none();
    let (Some(host), Some(port), true) = (url.host_str(), url.port_or_known_default(), is_web) else {
        return Err(PageError::Address);
    };
    let host = HostName::parse(host).map_err(Refusal::from)?;
    if ![80, 443].contains(&port) {
        return Err(Refusal::Port(port).into());
    }
    Ok((host, port))
}

fn media_type(answer: &Response) -> String {
    let text = answer.headers().get(CONTENT_TYPE).and_then(|text| text.to_str().ok()).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

impl Page {
    /// The bytes of the page, decoded. A stream that ends without an error brought the page whole.
    pub fn into_bytes(self) -> impl Stream<Item = Result<Bytes, PageError>> + Send {
        stream::unfold(Some(self), |page| async move {
            let mut page = page?;
            match page.next().await {
                Ok(Some(bytes)) => Some((Ok(bytes), Some(page))),
                Ok(None) => {
                    page.record.code = None;
                    None
                }
                Err(error) => {
                    page.record.code = Some(error.code());
                    Some((Err(error), None))
                }
            }
        })
    }

    async fn next(&mut self) -> Result<Option<Bytes>, PageError> {
        let Self { answer, record, visit, .. } = self;
        let read = async { answer.chunk().await.map_err(|error| PageError::Transport(innermost(&error))) };
        let Some(bytes) = visit.bounded(read).await? else { return Ok(None) };
        record.relay.note(bytes.len() as u64).map_err(|_| visit.door.proxy.quota_refusal())?;
        if record.relay.bytes() > WEB_PAGE_BYTES_MAX as u64 {
            return Err(PageError::TooLarge);
        }
        Ok(Some(bytes))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::BTreeMap;

    /// The code with which a page of a host of this machine is refused.
    async fn code(lists: domain::egress::allow::AllowLists, opened: &str) -> &'static str {
        let networks = [opened].into_iter().filter(|network| !network.is_empty());
        let names = Names::new(networks.map(|network| network.parse().unwrap()).collect(), BTreeMap::new());
        let host = HostName::parse("pages.example.com").unwrap();
        let tenant = "00000000-0000-0000-0000-000000000001".parse().unwrap();
        names.remember(tenant, &host, Some(vec!["127.0.0.1".parse().unwrap()]));
        let names = Arc::new(names);
        let door = PageDoor {
            key: DoorKey { tenant, session: "ses_a".parse().unwrap() },
            proxy: Arc::new(Proxy::new(tenant, lists, Arc::clone(&names), 100)),
            closing: CancellationToken::new(),
        };
        let pages = Pages::new(names, Arc::default()).unwrap();
        let request =
            PageRequest { url: "http://pages.example.com/".to_owned(), time: Duration::from_secs(20) };
        pages.read(door, &request).await.err().map_or("", |error| error.code().as_str())
    }

    #[tokio::test]
    async fn a_network_that_the_operator_opened_takes_a_list() {
        use domain::egress::allow::{AllowList, AllowLists};
        let list = || {
            AllowLists::new(vec![
                AllowList::parse("a setting", &["pages.example.com".to_owned()], &[]).unwrap(),
            ])
        };
        assert_eq!(code(list(), "").await, "egress_address_private");
        assert_eq!(code(AllowLists::default(), "127.0.0.0/8").await, "egress_address_private");
        // Nothing answers on the port of the web of this machine, or something that is no page.
        let reached = code(list(), "127.0.0.0/8").await;
        assert!(["page_unreachable", "page_status", ""].contains(&reached), "{reached}");
    }
}
