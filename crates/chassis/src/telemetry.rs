//! Logs to stderr, and traces to an OpenTelemetry collector if one is configured. The admin port serves metrics.

use crate::error::Error;
use clap::ValueEnum;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::{Resource, propagation::TraceContextPropagator, trace::SdkTracerProvider};
use std::{io::IsTerminal as _, time::Duration};
use tracing_subscriber::{
    EnvFilter, Layer, Registry, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

/// Longest wait for the last spans at the end of the process: a dead collector must not block it.
const FLUSH: Duration = Duration::from_secs(1);
/// Excludes the exporter's own transport from the export, which would otherwise feed itself.
const EXPORT_OFF: &str = "h2=off,hyper=off,tonic=off,tower=off,opentelemetry=off";

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people: one line per event, coloured on a terminal.
    Pretty,
    /// For machines: one JSON object per line.
    Json,
}

/// The target of the lines of audit. A filter of logs must not drop them.
pub const AUDIT: &str = "audit";
/// Silences a notice that requires no action: Postgres reports for each migration run that its table already exists.
const QUIET: &str = "sqlx::postgres::notice=warn";

/// Logs and traces of one process.
#[derive(Debug, Clone, clap::Args)]
pub struct TelemetryConfig {
    /// Format of log lines.
    #[arg(long, env = "FLOTILLA_LOG_FORMAT", value_enum, default_value = "pretty", value_name = "FORMAT")]
    pub log_format: LogFormat,
    /// Log filter: a level, or directives such as `info,worker=debug`.
    #[arg(long, env = "FLOTILLA_LOG", default_value = "info", value_name = "FILTER")]
    pub log_filter: String,
    /// OTLP gRPC endpoint for traces, such as `http://127.0.0.1:4317`. Without it, traces are not exported.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL")]
    pub otlp_endpoint: Option<String>,
}

/// The running telemetry; shut it down to send the last spans.
#[derive(Debug)]
pub struct Telemetry {
    provider: Option<SdkTracerProvider>,
}

impl Telemetry {
    /// Sends the remaining spans, for at most 1 s.
    pub async fn shutdown(self) {
        let Some(provider) = self.provider else { return };
        let flushed = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(FLUSH));
        match tokio::time::timeout(FLUSH, flushed).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::warn!("the last spans were not sent: {error}"),
            Ok(Err(_)) | Err(_) => tracing::warn!("the last spans were not sent in time"),
        }
    }
}

/// Starts logs and, with an endpoint, the export of traces, under the name `service_name`. Call it inside a runtime.
///
/// The W3C propagator is always set: a process without export still passes the trace on.
/// If the process already has a subscriber (tests), that one stays.
///
/// # Errors
/// `Filter` and `Export`.
pub fn start(service_name: &'static str, config: &TelemetryConfig) -> Result<Telemetry, Error> {
    opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
    let filter = parse_filter(&config.log_filter)?;
    let mut layers = vec![log_layer(config.log_format).with_filter(filter).boxed()];
    let provider = config.otlp_endpoint.as_deref().filter(|endpoint| !endpoint.is_empty());
    let provider = provider.map(|endpoint| tracer_provider(service_name, endpoint)).transpose()?;
    if let Some(provider) = &provider {
        let filter = parse_filter(&format!("{},{EXPORT_OFF}", config.log_filter))?;
        let tracer = provider.tracer("flotilla");
        layers.push(tracing_opentelemetry::layer().with_tracer(tracer).with_filter(filter).boxed());
        opentelemetry::global::set_tracer_provider(provider.clone());
    }
    if tracing_subscriber::registry().with(layers).try_init().is_ok() {
        std::panic::set_hook(Box::new(log_panic));
    }
    Ok(Telemetry { provider })
}

fn parse_filter(filter: &str) -> Result<EnvFilter, Error> {
    // The default comes first: the operator's directives override it.
    EnvFilter::try_new(format!("{QUIET},{filter}"))
        .map_err(|source| Error::Filter { filter: filter.to_owned(), source })
}

fn log_layer(format: LogFormat) -> Box<dyn Layer<Registry> + Send + Sync> {
    let layer = fmt::layer().with_writer(std::io::stderr);
    match format {
        LogFormat::Pretty => layer.compact().with_ansi(std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => {
            layer.json().flatten_event(true).with_current_span(false).with_span_list(true).boxed()
        }
    }
}

fn tracer_provider(service_name: &'static str, endpoint: &str) -> Result<SdkTracerProvider, Error> {
    let exporter = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .build()
        .map_err(|source| Error::Export { endpoint: endpoint.to_owned(), source })?;
    let resource = Resource::builder().with_service_name(service_name).build();
    Ok(SdkTracerProvider::builder().with_resource(resource).with_batch_exporter(exporter).build())
}

/// Counts and logs panics, whichever task or thread they end: JSON logs stay JSON, and a query can find the location.
fn log_panic(info: &std::panic::PanicHookInfo<'_>) {
    metrics::counter!("flotilla_panics_total").increment(1);
    let payload = info.payload();
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    tracing::error!(panic.location = %place, "panic at {place}: {}", text.unwrap_or("no text"));
}
