//! Common parts of all event streams.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

/// The header with which a client resumes a stream.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// The type of a stream.
pub(in crate::http) const EVENT_STREAM: [(HeaderName, HeaderValue); 1] =
    [(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"))];
/// Headers of a stream: proxies must not buffer or change it.
pub(in crate::http) const UNBUFFERED: [(HeaderName, HeaderValue); 3] = [
    (header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform")),
    (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
];

/// The id of the last event that a client received.
pub(in crate::http) fn last_event_id(headers: &HeaderMap) -> Option<&str> {
    headers.get(LAST_EVENT_ID)?.to_str().ok()
}
