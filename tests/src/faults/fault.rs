//! The faults that can be injected, chosen by the seed. `inject` performs them.

use super::cluster::{GATEWAYS, SERVERS, Server, Service, WORKERS};
use domain::limits::LEASE_TTL_MS;
use rand::{RngExt as _, rngs::StdRng, seq::IndexedRandom as _};
use testkit::proxy::{End, Rules, Trap, Way};

/// A fault with all of its choices made. Durations are milliseconds.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// A service dies and is started again after the pause.
    Kill(Service, u64),
    /// The sandbox's answers to a worker are delayed until the worker dies. Its effects remain, but the worker stored
    /// no result. It restarts after the pause.
    KillUnheard(usize, u64, u64),
    /// All NATS messages of a period are repeated, twice.
    Repeat(u64),
    /// A worker is frozen for a while, and then continues.
    Freeze(usize, u64),
    /// A worker is asked to end, and is started again after the pause.
    Drain(usize, u64),
    /// The sandbox service dies with everything that runs in it.
    KillSandbox(u64),
    /// Redis loses all data.
    FlushRedis,
    /// Redis dies and comes back empty.
    KillRedis(u64),
    /// Redis stands still.
    FreezeRedis(u64),
    /// NATS dies.
    KillNats(u64),
    /// Postgres ends at once, without a checkpoint, and recovers.
    CrashPostgres(u64),
    /// Postgres ends the connections at these places of its list.
    Terminate(Vec<usize>),
    /// The connections of a link end.
    Cut(Service, Server, End),
    /// A link misbehaves for so long.
    Link(Service, Server, Rules, u64),
    /// The connections of a link to Postgres wait for a moment that no timer hits.
    Trap(Service, Trap),
    /// The worker's messages to this server are held back while the worker is frozen and replaced; then they arrive.
    Late(usize, Server, u64),
    /// The connections of clients to a gateway end.
    CutFront(usize),
    /// Clients and a gateway cannot reach each other.
    SilentFront(usize, u64),
    /// All workers are repeatedly notified of work.
    WakeStorm(usize),
}

/// What a fault needs for itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// The process.
    Process(Service),
    /// The sandbox service.
    Sandbox,
    /// Postgres, Redis or NATS.
    Server(Server),
    /// From a service to a server.
    Link(Service, Server),
    /// From clients to a gateway.
    Front(usize),
}

/// The kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// See [`Fault::Kill`].
    KillWorker,
    /// See [`Fault::Kill`].
    KillGateway,
    /// See [`Fault::KillUnheard`].
    KillUnheard,
    /// See [`Fault::Repeat`].
    Repeat,
    /// See [`Fault::Freeze`]; just longer than the lease.
    FreezeWorker,
    /// See [`Fault::Freeze`]; shorter than the lease.
    PauseWorker,
    /// See [`Fault::Drain`].
    DrainWorker,
    /// See [`Fault::KillSandbox`].
    KillSandbox,
    /// See [`Fault::FlushRedis`].
    FlushRedis,
    /// See [`Fault::KillRedis`].
    KillRedis,
    /// See [`Fault::FreezeRedis`].
    FreezeRedis,
    /// See [`Fault::KillNats`].
    KillNats,
    /// See [`Fault::CrashPostgres`].
    CrashPostgres,
    /// See [`Fault::Terminate`].
    TerminateBackends,
    /// See [`Fault::Cut`].
    CutLink,
    /// See [`Fault::Link`]; both ways are silent.
    SilentLink,
    /// See [`Fault::Link`]; one way loses everything.
    OneWayLink,
    /// See [`Fault::Link`]; everything is late.
    SlowLink,
    /// See [`Fault::Trap`]; the answer to a commit is lost.
    LostCommit,
    /// See [`Fault::Trap`]; anywhere in the stream.
    TornStream,
    /// See [`Fault::Late`]; calls of the sandbox.
    LateCall,
    /// See [`Fault::Late`]; what it tells subscribers.
    LateNews,
    /// See [`Fault::CutFront`].
    CutFront,
    /// See [`Fault::SilentFront`].
    SilentFront,
    /// See [`Fault::WakeStorm`].
    WakeStorm,
}

