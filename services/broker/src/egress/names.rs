//! The ways to hosts. Many connections at once ask once for their addresses. Names behind the upstream proxy are not looked up here.

use super::refusal::Refusal;
use crate::outside::{proxy::UpstreamProxy, route::Route};
use chassis::network::{Network, is_public};
use domain::{egress::host::HostName, ids::TenantId};
use reqwest::dns::{Name, Resolve, Resolving};
use shares::Shares;
use std::{
    collections::{BTreeMap, HashMap},
    io,
    net::{IpAddr, SocketAddr, ToSocketAddrs as _},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    sync::OnceCell,
    time::{Instant, timeout},
};

/// Time for which an answer is used again.
const KEPT: Duration = Duration::from_secs(30);
/// Time for which a failure is told again: many connections to a host that nobody knows must not ask one after the other.
const FAILURE_KEPT: Duration = Duration::from_secs(2);
/// Hosts whose answers are kept. Beyond it the oldest is forgotten.
const HOSTS_MAX: usize = 1_000;
/// Look-ups at the same time; one tenant gets three quarters. Each takes a thread that cannot be stopped, so this is also the bound of threads.
const LOOKUPS_MAX: u32 = 64;
/// Look-ups before a host counts as unknown: name servers drop some of many parallel questions.
const TRIES: u32 = 3;
/// Longest wait for one look-up.
const TRY_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait of one connection for the answer. Beyond it: `egress_host_unknown`.
const FIND_TIMEOUT: Duration = Duration::from_secs(30);

/// Which addresses a session may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Those of the public internet, and what the operator opened.
    Opened,
    /// Only those of the public internet.
    Public,
}

/// The look-ups of this process.
#[derive(Debug)]
pub struct Names {
    /// Networks outside the public internet in which the addresses of hosts may lie.
    opened: Vec<Network>,
    /// Addresses that the operator gives to hosts, for example of an internal registry.
    fixed: BTreeMap<HostName, SocketAddr>,
    /// Resolves the names of all hosts but those above and its exceptions.
    upstream: Option<Arc<UpstreamProxy>>,
    lookups: Shares<TenantId>,
    answers: Mutex<HashMap<HostName, Answer>>,
}

/// The answer for a host, or the place where it will stand. `None`: nobody knows the host.
#[derive(Debug, Clone)]
struct Answer {
    asked_at: Instant,
    addresses: Arc<OnceCell<Option<Vec<IpAddr>>>>,
}

impl Answer {
    fn is_fresh(&self) -> bool {
        let kept = if self.addresses.get() == Some(&None) { FAILURE_KEPT } else { KEPT };
        self.asked_at.elapsed() < kept
    }
}

impl Names {
    /// With the operator's networks and hosts. The port of a fixed address replaces that of the request.
    pub fn new(opened: Vec<Network>, fixed: BTreeMap<HostName, SocketAddr>) -> Self {
        let lookups = Shares::three_quarters(LOOKUPS_MAX);
        Self { opened, fixed, upstream: None, lookups, answers: Mutex::default() }
    }

    /// Leads to hosts through a proxy, if there is one.
    #[must_use]
    pub fn through(mut self, upstream: Option<Arc<UpstreamProxy>>) -> Self {
        self.upstream = upstream;
        self
    }

    /// The proxy, if there is one. It is not on the way to every host.
    pub(super) fn upstream(&self) -> Option<&UpstreamProxy> {
        self.upstream.as_deref()
    }

    /// The way to a host: addresses, all of them public or opened, or the upstream proxy.
    ///
    /// # Errors
    /// `Unresolved`, `Private`.
    pub(super) async fn find(&self, tenant: TenantId, host: &HostName, port: u16) -> Result<Route, Refusal> {
        self.find_within(tenant, host, port, Reach::Opened).await
    }

