//! The faults that can be injected, chosen by the seed. `actions` performs them.

use crate::faults::cluster::{GATEWAYS, SERVERS, Server, Service, WORKERS};
use domain::limits::LEASE_TTL_MS;
use rand::{RngExt as _, rngs::StdRng, seq::IndexedRandom as _};
use testkit::proxy::link::{ConnectionEnd, Direction, Rules, Trap};

/// A fault with all of its choices made. Durations are milliseconds.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// A service dies and restarts after the pause.
    Kill(Service, u64),
    /// The sandbox's answers to a worker are delayed until the worker dies. Its effects remain, but the worker stored
    /// no result. It restarts after the pause.
    KillUnheard(usize, u64, u64),
    /// All NATS messages of a period are repeated, twice.
    Repeat(u64),
    /// A worker is frozen for a while and then continues.
    Freeze(usize, u64),
    /// A worker is drained, and restarts after the pause.
    Drain(usize, u64),
    /// The sandbox service dies with everything that runs in it.
    KillSandbox(u64),
    FlushRedis,
    /// Redis dies and comes back empty.
    KillRedis(u64),
    FreezeRedis(u64),
    KillNats(u64),
    /// Postgres stops at once, without a checkpoint, and recovers.
    CrashPostgres(u64),
    /// Postgres terminates the connections at these positions of its list.
    Terminate(Vec<usize>),
    /// A link closes its connections.
    Cut(Service, Server, ConnectionEnd),
    /// A link misbehaves for a while.
    Link(Service, Server, Rules, u64),
    /// A link to Postgres resets a connection at a moment that no timer could hit.
    Trap(Service, Trap),
    /// A link delays a worker's messages to a server until the worker was frozen and replaced.
    Late(usize, Server, u64),
    /// A link delays the statements of a worker's transactions until the worker was frozen and replaced.
    LateWrite(usize, u64),
    /// The link to a gateway closes the connections of its clients.
    CutFront(usize),
    /// Clients and a gateway cannot reach each other.
    SilentFront(usize, u64),
    /// All workers are repeatedly notified of work.
    WakeStorm(usize),
}

/// A part of the system that only one fault may use at a time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    Process(Service),
    Sandbox,
    Server(Server),
    Link(Service, Server),
    /// The link from clients to a gateway.
    Front(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    KillWorker,
    KillGateway,
    KillUnheard,
    Repeat,
    /// See [`Fault::Freeze`]; longer than the lease.
    FreezeWorker,
    /// See [`Fault::Freeze`]; shorter than the lease.
    PauseWorker,
    DrainWorker,
    KillSandbox,
    FlushRedis,
    KillRedis,
    FreezeRedis,
    KillNats,
    CrashPostgres,
    TerminateBackends,
    CutLink,
    /// See [`Fault::Link`]; both directions are silent.
    SilentLink,
    /// See [`Fault::Link`]; one direction loses all bytes.
    OneWayLink,
    /// See [`Fault::Link`]; all bytes are delayed.
    SlowLink,
    /// See [`Fault::Trap`]; the answer to a commit is lost.
    LostCommit,
    /// See [`Fault::Trap`]; at any byte of the stream.
    TornStream,
    /// See [`Fault::Late`]; calls to the sandbox.
    LateCall,
    LateWrite,
    /// See [`Fault::Late`]; messages to subscribers.
    LateNews,
    CutFront,
    SilentFront,
    WakeStorm,
}

