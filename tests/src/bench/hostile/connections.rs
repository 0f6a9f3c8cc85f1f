//! Attacks on the gateway: its memory, its connections, its queues.

use super::{http::Http, round::Round, sizes::Sizes};
use crate::api::{Api, code};
use base64::Engine as _;
use reqwest::Method;
use rpc::v1;
use serde_json::json;
use std::time::Duration;
use tokio::net::TcpStream;

/// The idempotency key of the session whose history the attacks enlarge.
const HEAVY: &str = "heavy";
/// Notes that are sent before a new heavy session would be needed.
const NOTES: usize = 260;
/// How long a subscriber does not read.
const SILENCE: Duration = Duration::from_secs(20);
/// Subscribers that do not read.
const SUBSCRIBERS: usize = 16;

/// The id of the heavy session, which the first caller creates.
async fn heavy(api: &Api) -> Result<String, String> {
    let request = v1::CreateSessionRequest {
        project_id: api.project_id.clone(),
        idempotency_key: HEAVY.to_owned(),
        ..Default::default()
    };
    let created = api.sessions().create_session(request).await.map_err(|status| code(&status))?;
    Ok(created.into_inner().session.unwrap_or_default().id)
}

/// Large files in notes, which no turn answers.
pub(super) async fn notes(api: Api, http: Http, sizes: Sizes) -> Round {
    let session = heavy(&api).await?;
    let data = base64::engine::general_purpose::STANDARD.encode(vec![b'x'; sizes.note_bytes * 3 / 4]);
    let file = json!({"type": "file", "mime": "text/plain", "filename": "a.txt", "url": format!("data:text/plain;base64,{data}")});
    let body = json!({"noReply": true, "parts": [{"type": "text", "text": "note"}, file]});
    for _ in 0..NOTES {
        let request = http.request(Method::POST, &format!("/session/{session}/message")).json(&body);
        Http::round(request).await?;
    }
    Ok(())
}

/// The largest pages of the heavy session.
pub(super) async fn lists(api: Api, http: Http) -> Round {
    let session = heavy(&api).await?;
    for path in ["message?limit=200", "message"] {
        Http::round(http.request(Method::GET, &format!("/session/{session}/{path}"))).await?;
    }
    Http::round(http.request(Method::GET, &format!("/api/session/{session}/context"))).await
}

/// Copies of the heavy session.
pub(super) async fn forks(api: Api) -> Round {
    let request = v1::ForkSessionRequest { session_id: heavy(&api).await?, ..Default::default() };
    api.sessions().fork_session(request).await.map(drop).map_err(|status| code(&status))
}

/// Subscribers from the beginning of everything that never read.
pub(super) async fn silent_subscribers(http: Http) -> Round {
    let mut streams = vec![];
    for _ in 0..SUBSCRIBERS {
        let request = http.request(Method::GET, "/global/event").header("Last-Event-ID", "t1.0");
        streams.push(request.timeout(SILENCE * 2).send().await.map_err(|_| "unreachable".to_owned())?);
    }
    tokio::time::sleep(SILENCE).await;
    drop(streams);
    Ok(())
}

/// Connections that never send anything.
pub(super) async fn idle(http: Http, sizes: Sizes) -> Round {
    let address = http.url.trim_start_matches("http://").to_owned();
    let mut connections = vec![];
    for _ in 0..sizes.idle_connections {
        connections.push(TcpStream::connect(&address).await.map_err(|_| "unreachable".to_owned())?);
    }
    tokio::time::sleep(SILENCE).await;
    drop(connections);
    Ok(())
}

pub(super) async fn wrong_keys(http: Http) -> Round {
    let request =
        reqwest::Client::new().get(format!("{}/session", http.url)).bearer_auth("flo_wrong_key_of_nobody");
    Http::round(request).await
}

/// Many sessions that wait for a slot.
pub(super) async fn backlog(api: Api, sizes: Sizes) -> Round {
    for _ in 0..sizes.backlog {
        let session = api.try_session(None).await.map_err(|status| code(&status))?.id;
        api.prompt(&session, "@delay 200\n@text slow").await.map_err(|status| code(&status))?;
    }
    tokio::time::sleep(SILENCE).await;
    Ok(())
}

/// Bundles that are not what their header says.
pub(super) async fn uploads(api: Api, sizes: Sizes) -> Round {
    let size_bytes = 16 << 20;
    let header = v1::BundleHeader { size_bytes, sha256: "0".repeat(64) };
    let piece = vec![0; sizes.note_bytes.min(1 << 20)];
    let pieces = usize::try_from(size_bytes).unwrap_or_default() / piece.len();
    let data = std::iter::repeat_n(v1::upload_bundle_request::Part::Data(piece), pieces);
    let parts = std::iter::once(v1::upload_bundle_request::Part::Header(header)).chain(data);
    let stream = tokio_stream::iter(parts.map(|part| v1::UploadBundleRequest { part: Some(part) }));
    match api.projects().upload_bundle(stream).await {
        // It ends as it must: the hash is wrong.
        Err(status) if code(&status) == "bundle_invalid" => Ok(()),
        answer => answer.map(drop).map_err(|status| code(&status)),
    }
}