    /// The same within a reach.
    ///
    /// # Errors
    /// `Unresolved`, `Private`.
    pub(super) async fn find_within(
        &self,
        tenant: TenantId,
        host: &HostName,
        port: u16,
        reach: Reach,
    ) -> Result<Route, Refusal> {
        match self.fixed.get(host) {
            Some(fixed) if reach == Reach::Opened => return Ok(Route::Direct(vec![*fixed])),
            Some(_) => return Err(Refusal::Private(host.clone())),
            None => {}
        }
        if let Some(proxy) = self.upstream.as_ref().filter(|proxy| proxy.covers(host.as_str())) {
            return Ok(Route::Upstream(Arc::clone(proxy)));
        }
        let answer = self.answer(host);
        let asked = answer.addresses.get_or_init(|| self.look_up(tenant, host));
        let addresses = timeout(FIND_TIMEOUT, asked).await.ok().and_then(Option::as_ref);
        let addresses = addresses.ok_or_else(|| Refusal::Unresolved(host.clone()))?;
        if !addresses.iter().all(|address| self.is_within(*address, reach)) {
            return Err(Refusal::Private(host.clone()));
        }
        Ok(Route::Direct(addresses.iter().map(|address| SocketAddr::new(*address, port)).collect()))
    }

    /// The addresses of a host that [`Names::find`] found a moment ago, without a port; `None`: it found none, or they are not open. A host to which the operator gives an
    /// address has its port too.
    fn recall(&self, host: &HostName, reach: Reach) -> Option<Vec<SocketAddr>> {
        if let Some(fixed) = self.fixed.get(host) {
            return (reach == Reach::Opened).then(|| vec![*fixed]);
        }
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let addresses = answers.get(host)?.addresses.get()?.clone()?;
        let are_within = addresses.iter().all(|address| self.is_within(*address, reach));
        are_within.then(|| addresses.into_iter().map(|address| SocketAddr::new(address, 0)).collect())
    }

    /// Whether the operator gives an address and a port to a host.
    pub(super) fn is_fixed(&self, host: &HostName) -> bool {
        self.fixed.contains_key(host)
    }

    /// Whether sessions may reach an address.
    fn is_within(&self, address: IpAddr, reach: Reach) -> bool {
        let is_opened = || self.opened.iter().any(|network| network.contains(&address));
        is_public(address) || reach == Reach::Opened && is_opened()
    }

    fn answer(&self, host: &HostName) -> Answer {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = answers.get(host).filter(|answer| answer.is_fresh()) {
            return answer.clone();
        }
        if answers.len() >= HOSTS_MAX {
            let oldest = answers.iter().min_by_key(|(_, answer)| answer.asked_at);
            if let Some(oldest) = oldest.map(|(host, _)| host.clone()) {
                answers.remove(&oldest);
            }
        }
        let answer = Answer { asked_at: Instant::now(), addresses: Arc::default() };
        answers.insert(host.clone(), answer.clone());
        answer
    }

    /// Keeps an answer as if it had been looked up now.
    #[cfg(test)]
    pub(super) fn remember(&self, host: &HostName, addresses: Option<Vec<IpAddr>>) {
        let addresses = Arc::new(OnceCell::new_with(Some(addresses)));
        let answer = Answer { asked_at: Instant::now(), addresses };
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).insert(host.clone(), answer);
    }

    /// Asks the servers of names; `None`: they do not know the host.
    async fn look_up(&self, tenant: TenantId, host: &HostName) -> Option<Vec<IpAddr>> {
        for _ in 0..TRIES {
            let place = self.lookups.acquire(tenant, FIND_TIMEOUT).await.ok()?;
            // The dot keeps the resolver from trying the domains of this machine.
            let name = format!("{host}.");
            let asked = tokio::task::spawn_blocking(move || {
                // A look-up that nobody waits for any more keeps its place: its thread is still taken.
                let _place = place;
                let found = (name.as_str(), 0).to_socket_addrs().ok()?;
                Some(found.map(|address| address.ip()).collect::<Vec<_>>())
            });
            let found = timeout(TRY_TIMEOUT, asked).await.ok().and_then(Result::ok).flatten();
            if let Some(addresses) = found.filter(|addresses| !addresses.is_empty()) {
                return Some(addresses);
            }
        }
        None
    }
}

/// Gives an HTTP client the addresses that were checked for its request. Nothing is looked up here, so a connection goes to no other address.
#[derive(Debug)]
pub(super) struct CheckedNames {
    names: Arc<Names>,
    reach: Reach,
}

impl CheckedNames {
    /// Those that [`Names::find_within`] found.
    pub(super) fn new(names: Arc<Names>, reach: Reach) -> Self {
        Self { names, reach }
    }
}

