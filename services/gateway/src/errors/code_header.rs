//! The header that names the stable code of a refusal over HTTP.

use axum::http::HeaderName;

pub(crate) const CODE: HeaderName = HeaderName::from_static("x-flotilla-code");
