//! Moves trace context (`traceparent`, `tracestate`) into and out of gRPC metadata.

use opentelemetry::propagation::{Extractor, Injector};
use tonic::metadata::{MetadataKey, MetadataMap, MetadataValue};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

struct Writer<'a>(&'a mut MetadataMap);

impl Injector for Writer<'_> {
    fn set(&mut self, key: &str, value: String) {
        if let (Ok(key), Ok(value)) =
            (MetadataKey::from_bytes(key.as_bytes()), MetadataValue::try_from(&value))
        {
            self.0.insert(key, value);
        }
    }
}

struct Reader<'a>(&'a http::HeaderMap);

impl Extractor for Reader<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}

/// Writes the current span's context into the metadata of an outgoing call.
pub fn inject(metadata: &mut MetadataMap) {
    let context = tracing::Span::current().context();
    opentelemetry::global::get_text_map_propagator(|p| p.inject_context(&context, &mut Writer(metadata)));
}

/// Makes the caller's span, if the headers name one, the parent of `span`. Call it before the span is entered.
pub fn adopt(span: &tracing::Span, headers: &http::HeaderMap) {
    let parent = opentelemetry::global::get_text_map_propagator(|p| p.extract(&Reader(headers)));
    // This fails only if the span has no OpenTelemetry layer, that is, if export is off.
    drop(span.set_parent(parent));
}

/// Returns the current span's `traceparent`, to be stored with durable work; `None` if tracing is off.
pub fn current_traceparent() -> Option<String> {
    let mut carrier = std::collections::HashMap::new();
    let context = tracing::Span::current().context();
    opentelemetry::global::get_text_map_propagator(|p| p.inject_context(&context, &mut carrier));
    carrier.remove("traceparent")
}

/// Makes the span that stored `traceparent` the parent of `span`. Call it before the span is entered.
pub fn adopt_traceparent(span: &tracing::Span, traceparent: Option<&str>) {
    let mut headers = http::HeaderMap::new();
    if let Some(value) = traceparent.and_then(|t| http::HeaderValue::from_str(t).ok()) {
        headers.insert("traceparent", value);
        adopt(span, &headers);
    }
}