impl Resolve for CheckedNames {
    fn resolve(&self, name: Name) -> Resolving {
        let addresses =
            HostName::parse(name.as_str()).ok().and_then(|host| self.names.recall(&host, self.reach));
        Box::pin(async move {
            let addresses = addresses.ok_or_else(|| io::Error::other("its address was not checked"))?;
            Ok(Box::new(addresses.into_iter()) as Box<_>)
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;

    #[test]
    fn only_public_and_opened_addresses_are_open() {
        let names = Names::new(vec!["10.1.0.0/16".parse().unwrap()], BTreeMap::new());
        let is_open = |address: &str| names.is_within(address.parse().unwrap(), Reach::Opened);
        for open in ["1.1.1.1", "10.1.2.3", "2606:4700::1111"] {
            assert!(is_open(open), "{open}");
            let is_public = names.is_within(open.parse().unwrap(), Reach::Public);
            assert_eq!(is_public, open != "10.1.2.3", "{open}");
        }
        for closed in
            ["127.0.0.1", "10.2.0.1", "169.254.169.254", "168.63.129.16", "::1", "::ffff:10.2.0.1", "fd00::1"]
        {
            assert!(!is_open(closed), "{closed}");
        }
    }

    #[tokio::test]
    async fn a_name_that_leads_home_is_refused_and_a_failure_is_kept_for_a_moment() {
        let tenant: TenantId = "00000000-0000-0000-0000-000000000001".parse().unwrap();
        let names = Names::new(vec![], BTreeMap::new());
        let keep = |host: &str, addresses: Option<Vec<IpAddr>>| {
            let host = HostName::parse(host).unwrap();
            names.remember(&host, addresses);
            host
        };
        let home = keep("home.example.com", Some(vec!["127.0.0.1".parse().unwrap()]));
        assert!(matches!(names.find(tenant, &home, 443).await, Err(Refusal::Private(_))));
        let mixed =
            keep("mixed.example.com", Some(["1.1.1.1", "10.0.0.1"].map(|ip| ip.parse().unwrap()).into()));
        assert!(matches!(names.find(tenant, &mixed, 443).await, Err(Refusal::Private(_))));
        let public = keep("public.example.com", Some(vec!["1.1.1.1".parse().unwrap()]));
        let Ok(Route::Direct(found)) = names.find(tenant, &public, 443).await else { panic!("it is public") };
        assert_eq!(found, ["1.1.1.1:443".parse::<SocketAddr>().unwrap()]);
        // A connection goes only to what was found and is open.
        assert_eq!(names.recall(&public, Reach::Opened), Some(vec!["1.1.1.1:0".parse().unwrap()]));
        for closed in [&home, &mixed, &HostName::parse("other.example.com").unwrap()] {
            assert_eq!(names.recall(closed, Reach::Opened), None, "{closed}");
        }
        let unknown = keep("unknown.example.com", None);
        assert!(matches!(names.find(tenant, &unknown, 443).await, Err(Refusal::Unresolved(_))));
        assert_eq!(names.answer(&unknown).addresses.get(), Some(&None), "nobody asks again at once");
    }

    #[tokio::test]
    async fn a_proxy_resolves_all_names_but_those_of_the_operator_and_its_exceptions() {
        let tenant: TenantId = "00000000-0000-0000-0000-000000000001".parse().unwrap();
        let host = |name: &str| HostName::parse(name).unwrap();
        let fixed = BTreeMap::from([(host("fixed.acme.dev"), "10.1.2.3:443".parse().unwrap())]);
        let exceptions = vec![".inside.acme.dev".parse().unwrap()];
        let proxy = UpstreamProxy::parse("http://proxy.acme.dev:3128", exceptions).unwrap();
        let names = Names::new(vec![], fixed).through(Some(Arc::new(proxy)));
        let outside = host("unknown.example.com");
        for reach in [Reach::Opened, Reach::Public] {
            let route = names.find_within(tenant, &outside, 443, reach).await.unwrap();
            assert!(route.upstream().is_some(), "{reach:?}");
        }
        let route = names.find(tenant, &host("fixed.acme.dev"), 443).await.unwrap();
        assert!(route.upstream().is_none());
        let inside = host("git.inside.acme.dev");
        names.remember(&inside, Some(vec!["10.1.2.4".parse().unwrap()]));
        assert!(matches!(names.find(tenant, &inside, 443).await, Err(Refusal::Private(_))));
        // No client connects to a name that was not looked up here.
        assert_eq!(names.recall(&outside, Reach::Opened), None);
    }
}
