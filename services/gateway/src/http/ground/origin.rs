//! The web pages that may call from a browser.

use axum::http::HeaderValue;

/// Whether a page is OpenCode's own, or is on the user's machine.
pub(in crate::http) fn is_known(origin: &HeaderValue) -> bool {
    let origin = origin.to_str().unwrap_or_default();
    let (scheme, rest) = origin.split_once("://").unwrap_or_default();
    let host = rest.split(':').next().unwrap_or_default();
    match scheme {
        "http" => ["localhost", "127.0.0.1", "tauri.localhost"].contains(&host),
        "https" => host == "tauri.localhost" || host.ends_with(".opencode.ai"),
        "tauri" => host == "localhost",
        "oc" => host == "renderer",
        _ => false,
    }
}