/// Every kind of fault, with its weight.
pub const EVERYTHING: [(Kind, u32); 26] = [
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
    (Kind::LateWrite, 4),
    (Kind::LateNews, 3),
    (Kind::CutFront, 3),
    (Kind::SilentFront, 2),
    (Kind::WakeStorm, 3),
];

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::KillWorker => "kill -9 worker",
            Self::KillGateway => "kill -9 gateway",
            Self::KillUnheard => "kill -9 worker before it hears the sandbox",
            Self::Repeat => "NATS messages repeated",
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
            Self::OneWayLink => "link loses one direction",
            Self::SlowLink => "link slow",
            Self::LostCommit => "answer to COMMIT lost",
            Self::TornStream => "link to Postgres cut after N bytes",
            Self::LateCall => "late calls of a replaced worker",
            Self::LateWrite => "late writes of a replaced worker",
            Self::LateNews => "late messages of a replaced worker",
            Self::CutFront => "clients cut off a gateway",
            Self::SilentFront => "clients and gateway half-open",
            Self::WakeStorm => "wake storm",
        }
    }

    pub fn choose(self, rng: &mut StdRng) -> Fault {
        let worker = rng.random_range(0..WORKERS);
        let gateway = rng.random_range(0..GATEWAYS);
        let pause = rng.random_range(100..2_000);
        let some = any_service(rng);
        // Most often Postgres, because it holds the only truth.
        let server = if rng.random_bool(0.4) { Server::Postgres } else { one_of(&SERVERS, rng) };
        let direction = if rng.random_bool(0.5) { Direction::Up } else { Direction::Down };
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
                let positions = (0..rng.random_range(1..=8)).map(|_| rng.random_range(0..1_000));
                Fault::Terminate(positions.collect())
            }
            Self::CutLink => Fault::Cut(
                some,
                server,
                if rng.random_bool(0.7) { ConnectionEnd::Reset } else { ConnectionEnd::Finish },
            ),
            Self::SilentLink => Fault::Link(some, server, Rules::half_open(), rng.random_range(500..9_000)),
            Self::OneWayLink => {
                Fault::Link(some, server, Rules::one_way(direction), rng.random_range(500..9_000))
            }
            Self::SlowLink => {
                let (delay, jitter) = (rng.random_range(5..150), rng.random_range(0..100));
                let ms = std::time::Duration::from_millis;
                Fault::Link(some, server, Rules::slow(ms(delay), ms(jitter)), rng.random_range(500..6_000))
            }
            Self::LostCommit => Fault::Trap(some, Trap::AnswerTo(b"COMMIT".to_vec())),
            Self::TornStream => Fault::Trap(some, Trap::AfterBytes(direction, rng.random_range(0..4_000))),
            Self::LateCall => Fault::Late(worker, Server::Sandbox, beyond_the_lease(rng)),
            // Postgres ends a transaction that is idle for 10 s.
            Self::LateWrite => Fault::LateWrite(worker, LEASE_TTL_MS + rng.random_range(1_500..3_000)),
            Self::LateNews => Fault::Late(worker, Server::Nats, beyond_the_lease(rng)),
            Self::CutFront => Fault::CutFront(gateway),
            Self::SilentFront => Fault::SilentFront(gateway, rng.random_range(500..8_000)),
            Self::WakeStorm => Fault::WakeStorm(rng.random_range(50..150)),
        }
    }
}

impl Fault {
    /// Lists the targets that it locks.
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
            Self::LateWrite(worker, _) => {
                let worker = Service::Worker(*worker);
                vec![Target::Process(worker), Target::Link(worker, Server::Postgres)]
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

/// Chooses a time after which a successor runs the session.
fn beyond_the_lease(rng: &mut StdRng) -> u64 {
    LEASE_TTL_MS + rng.random_range(2_500..6_000)
}

fn one_of<T: Copy>(all: &[T], rng: &mut StdRng) -> T {
    *all.choose(rng).expect("something to choose from")
}

/// Chooses a gateway or worker.
fn any_service(rng: &mut StdRng) -> Service {
    one_of(&Service::all().collect::<Vec<_>>(), rng)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;

    #[test]
    fn a_seed_determines_the_choices() {
        let choose = |seed| {
            let mut rng = StdRng::seed_from_u64(seed);
            EVERYTHING.map(|(kind, _)| kind.choose(&mut rng))
        };
        assert_eq!(choose(5), choose(5));
        assert_ne!(choose(5), choose(6));
    }

    #[test]
    fn freezes_are_longer_and_pauses_shorter_than_the_lease() {
        let mut rng = StdRng::seed_from_u64(1);
        for _ in 0..50 {
            assert!(matches!(Kind::FreezeWorker.choose(&mut rng), Fault::Freeze(_, ms) if ms > LEASE_TTL_MS));
            assert!(matches!(Kind::PauseWorker.choose(&mut rng), Fault::Freeze(_, ms) if ms < LEASE_TTL_MS));
        }
    }
}
