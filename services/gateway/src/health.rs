//! Reports whether the gateway can work. It needs Postgres with a schema that fits. Without Redis and NATS it is slower; without the sandbox and the broker
//! it cannot show and push files.

use crate::state::State;
use rpc::v1;
use std::time::Duration;
use store::schema::NewerSchema;
use tonic::{Code, Status};
use tonic_health::{ServingStatus, server::HealthReporter};

/// Poll interval.
const POLL: Duration = Duration::from_secs(2);
/// Time that the sandbox and the broker have for an answer.
const ANSWER: Duration = Duration::from_secs(2);

#[derive(Clone)]
pub(crate) struct Watch {
    pub(crate) state: State,
    pub(crate) service: chassis::Service,
    /// What it does with a newer schema until it has found one that fits. A newer version may migrate the database while this gateway runs, and it goes on until it
    /// is replaced.
    pub(crate) newer: NewerSchema,
    pub(crate) reporter: HealthReporter,
}

impl Watch {
    /// Polls until the gateway stops, and then reports that it does not serve.
    pub(crate) async fn run(self) {
        let Self { state, service, mut newer, reporter } = self;
        let health = &service.health;
        while !service.shutdown.is_cancelled() {
            let postgres = state.store.ping().await;
            let schema = match &postgres {
                Ok(()) => schema(&state, newer).await,
                Err(_) => Err("Postgres does not answer".to_owned()),
            };
            let can_work = postgres.is_ok() && schema.is_ok();
            if can_work {
                newer = NewerSchema::Accept;
            }
            health.set("postgres", postgres.map_err(text));
            health.set("schema", schema);
            let status = if can_work { ServingStatus::Serving } else { ServingStatus::NotServing };
            reporter.set_service_status("", status).await;
            let (redis, nats) = (state.bus.ping_redis().await, state.bus.ping_nats());
            let up = |is_up: bool| if is_up { 1.0 } else { 0.0 };
            metrics::gauge!("flotilla_redis_up").set(up(redis.is_ok()));
            metrics::gauge!("flotilla_nats_up").set(up(nats.is_ok()));
            health.set_optional("redis", redis.map_err(text));
            health.set_optional("nats", nats.map_err(text));
            let (sandbox, broker) = tokio::join!(sandbox(&state), broker(&state));
            health.set_optional("sandbox", sandbox);
            if let Some(broker) = broker {
                health.set_optional("broker", broker);
            }
            service.shutdown.run_until_cancelled(tokio::time::sleep(POLL)).await;
        }
        reporter.set_service_status("", ServingStatus::NotServing).await;
    }
}

async fn schema(state: &State, newer: NewerSchema) -> Result<(), String> {
    match state.store.find_schema_problem(newer).await {
        Ok(None) => Ok(()),
        Ok(Some(problem)) => Err(problem.to_string()),
        Err(error) => Err(text(error)),
    }
}

async fn sandbox(state: &State) -> Result<(), String> {
    let answer = state.sandbox.files().get_isolation(v1::GetIsolationRequest {});
    reached(tokio::time::timeout(ANSWER, answer).await.map(|answer| answer.err()))
}

/// `None`: the gateway has no broker.
async fn broker(state: &State) -> Option<Result<(), String>> {
    let ping = state.broker.ping()?;
    Some(reached(tokio::time::timeout(ANSWER, ping).await))
}

/// What an answer says about a service. Each refusal shows that it is there, and knows our token, but for these.
fn reached(refusal: Result<Option<Status>, tokio::time::error::Elapsed>) -> Result<(), String> {
    match refusal {
        Err(_) => Err(format!("no answer within {} s", ANSWER.as_secs())),
        Ok(Some(status))
            if matches!(
                status.code(),
                Code::Unavailable | Code::Unauthenticated | Code::PermissionDenied
            ) =>
        {
            Err(status.message().to_owned())
        }
        Ok(_) => Ok(()),
    }
}

/// An error with its causes.
fn text<E: std::error::Error + Send + Sync + 'static>(error: E) -> String {
    format!("{:#}", anyhow::Error::new(error))
}
