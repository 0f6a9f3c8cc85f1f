//! The one port: gRPC with reflection and health, gRPC-Web, and OpenCode's HTTP API. Further protocols are registered
//! here.
// Continues in grpc::prompt, for a prompt.

mod access;
mod large_bodies;
mod live_streams;
mod port_refusals;

use crate::{
    app::gateway::Gateway,
    auth::client,
    errors::error::Error,
    github::webhook,
    grpc::{service::Service, status::to_status},
    http::{contract::unsupported, routes},
    memory::{bodies, room},
};
use axum::{
    Router,
    extract::{Request, State},
    middleware::{Next, from_fn_with_state},
    response::Response,
};
use chassis::{network::Network, port};
use rpc::v1::{
    admin_service_server::AdminServiceServer, audit_service_server::AuditServiceServer,
    environment_service_server::EnvironmentServiceServer, event_service_server::EventServiceServer,
    github_service_server::GithubServiceServer, message_service_server::MessageServiceServer,
    permission_service_server::PermissionServiceServer, project_service_server::ProjectServiceServer,
    prompt_service_server::PromptServiceServer, pty_service_server::PtyServiceServer,
    question_service_server::QuestionServiceServer, secret_service_server::SecretServiceServer,
    session_service_server::SessionServiceServer, settings_service_server::SettingsServiceServer,
    tenant_service_server::TenantServiceServer,
};
use std::time::{Duration, Instant};
use tonic::{Code, Status, service::Routes};
use tonic_health::pb::health_server::{Health, HealthServer};
use tower_http::catch_panic::CatchPanicLayer;
use tracing::Instrument as _;

/// Bytes of one message about a project: a piece of a bundle of 1 MiB, and its envelope. Beyond it: `body_too_large`.
const PROJECT_MESSAGE_BYTES_MAX: usize = 1025 * 1024;
/// Bytes of one message about a terminal: the longest command with the largest environment. A client types at most 64 KiB in one message. The 16 readers of a
/// terminal hold 5 MiB at most. Beyond it: `body_too_large`.
const PTY_MESSAGE_BYTES_MAX: usize = 320 * 1024;

/// Builds everything that the port serves. `proxies` are the networks of trusted balancers.
///
/// # Errors
/// If the descriptors of the services cannot be read.
pub(crate) fn port<H: Health>(
    gateway: &Gateway,
    health: HealthServer<H>,
    proxies: Vec<Network>,
) -> anyhow::Result<port::Routes> {
    Ok(port_refusals::with_refusals(router(gateway, health)?.layer(client::layer(proxies))))
}

fn router<H: Health>(gateway: &Gateway, health: HealthServer<H>) -> anyhow::Result<Router> {
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(rpc::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()?;
    let (service, methods) = (|| Service(gateway.clone()), access::Methods::new(gateway)?);
    let grpc = Routes::new(health)
        .add_service(reflection)
        .add_service(SessionServiceServer::new(service()))
        .add_service(PromptServiceServer::new(service()).max_decoding_message_size(rpc::MESSAGE_BYTES_MAX))
        .add_service(MessageServiceServer::new(service()))
        .add_service(EventServiceServer::new(service()))
        .add_service(PermissionServiceServer::new(service()))
        .add_service(QuestionServiceServer::new(service()))
        .add_service(
            ProjectServiceServer::new(service()).max_decoding_message_size(PROJECT_MESSAGE_BYTES_MAX),
        )
        .add_service(PtyServiceServer::new(service()).max_decoding_message_size(PTY_MESSAGE_BYTES_MAX))
        .add_service(SettingsServiceServer::new(service()))
        .add_service(SecretServiceServer::new(service()))
        .add_service(EnvironmentServiceServer::new(service()))
        .add_service(TenantServiceServer::new(service()))
        .add_service(AuditServiceServer::new(service()))
        .add_service(GithubServiceServer::new(service()))
        .add_service(AdminServiceServer::new(service()))
        .into_axum_router()
        .reset_fallback()
        // Inside the layer of gRPC-Web, which hides the status of an error of the body.
        .route_layer(from_fn_with_state(gateway.clone(), with_room))
        .route_layer(from_fn_with_state(methods.clone(), access::check))
        .route_layer(tonic_web::GrpcWebLayer::new())
        .route_layer(from_fn_with_state(gateway.clone(), of_known_page))
        .route_layer(axum::middleware::from_fn(traced))
        .route_layer(from_fn_with_state(methods, measured));
    Ok(Router::new()
        .fallback(unsupported::not_found)
        .merge(grpc)
        .merge(routes::router(gateway))
        .merge(webhook::router(gateway))
        .layer(from_fn_with_state(gateway.clone(), live_streams::end_with_key))
        .layer(from_fn_with_state(gateway.room(), room::keep_until_answered))
        .layer(CatchPanicLayer::new()))
}

/// Refuses calls of web pages of other sites.
async fn of_known_page(State(gateway): State<Gateway>, request: Request, next: Next) -> Response {
    if gateway.origins().is_foreign(request.uri(), request.headers()) {
        return to_status(Error::OriginForbidden).into_http();
    }
    next.run(request).await
}

/// Bounds the memory of the body. Adds the stable code to the refusal of a too large message.
async fn with_room(State(gateway): State<Gateway>, request: Request, next: Next) -> Response {
    let response = next.run(large_bodies::with_room(gateway, request)).await;
    let refused = Status::from_header_map(response.headers()).and_then(|status| bodies::too_large(&status));
    refused.map_or(response, Status::into_http)
}

/// Counts the calls of each method by their code, and measures how long they take. A stream has the code and the time of its beginning.
async fn measured(State(methods): State<access::Methods>, request: Request, next: Next) -> Response {
    let method = methods.name(request.uri().path());
    let begun = Instant::now();
    let response = next.run(request).await;
    let code = Status::from_header_map(response.headers()).map_or(Code::Ok, |status| status.code());
    let code = format!("{code:?}");
    metrics::counter!("flotilla_rpcs_total", "method" => method.clone(), "code" => code).increment(1);
    metrics::histogram!("flotilla_rpc_ms", "method" => method)
        .record(begun.elapsed().as_secs_f64() * 1_000.0);
    response
}

/// Joins the caller's trace, and enforces the caller's deadline and the time limit of the body.
async fn traced(request: Request, next: Next) -> Response {
    let span = tracing::info_span!(
        "rpc",
        otel.kind = "server",
        rpc.system = "grpc",
        rpc.method = request.uri().path()
    );
    rpc::trace::adopt(&span, request.headers());
    let deadline = request.headers().get("grpc-timeout").and_then(|value| timeout(value.to_str().ok()?));
    let answer = next.run(bodies::with_deadline(request)).instrument(span);
    match deadline {
        None => answer.await,
        Some(deadline) => match tokio::time::timeout(deadline, answer).await {
            Ok(response) => response,
            Err(_) => Status::deadline_exceeded("the call exceeded its deadline").into_http(),
        },
    }
}

/// Reads `grpc-timeout`: at most eight digits and a unit.
fn timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let count: u64 = digits.parse().ok().filter(|_| digits.len() <= 8)?;
    match unit {
        "H" => Some(Duration::from_secs(count * 3600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_read() {
        assert_eq!(timeout("20m"), Some(Duration::from_millis(20)));
        assert_eq!(timeout("1H"), Some(Duration::from_secs(3600)));
        for text in ["", "S", "123456789S", "5x", "é"] {
            assert_eq!(timeout(text), None, "{text}");
        }
    }
}
