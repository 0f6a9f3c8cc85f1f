//! The page for a person who opens the address of the gateway in a browser. It is the same for everyone and holds no secret, so it needs no key.

use axum::{http::header, response::IntoResponse};

/// The media type of the page.
pub(in crate::http) const PAGE: &str = "text/html; charset=utf-8";

/// The page loads nothing, runs nothing and is shown in no frame.
const POLICY: &str = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HTML: &str = "<!doctype html>
<html lang=\"en\">
<head><meta charset=\"utf-8\"><title>Flotilla</title></head>
<body>
<h1>Flotilla</h1>
<p>This server runs coding agents. Attach to it with an API key of your tenant. URL is the address of this page.</p>
<h2>Command line</h2>
<pre>flotilla login URL
flotilla project create my-project --repo .
flotilla run --project my-project \"fix the tests\"</pre>
<h2>OpenCode</h2>
<pre>opencode attach URL --dir my-project -p KEY
opencode run --attach URL --dir my-project -p KEY \"fix the tests\"</pre>
<p>In OpenCode's web or desktop app: Settings, Servers, Add server, with this URL and the key as the password.</p>
<h2>API</h2>
<p><a href=\"/doc\">/doc</a> describes every HTTP route (OpenAPI 3.1). A browser asks for a user name, which may be any, and a password, which is the key.</p>
</body>
</html>
";

pub(in crate::http) async fn page() -> impl IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, PAGE),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    (headers, HTML)
}
