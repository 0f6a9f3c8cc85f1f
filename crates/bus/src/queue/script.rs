//! The scripts of the ready queue. Each begins with the numbers from `domain::limits` and the shared functions.

use domain::{limits, session::Class};
use redis::Script;
use std::sync::LazyLock;

macro_rules! script {
    ($name:ident, $file:literal) => {
        pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(&[&numbers(), include_str!("common.lua"), include_str!($file)].concat())
        });
    };
}

script!(ENQUEUE, "enqueue.lua");
script!(CLAIM, "claim.lua");
script!(RENEW, "renew.lua");
script!(RELEASE, "release.lua");
script!(REAP, "reap.lua");
script!(ADOPT, "adopt.lua");
script!(YIELDS, "yields.lua");
script!(OUTLOOK, "outlook.lua");
script!(FORGET, "forget.lua");

fn numbers() -> String {
    let weights = Class::ALL.map(|class| class.weight().to_string()).join(", ");
    format!(
        "local CAP_DEFAULT, WEIGHT_DEFAULT, CLASS_WEIGHTS = {}, {}, {{ {weights} }}\n\
         local QUANTUM_MS, DEBT_MAX_MS, TENANT_IDLE_MS, SMOOTHING = {}, {}, {}, {}\n\
         local LEASE_TTL_MS = {}\n",
        limits::TENANT_RUNNING_MAX,
        limits::TENANT_WEIGHT_DEFAULT,
        limits::QUEUE_QUANTUM_MS,
        limits::QUEUE_DEBT_MAX_MS,
        limits::QUEUE_TENANT_IDLE_MS,
        limits::QUEUE_INTERVAL_SMOOTHING,
        limits::LEASE_TTL_MS,
    )
}