/// Every fault, with its weight.
pub const EVERYTHING: [(Kind, u32); 25] = [
    (Kind::KillWorker, 10),
    (Kind::KillGateway, 5),
    (Kind::KillUnheard, 4),
    (Kind::Repeat, 3),
    (Kind::FreezeWorker, 5),
    (Kind::PauseWorker, 4),
    (Kind::DrainWorker, 4),
    (Kind::KillSandbox, 3),
    (Kind::FlushRedis, 4),
    (Kind::KillRedis, 3),
    (Kind::FreezeRedis, 2),
    (Kind::KillNats, 4),
    (Kind::CrashPostgres, 2),
    (Kind::TerminateBackends, 5),
    (Kind::CutLink, 6),
    (Kind::SilentLink, 4),
    (Kind::OneWayLink, 4),
    (Kind::SlowLink, 3),
    (Kind::LostCommit, 8),
    (Kind::TornStream, 4),
    (Kind::LateCall, 4),
    (Kind::LateNews, 3),
    (Kind::CutFront, 3),
    (Kind::SilentFront, 2),
    (Kind::WakeStorm, 3),
];

impl Kind {
    /// Its name in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::KillWorker => "kill -9 worker",
            Self::KillGateway => "kill -9 gateway",
            Self::KillUnheard => "kill -9 worker that hears the sandbox late",
            Self::Repeat => "NATS messages again",
            Self::FreezeWorker => "SIGSTOP worker beyond its lease",
            Self::PauseWorker => "SIGSTOP worker within its lease",
            Self::DrainWorker => "SIGTERM worker",
            Self::KillSandbox => "kill -9 sandbox",
            Self::FlushRedis => "Redis FLUSHALL",
            Self::KillRedis => "kill -9 Redis, empty restart",
            Self::FreezeRedis => "SIGSTOP Redis",
            Self::KillNats => "kill -9 NATS",
            Self::CrashPostgres => "Postgres immediate stop",
            Self::TerminateBackends => "pg_terminate_backend",
            Self::CutLink => "link cut",
            Self::SilentLink => "link half-open",
            Self::OneWayLink => "link loses one way",
            Self::SlowLink => "link slow",
            Self::LostCommit => "answer to COMMIT lost",
            Self::TornStream => "link to Postgres cut after N bytes",
            Self::LateCall => "late calls of a replaced worker",
            Self::LateNews => "late news of a replaced worker",
            Self::CutFront => "clients cut off a gateway",
            Self::SilentFront => "clients and gateway half-open",
            Self::WakeStorm => "wake storm",
        }
    }

    /// Makes the choices that a fault of this kind leaves open.
    pub fn choose(self, rng: &mut StdRng) -> Fault {
        let worker = rng.random_range(0..WORKERS);
        let gateway = rng.random_range(0..GATEWAYS);
        let pause = rng.random_range(100..2_000);
        let some = any_service(rng);
        // Postgres most: the truth is there.
        let server = if rng.random_bool(0.4) { Server::Postgres } else { one_of(&SERVERS, rng) };
        let way = if rng.random_bool(0.5) { Way::Up } else { Way::Down };
        match self {
            Self::KillWorker => Fault::Kill(Service::Worker(worker), pause),
            Self::KillGateway => Fault::Kill(Service::Gateway(gateway), pause),
            Self::KillUnheard => Fault::KillUnheard(worker, rng.random_range(300..900), pause),
            Self::Repeat => Fault::Repeat(rng.random_range(1_000..6_000)),
            Self::FreezeWorker => Fault::Freeze(worker, LEASE_TTL_MS + rng.random_range(1_000..=10_000)),
            Self::PauseWorker => Fault::Freeze(worker, rng.random_range(100..LEASE_TTL_MS - 1_000)),
            Self::DrainWorker => Fault::Drain(worker, pause),
            Self::KillSandbox => Fault::KillSandbox(pause),
            Self::FlushRedis => Fault::FlushRedis,
            Self::KillRedis => Fault::KillRedis(pause),
            Self::FreezeRedis => Fault::FreezeRedis(rng.random_range(1_000..8_000)),
            Self::KillNats => Fault::KillNats(pause),
            Self::CrashPostgres => Fault::CrashPostgres(pause / 4),
            Self::TerminateBackends => {
                let places = (0..rng.random_range(1..=8)).map(|_| rng.random_range(0..1_000));
                Fault::Terminate(places.collect())
            }
            Self::CutLink => {
                Fault::Cut(some, server, if rng.random_bool(0.7) { End::Reset } else { End::Finish })
            }
            Self::SilentLink => Fault::Link(some, server, Rules::half_open(), rng.random_range(500..9_000)),
            Self::OneWayLink => Fault::Link(some, server, Rules::one_way(way), rng.random_range(500..9_000)),
            Self::SlowLink => {
                let (delay, jitter) = (rng.random_range(5..150), rng.random_range(0..100));
                let ms = std::time::Duration::from_millis;
                Fault::Link(some, server, Rules::slow(ms(delay), ms(jitter)), rng.random_range(500..6_000))
            }
            Self::LostCommit => Fault::Trap(some, Trap::AnswerTo(b"COMMIT".to_vec())),
            Self::TornStream => Fault::Trap(some, Trap::AfterBytes(way, rng.random_range(0..4_000))),
            Self::LateCall => Fault::Late(worker, Server::Sandbox, beyond_the_lease(rng)),
            Self::LateNews => Fault::Late(worker, Server::Nats, beyond_the_lease(rng)),
            Self::CutFront => Fault::CutFront(gateway),
            Self::SilentFront => Fault::SilentFront(gateway, rng.random_range(500..8_000)),
            Self::WakeStorm => Fault::WakeStorm(rng.random_range(50..150)),
        }
    }
}

