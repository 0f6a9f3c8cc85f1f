//! One look-up of the addresses of a host, for all that wait for it. It runs in a task of its own, in the place of whichever of their tenants has one, so it ends with
//! none of them. If one tenant has no place, the others still get an answer.

use crate::outside::error::NameError;
use chassis::{lock, tasks};
use domain::{egress::host::HostName, ids::TenantId};
use shares::{Permit, Shares};
use std::{
    net::{IpAddr, ToSocketAddrs as _},
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{sync::watch, time::timeout};
use tokio_util::task::AbortOnDropHandle;

/// Look-ups before a host counts as unknown: name servers drop some of many parallel questions.
const TRIES: u32 = 3;
/// Longest wait for one look-up, and for the place of a further one.
const TRY_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Lookup {
    state: watch::Sender<LookupState>,
    /// It ends when nobody needs its answer any more.
    task: Mutex<Option<AbortOnDropHandle<()>>>,
}

/// One that waits for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asker<'a> {
    pub(super) places: &'a Arc<Shares<TenantId>>,
    pub(super) tenant: TenantId,
    pub(super) host: &'a HostName,
    /// Its longest wait.
    pub(super) time: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum LookupState {
    /// Nobody who waits has a place.
    Waiting,
    Running,
    /// `None`: nobody knows the host.
    Done(Option<Vec<IpAddr>>),
}

impl Default for Lookup {
    fn default() -> Self {
        Self { state: watch::Sender::new(LookupState::Waiting), task: Mutex::default() }
    }
}

impl Lookup {
    /// One that has ended.
    #[cfg(test)]
    pub(super) fn done(addresses: Option<Vec<IpAddr>>) -> Self {
        let lookup = Self::default();
        lookup.state.send_replace(LookupState::Done(addresses));
        lookup
    }

    /// What it found, if it has ended; `None` inside: nobody knows the host.
    pub(super) fn answer(&self) -> Option<Option<Vec<IpAddr>>> {
        match &*self.state.borrow() {
            LookupState::Done(found) => Some(found.clone()),
            LookupState::Waiting | LookupState::Running => None,
        }
    }

    /// Whether it has ended, and nobody knows the host.
    pub(super) fn is_failure(&self) -> bool {
        matches!(*self.state.borrow(), LookupState::Done(None))
    }

    /// Waits for the addresses of the host, and begins to look them up as soon as the tenant has a place, unless somebody has begun.
    ///
    /// # Errors
    /// `Busy`, `Unresolved`.
    ///
    /// Cancel-safe.
    pub(super) async fn wait(&self, asker: Asker<'_>) -> Result<Vec<IpAddr>, NameError> {
        let found = timeout(asker.time, self.follow(asker)).await;
        let found = found.unwrap_or_else(|_| match *self.state.borrow() {
            LookupState::Waiting => Err(NameError::Busy(asker.host.clone())),
            LookupState::Running | LookupState::Done(_) => Ok(None),
        })?;
        found.ok_or_else(|| NameError::Unresolved(asker.host.clone()))
    }

    async fn follow(&self, asker: Asker<'_>) -> Result<Option<Vec<IpAddr>>, NameError> {
        let Asker { places, tenant, host, time } = asker;
        let mut states = self.state.subscribe();
        loop {
            let state = states.borrow_and_update().clone();
            match state {
                LookupState::Done(found) => return Ok(found),
                // The sender lives as long as this look-up.
                LookupState::Running => drop(states.changed().await),
                LookupState::Waiting => tokio::select! {
                    place = places.acquire(tenant, time) => {
                        self.begin(asker, place.map_err(|_| NameError::Busy(host.clone()))?);
                    }
                    _ = states.changed() => {}
                },
            }
        }
    }

    /// Begins, unless somebody has begun.
    fn begin(&self, asker: Asker<'_>, place: Permit) {
        let is_first = self.state.send_if_modified(|state| {
            let is_waiting = *state == LookupState::Waiting;
            if is_waiting {
                *state = LookupState::Running;
            }
            is_waiting
        });
        if !is_first {
            return;
        }
        let Asker { places, tenant, host, .. } = asker;
        let (state, places, host) = (self.state.clone(), Arc::clone(places), host.clone());
        let task = tasks::spawn_owned("look-up of a host", async move {
            let found = look_up(&places, tenant, &host, place).await;
            state.send_replace(found.map_or(LookupState::Waiting, LookupState::Done));
        });
        *lock(&self.task) = Some(task);
    }
}

/// Asks the servers of names. `None`: the tenant has no place for a further try; `None` inside: nobody knows the host.
async fn look_up(
    places: &Shares<TenantId>,
    tenant: TenantId,
    host: &HostName,
    place: Permit,
) -> Option<Option<Vec<IpAddr>>> {
    let mut first = Some(place);
    for _ in 0..TRIES {
        let place = match first.take() {
            Some(place) => place,
            None => places.acquire(tenant, TRY_TIMEOUT).await.ok()?,
        };
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
            return Some(Some(addresses));
        }
    }
    Some(None)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use futures::FutureExt as _;

    const LONG: Duration = Duration::from_secs(3_600);

    /// A host, the places of look-ups, and all that the first of two tenants may have.
    struct Site {
        host: HostName,
        places: Arc<Shares<TenantId>>,
        lookup: Lookup,
    }

    impl Site {
        fn new() -> Self {
            let host = HostName::parse("registry.example.com").unwrap();
            Self { host, places: Arc::new(Shares::three_quarters(64)), lookup: Lookup::default() }
        }

        fn tenant(number: u8) -> TenantId {
            format!("00000000-0000-0000-0000-00000000000{number}").parse().unwrap()
        }

        /// Takes all places of the first tenant.
        fn crowd(&self) -> Permit {
            self.places.try_acquire_many(Self::tenant(1), 48).unwrap()
        }

        fn wait(&self, tenant: u8, time: Duration) -> impl Future<Output = Result<Vec<IpAddr>, NameError>> {
            let tenant = Self::tenant(tenant);
            self.lookup.wait(Asker { places: &self.places, tenant, host: &self.host, time })
        }

        fn state(&self) -> LookupState {
            self.lookup.state.borrow().clone()
        }

        fn set(&self, state: LookupState) {
            self.lookup.state.send_replace(state);
        }
    }

    fn found() -> Vec<IpAddr> {
        vec!["1.1.1.1".parse().unwrap()]
    }

    #[tokio::test]
    async fn a_tenant_without_a_place_gets_an_error_and_others_an_answer() {
        let site = Site::new();
        let _held = site.crowd();
        assert_eq!(site.wait(1, Duration::ZERO).await, Err(NameError::Busy(site.host.clone())));
        assert_eq!(site.lookup.answer(), None, "that is no answer");
        // The crowd asks first, and the look-up begins in the place of the other.
        let [mut first, mut second] = [1, 2].map(|tenant| Box::pin(site.wait(tenant, LONG)));
        assert_eq!((first.as_mut().now_or_never(), second.as_mut().now_or_never()), (None, None));
        assert_eq!(site.state(), LookupState::Running);
        site.set(LookupState::Done(Some(found())));
        assert_eq!((first.await, second.await), (Ok(found()), Ok(found())));
    }

    #[tokio::test]
    async fn a_look_up_outlives_the_connection_that_began_it() {
        let site = Site::new();
        let [mut first, mut second] = [1, 2].map(|tenant| Box::pin(site.wait(tenant, LONG)));
        assert_eq!((first.as_mut().now_or_never(), second.as_mut().now_or_never()), (None, None));
        drop(first);
        assert_eq!(site.state(), LookupState::Running, "nobody has to begin again");
        site.set(LookupState::Done(Some(found())));
        assert_eq!(second.await, Ok(found()));
    }

    #[tokio::test]
    async fn a_look_up_that_lost_its_place_goes_on_in_that_of_another() {
        let site = Site::new();
        site.set(LookupState::Running);
        let _held = site.crowd();
        let [mut first, mut second] = [1, 2].map(|tenant| Box::pin(site.wait(tenant, LONG)));
        assert_eq!((first.as_mut().now_or_never(), second.as_mut().now_or_never()), (None, None));
        // Its tenant has no place for a further try.
        site.set(LookupState::Waiting);
        assert_eq!((first.as_mut().now_or_never(), second.as_mut().now_or_never()), (None, None));
        assert_eq!(site.state(), LookupState::Running);
    }
}
