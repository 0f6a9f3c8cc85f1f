//! The protocol between gateways, workers, Postgres, Redis and the sandbox as one small transition system, explored
//! exhaustively within small bounds and by seeded random walks within larger ones.
//!
//! Each server is a struct with explicit state. Each transaction or script is one function of it. Each process is a state
//! machine that performs one such step at a time. Between two steps any other step may happen, and so may a fault. An
//! observer sees what the servers accepted and checks the safety properties. In addition, the system must be able to settle
//! from every reachable state without a further fault. In a finite system this means: whatever happened, a fair scheduler
//! settles it.
//!
//! Why a separate explorer: the crate for this purpose, `stateright`, checks safety well, but its documentation says that
//! `eventually` overlooks paths that end in a cycle, and retries, sweeps and renewals form cycles. The property "the system
//! can settle from every state" needs a backward search over the whole graph, which the crate does not keep. Both searches
//! together are a hundred lines without a dependency. States are identified by a 64-bit hash: the chance that two of a
//! million states collide is one in 30 million.
//!
//! The loops of workers decide by `domain::turn::state::State`, the machine of the real worker, on the stored state of this model.
//!
//! Covered: acceptance with lost answers, claims, takeovers, the fence with write numbers, parking against new inputs,
//! handovers, stray holds, sweeps, the emptied queue and its refill from an old read, timers, execs and their fence, children
//! and their answers, aborts of a tree, suspects and quarantine, slots and caps. One test runs the same random operations
//! against this Postgres and the real store, and another against this queue and the real scripts, so that the results hold
//! for them as well.
//!
//! Not covered: the effects of the worker and of the gateway (crash tests run them), fairness between tenants (see the tests of
//! the queue), the delivery of events and deltas to clients (see the tests of the feed), time (a lease may expire at any
//! moment, and no worker stops itself: the worst case), several concurrent rebuilds, a Postgres that loses committed data,
//! and the moment between the sandbox's check of the epoch and the effect, which is one step here.

pub mod action;
pub mod explore;
pub mod observer;
pub mod postgres;
pub mod queue;
pub mod rules;
pub mod sandbox;
pub mod scenario;
mod steps;
pub mod system;
pub mod walk;
pub mod worker;