impl Fault {
    /// What it needs for itself while it lasts.
    pub fn targets(&self) -> Vec<Target> {
        match self {
            Self::Kill(service, _) => vec![Target::Process(*service)],
            Self::Freeze(worker, _) | Self::Drain(worker, _) => {
                vec![Target::Process(Service::Worker(*worker))]
            }
            Self::KillSandbox(_) => vec![Target::Sandbox],
            Self::FlushRedis | Self::KillRedis(_) | Self::FreezeRedis(_) => {
                vec![Target::Server(Server::Redis)]
            }
            Self::KillNats(_) => vec![Target::Server(Server::Nats)],
            Self::CrashPostgres(_) | Self::Terminate(_) => vec![Target::Server(Server::Postgres)],
            Self::Cut(service, server, _) | Self::Link(service, server, _, _) => {
                vec![Target::Link(*service, *server)]
            }
            Self::Trap(service, _) => vec![Target::Link(*service, Server::Postgres)],
            Self::KillUnheard(worker, _, _) => {
                let worker = Service::Worker(*worker);
                vec![Target::Process(worker), Target::Link(worker, Server::Sandbox)]
            }
            Self::Late(worker, server, _) => {
                let worker = Service::Worker(*worker);
                vec![Target::Process(worker), Target::Link(worker, *server)]
            }
            Self::CutFront(gateway) | Self::SilentFront(gateway, _) => vec![Target::Front(*gateway)],
            Self::WakeStorm(_) | Self::Repeat(_) => vec![],
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Process(service) => f.write_str(&service.name()),
            Self::Sandbox => f.write_str("sandbox"),
            Self::Server(server) => f.write_str(server.as_str()),
            Self::Link(service, server) => write!(f, "{}>{}", service.name(), server.as_str()),
            Self::Front(gateway) => write!(f, "clients>{}", Service::Gateway(*gateway).name()),
        }
    }
}

/// Long enough for a successor to be at work.
fn beyond_the_lease(rng: &mut StdRng) -> u64 {
    LEASE_TTL_MS + rng.random_range(2_500..6_000)
}

fn one_of<T: Copy>(all: &[T], rng: &mut StdRng) -> T {
    *all.choose(rng).expect("something to choose from")
}

/// Any gateway or worker.
fn any_service(rng: &mut StdRng) -> Service {
    one_of(&Service::all().collect::<Vec<_>>(), rng)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;

    #[test]
    fn the_same_seed_makes_the_same_choices() {
        let choose = |seed| {
            let mut rng = StdRng::seed_from_u64(seed);
            EVERYTHING.map(|(kind, _)| kind.choose(&mut rng))
        };
        assert_eq!(choose(5), choose(5));
        assert_ne!(choose(5), choose(6));
    }

    #[test]
    fn freezes_are_on_their_side_of_the_lease() {
        let mut rng = StdRng::seed_from_u64(1);
        for _ in 0..50 {
            assert!(matches!(Kind::FreezeWorker.choose(&mut rng), Fault::Freeze(_, ms) if ms > LEASE_TTL_MS));
            assert!(matches!(Kind::PauseWorker.choose(&mut rng), Fault::Freeze(_, ms) if ms < LEASE_TTL_MS));
        }
    }
}
