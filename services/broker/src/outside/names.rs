//! The ways to hosts. Many connections at once ask once for their addresses. Names behind the upstream proxy are not looked up here.

mod lookup;

use super::{error::NameError, proxy::UpstreamProxy, route::Route};
use chassis::{
    lock,
    network::{Network, is_public},
};
use domain::{egress::host::HostName, ids::TenantId};
use lookup::{Asker, Lookup};
use reqwest::dns::{Name, Resolve, Resolving};
use shares::{Shares, three_quarters};
use std::{
    collections::{BTreeMap, HashMap},
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::Instant;

/// Time for which an answer is used again.
const KEPT: Duration = Duration::from_secs(30);
/// Time for which a failure is told again: many connections to a host that nobody knows must not ask one after the other.
const FAILURE_KEPT: Duration = Duration::from_secs(2);
/// Longest wait of one connection for the answer. Beyond it: `egress_host_unknown` or `egress_busy`.
const FIND_TIMEOUT: Duration = Duration::from_secs(30);
/// Hosts whose answers are kept. Beyond it the oldest of the tenant that asked for most is forgotten. One tenant gets three quarters; beyond that its own oldest is
/// forgotten.
const HOSTS_MAX: u32 = 1_000;
/// Look-ups at the same time; one tenant gets three quarters. Each takes a thread that cannot be stopped, so this is also the bound of threads. Beyond it: `egress_busy`.
const LOOKUPS_MAX: u32 = 64;

/// Which addresses a session may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AllowedAddresses {
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
    places: Arc<Shares<TenantId>>,
    answers: Mutex<HashMap<HostName, DnsAnswer>>,
}

/// The answer for a host, which may still be looked up.
#[derive(Debug)]
struct DnsAnswer {
    asked_at: Instant,
    /// The first that asked for it.
    tenant: TenantId,
    lookup: Arc<Lookup>,
}

impl DnsAnswer {
    fn is_fresh(&self) -> bool {
        let kept = if self.lookup.is_failure() { FAILURE_KEPT } else { KEPT };
        self.asked_at.elapsed() < kept
    }
}

impl Names {
    /// With the operator's networks and hosts. The port of a fixed address replaces that of the request.
    pub fn new(opened: Vec<Network>, fixed: BTreeMap<HostName, SocketAddr>) -> Self {
        let places = Arc::new(Shares::three_quarters(LOOKUPS_MAX));
        Self { opened, fixed, upstream: None, places, answers: Mutex::default() }
    }

    /// Leads to hosts through a proxy, if there is one.
    #[must_use]
    pub fn through(mut self, upstream: Option<Arc<UpstreamProxy>>) -> Self {
        self.upstream = upstream;
        self
    }

    /// The proxy, if there is one. It is not on the way to every host.
    pub(crate) fn upstream(&self) -> Option<&UpstreamProxy> {
        self.upstream.as_deref()
    }

    /// The way to a host: addresses, all of them public or opened, or the upstream proxy.
    ///
    /// # Errors
    /// `Unresolved`, `Private`.
    pub(crate) async fn find(
        &self,
        tenant: TenantId,
        host: &HostName,
        port: u16,
    ) -> Result<Route, NameError> {
        self.find_within(tenant, host, port, AllowedAddresses::Opened).await
    }

    /// The same, with addresses of this kind.
    ///
    /// # Errors
    /// `Unresolved`, `Private`.
    pub(crate) async fn find_within(
        &self,
        tenant: TenantId,
        host: &HostName,
        port: u16,
        allowed: AllowedAddresses,
    ) -> Result<Route, NameError> {
        match self.fixed.get(host) {
            Some(fixed) if allowed == AllowedAddresses::Opened => return Ok(Route::Direct(vec![*fixed])),
            Some(_) => return Err(NameError::Private(host.clone())),
            None => {}
        }
        if let Some(proxy) = self.upstream.as_ref().filter(|proxy| proxy.covers(host.as_str())) {
            return Ok(Route::Upstream(Arc::clone(proxy)));
        }
        let asker = Asker { places: &self.places, tenant, host, time: FIND_TIMEOUT };
        let addresses = self.lookup(tenant, host).wait(asker).await?;
        if !addresses.iter().all(|address| self.is_within(*address, allowed)) {
            return Err(NameError::Private(host.clone()));
        }
        Ok(Route::Direct(addresses.iter().map(|address| SocketAddr::new(*address, port)).collect()))
    }

