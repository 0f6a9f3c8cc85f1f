//! Reads pages of the web for the model of a session. A model chose the address, perhaps because of something that it read, so each host, also after a
//! redirect, passes the checks of the session's proxy: the lists, the look-up, the addresses. Only a door without any list lets every host pass: permissions
//! then decide what a session reads.

mod error;

pub use error::PageError;

use super::{
    journal::{Journal, JournalEntry},
    key::DoorKey,
    names::{CheckedNames, Names},
    proxy::Proxy,
    refusal::Refusal,
    relay::Relay,
};
use crate::cause::innermost;
use bytes::Bytes;
use domain::{egress::host::HostName, ids::TenantId};
use futures::{Stream, stream};
use reqwest::{
    Client, Response, Url,
    header::{ACCEPT, CONTENT_TYPE, LOCATION},
};
use shares::{Share, Shares};
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, timeout_at};

/// Redirects of one page. Beyond it: `page_redirects`.
const REDIRECTS_MAX: usize = 5;
/// Bytes of one page, decoded. Beyond it: `page_too_large`.
pub const PAGE_BYTES_MAX: u64 = 5 * 1024 * 1024;
/// Time in which a page must arrive whole, if the caller asks for no less. Beyond it: `page_timeout`.
const PAGE_TIME_MAX: Duration = Duration::from_secs(120);
/// Pages that are read at the same time; one tenant gets three quarters. Further ones wait.
const PAGES_MAX: u32 = 64;
/// Longest wait of a page for its turn. Beyond it: `page_busy`.
const TURN_WAIT: Duration = Duration::from_secs(30);
/// What the model reads best.
const ACCEPTED: &str = "text/markdown, text/html;q=0.9, text/plain;q=0.8, */*;q=0.5";

/// The reader of all pages.
#[derive(Debug)]
pub(super) struct Pages {
    names: Arc<Names>,
    http: Client,
    journal: Arc<Journal>,
    places: Shares<TenantId>,
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
#[derive(Debug)]
pub struct Page {
    /// Its address after all redirects.
    pub url: String,
    /// Its media type, in small letters and without parameters; empty: the server sent none.
    pub media_type: String,
    answer: Response,
    visit: Visit,
    deadline: Deadline,
    _place: Share,
}

/// When a page must have arrived.
#[derive(Debug, Clone, Copy)]
struct Deadline {
    at: Instant,
    time: Duration,
}

/// A request to one host. It is noted when it is dropped.
struct Visit {
    key: DoorKey,
    journal: Arc<Journal>,
    relay: Relay,
    begun_at: Instant,
    host: String,
    code: &'static str,
}

impl std::fmt::Debug for Visit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Visit").field("host", &self.host).finish_non_exhaustive()
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let entry = JournalEntry {
            host: &self.host,
            bytes: self.relay.bytes(),
            duration: self.begun_at.elapsed(),
            code: self.code,
            credential: None,
        };
        self.journal.add(&self.key, &entry);
    }
}

impl Deadline {
    async fn keep<T>(self, work: impl Future<Output = Result<T, PageError>>) -> Result<T, PageError> {
        timeout_at(self.at, work).await.unwrap_or(Err(PageError::Timeout(self.time)))
    }
}

impl Pages {
    /// # Errors
    /// The certificates of this system cannot be used.
    pub(super) fn new(names: Arc<Names>, journal: Arc<Journal>) -> Result<Self, reqwest::Error> {
        // A proxy of the environment would resolve names without our check. No connection of one tenant serves another.
        let builder = chassis::http::builder().no_proxy().pool_max_idle_per_host(0);
        let http = builder.dns_resolver(Arc::new(CheckedNames::new(Arc::clone(&names)))).build()?;
        Ok(Self { names, http, journal, places: Shares::three_quarters(PAGES_MAX) })
    }

    /// Asks for a page, and follows its redirects.
    ///
    /// # Errors
    /// Those of [`PageError`].
    ///
    /// Dropped midway: the connection is closed.
    pub(super) async fn read(
        &self,
        key: &DoorKey,
        proxy: &Proxy,
        request: &PageRequest,
    ) -> Result<Page, PageError> {
        let place = self.places.acquire(key.tenant, TURN_WAIT).await.map_err(|_| PageError::Busy)?;
        let time = request.time.min(PAGE_TIME_MAX);
        let deadline = Deadline { at: Instant::now() + time, time };
        let mut url = Url::parse(&request.url).map_err(|_| PageError::address(&request.url))?;
        for _ in 0..=REDIRECTS_MAX {
            let mut visit = Visit {
                key: key.clone(),
                journal: Arc::clone(&self.journal),
                relay: Relay::new(proxy.quota()),
                begun_at: Instant::now(),
                host: String::new(),
                code: Refusal::Closed.code(),
            };
            let asked = deadline.keep(self.ask(proxy, &mut url, &mut visit)).await;
            visit.code = asked.as_ref().err().map_or("", PageError::code);
            let answer = asked?;
            let status = answer.status();
            let to = answer.headers().get(LOCATION).and_then(|to| to.to_str().ok());
            if let Some(to) = to.filter(|_| status.is_redirection()) {
                url = url.join(to).map_err(|_| PageError::address(to))?;
                continue;
            }
            if !status.is_success() {
                return Err(PageError::Status(status));
            }
            visit.code = Refusal::Closed.code();
            let media_type = media_type(&answer);
            return Ok(Page { url: url.to_string(), media_type, answer, visit, deadline, _place: place });
        }
        Err(PageError::Redirects)
    }

    async fn ask(&self, proxy: &Proxy, url: &mut Url, visit: &mut Visit) -> Result<Response, PageError> {
        let (host, port) = address(url)?;
        host.as_str().clone_into(&mut visit.host);
        proxy.check_page(&host)?;
        if visit.relay.is_used_up() {
            return Err(PageError::Quota);
        }
        // The client connects to these alone.
        self.names.find(visit.key.tenant, &host, port).await?;
        if self.names.is_fixed(&host) {
            // The address that the operator gives to a host has a port of its own, which counts only without one in the URL.
            url.set_port(None).map_err(|()| PageError::address(url.as_str()))?;
        }
        let answer = self.http.get(url.clone()).header(ACCEPT, ACCEPTED).send().await;
        answer.map_err(|error| PageError::Transport(innermost(&error)))
    }
}

/// The host and the port of an address of the web.
fn address(url: &Url) -> Result<(HostName, u16), PageError> {
    let is_web =
        matches!(url.scheme(), "http" | "https") && url.username().is_empty() && url.password().is_none();
    let (Some(host), Some(port), true) = (url.host_str(), url.port_or_known_default(), is_web) else {
        return Err(PageError::address(url.as_str()));
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
                    page.visit.code = "";
                    None
                }
                Err(error) => {
                    page.visit.code = error.code();
                    Some((Err(error), None))
                }
            }
        })
    }

    async fn next(&mut self) -> Result<Option<Bytes>, PageError> {
        let Self { answer, visit, deadline, .. } = self;
        let read = async { answer.chunk().await.map_err(|error| PageError::Transport(innermost(&error))) };
        let Some(bytes) = deadline.keep(read).await? else { return Ok(None) };
        visit.relay.note(bytes.len() as u64).map_err(|_| PageError::Quota)?;
        if visit.relay.bytes() > PAGE_BYTES_MAX {
            return Err(PageError::TooLarge(PAGE_BYTES_MAX));
        }
        Ok(Some(bytes))
    }
}