    /// The addresses of a host that [`Names::find`] found a moment ago, without a port; `None`: it found none, or they are not open. A host to which the operator gives an
    /// address has its port too.
    fn recall(&self, host: &HostName, allowed: AllowedAddresses) -> Option<Vec<SocketAddr>> {
        if let Some(fixed) = self.fixed.get(host) {
            return (allowed == AllowedAddresses::Opened).then(|| vec![*fixed]);
        }
        let addresses = lock(&self.answers).get(host)?.lookup.answer()??;
        let are_within = addresses.iter().all(|address| self.is_within(*address, allowed));
        are_within.then(|| addresses.into_iter().map(|address| SocketAddr::new(address, 0)).collect())
    }

    /// Whether the operator gives an address and a port to a host.
    pub(crate) fn is_fixed(&self, host: &HostName) -> bool {
        self.fixed.contains_key(host)
    }

    /// Whether sessions may reach an address.
    fn is_within(&self, address: IpAddr, allowed: AllowedAddresses) -> bool {
        let is_opened = || self.opened.iter().any(|network| network.contains(&address));
        is_public(address) || allowed == AllowedAddresses::Opened && is_opened()
    }

    fn lookup(&self, tenant: TenantId, host: &HostName) -> Arc<Lookup> {
        let mut answers = lock(&self.answers);
        if let Some(answer) = answers.get(host).filter(|answer| answer.is_fresh()) {
            return Arc::clone(&answer.lookup);
        }
        answers.remove(host);
        if let Some(host) = excess(&answers, tenant) {
            answers.remove(&host);
        }
        let lookup = Arc::<Lookup>::default();
        let answer = DnsAnswer { asked_at: Instant::now(), tenant, lookup: Arc::clone(&lookup) };
        answers.insert(host.clone(), answer);
        lookup
    }

    /// Keeps an answer as if it had been looked up now.
    #[cfg(test)]
    pub(crate) fn remember(&self, tenant: TenantId, host: &HostName, addresses: Option<Vec<IpAddr>>) {
        let lookup = Arc::new(Lookup::done(addresses));
        let answer = DnsAnswer { asked_at: Instant::now(), tenant, lookup };
        lock(&self.answers).insert(host.clone(), answer);
    }
}

/// The host whose answer must go before `tenant` asks for a further one: the oldest of this tenant, or else of the one that asked for most.
fn excess(answers: &HashMap<HostName, DnsAnswer>, tenant: TenantId) -> Option<HostName> {
    let mut counts = HashMap::<TenantId, usize>::new();
    answers.values().for_each(|answer| *counts.entry(answer.tenant).or_default() += 1);
    let own_max = three_quarters(HOSTS_MAX) as usize;
    let owner = if counts.get(&tenant).is_some_and(|count| *count >= own_max) {
        tenant
    } else if answers.len() >= HOSTS_MAX as usize {
        counts.into_iter().max_by_key(|(_, count)| *count)?.0
    } else {
        return None;
    };
    let owned = answers.iter().filter(|(_, answer)| answer.tenant == owner);
    owned.min_by_key(|(_, answer)| answer.asked_at).map(|(host, _)| host.clone())
}

/// Gives an HTTP client the addresses that were checked for its request. Nothing is looked up here, so a connection goes to no other address.
#[derive(Debug)]
pub(crate) struct CheckedNames {
    names: Arc<Names>,
    allowed: AllowedAddresses,
}

impl CheckedNames {
    /// Those that [`Names::find_within`] found.
    pub(crate) fn new(names: Arc<Names>, allowed: AllowedAddresses) -> Self {
        Self { names, allowed }
    }
}

impl Resolve for CheckedNames {
    fn resolve(&self, name: Name) -> Resolving {
        let addresses =
            HostName::parse(name.as_str()).ok().and_then(|host| self.names.recall(&host, self.allowed));
        Box::pin(async move {
            let addresses = addresses.ok_or_else(|| io::Error::other("its address was not checked"))?;
            Ok(Box::new(addresses.into_iter()) as Box<_>)
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn only_public_and_opened_addresses_are_open() {
        let names = Names::new(vec!["10.1.0.0/16".parse().unwrap()], BTreeMap::new());
        let is_open = |address: &str| names.is_within(address.parse().unwrap(), AllowedAddresses::Opened);
        for open in ["1.1.1.1", "10.1.2.3", "2606:4700::1111"] {
            assert!(is_open(open), "{open}");
            let is_public = names.is_within(open.parse().unwrap(), AllowedAddresses::Public);
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
            names.remember(tenant, &host, addresses);
            host
        };
        let home = keep("home.example.com", Some(vec!["127.0.0.1".parse().unwrap()]));
        assert!(matches!(names.find(tenant, &home, 443).await, Err(NameError::Private(_))));
        let mixed =
            keep("mixed.example.com", Some(["1.1.1.1", "10.0.0.1"].map(|ip| ip.parse().unwrap()).into()));
        assert!(matches!(names.find(tenant, &mixed, 443).await, Err(NameError::Private(_))));
        let public = keep("public.example.com", Some(vec!["1.1.1.1".parse().unwrap()]));
        let Ok(Route::Direct(found)) = names.find(tenant, &public, 443).await else { panic!("it is public") };
        assert_eq!(found, ["1.1.1.1:443".parse::<SocketAddr>().unwrap()]);
        // A connection goes only to what was found and is open.
        assert_eq!(names.recall(&public, AllowedAddresses::Opened), Some(vec!["1.1.1.1:0".parse().unwrap()]));
        for closed in [&home, &mixed, &HostName::parse("other.example.com").unwrap()] {
            assert_eq!(names.recall(closed, AllowedAddresses::Opened), None, "{closed}");
        }
        let unknown = keep("unknown.example.com", None);
        assert!(matches!(names.find(tenant, &unknown, 443).await, Err(NameError::Unresolved(_))));
        assert_eq!(names.lookup(tenant, &unknown).answer(), Some(None), "nobody asks again at once");
    }

    #[test]
    fn the_hosts_of_one_tenant_push_out_no_others() {
        let names = Names::new(vec![], BTreeMap::new());
        let tenant = |number: u8| format!("00000000-0000-0000-0000-00000000000{number}").parse().unwrap();
        let [crowd, one, other]: [TenantId; 3] = [1, 2, 3].map(tenant);
        let host =
            |label: &str, number: usize| HostName::parse(&format!("{label}{number}.example.com")).unwrap();
        let ask = |tenant: TenantId, label: &str, count: usize| {
            (0..count).for_each(|number| drop(names.lookup(tenant, &host(label, number))));
        };
        let count =
            |tenant: TenantId| lock(&names.answers).values().filter(|answer| answer.tenant == tenant).count();
        ask(one, "one", 10);
        ask(crowd, "crowd", 5_000);
        assert_eq!((count(one), count(crowd)), (10, 750));
        // All places are taken: the crowd leaves.
        ask(other, "other", 300);
        assert_eq!((count(one), count(crowd), count(other)), (10, HOSTS_MAX as usize - 310, 300));
        assert!(!lock(&names.answers).contains_key(&host("crowd", 4_250)), "the oldest first");
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
        for allowed in [AllowedAddresses::Opened, AllowedAddresses::Public] {
            let route = names.find_within(tenant, &outside, 443, allowed).await.unwrap();
            assert!(route.upstream().is_some(), "{allowed:?}");
        }
        let route = names.find(tenant, &host("fixed.acme.dev"), 443).await.unwrap();
        assert!(route.upstream().is_none());
        let inside = host("git.inside.acme.dev");
        names.remember(tenant, &inside, Some(vec!["10.1.2.4".parse().unwrap()]));
        assert!(matches!(names.find(tenant, &inside, 443).await, Err(NameError::Private(_))));
        // No client connects to a name that was not looked up here.
        assert_eq!(names.recall(&outside, AllowedAddresses::Opened), None);
    }
}
