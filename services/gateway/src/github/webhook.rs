//! `POST /webhooks/github`: what GitHub tells is checked, stored and answered. Nothing is done about it here.
// Continues in `inbox`, which processes what is stored.

use super::payload;
use crate::{
    app::{
        forge::deliveries::{self, ReceivedDelivery},
        gateway::Gateway,
    },
    errors::{code_header::CODE, error::Error},
    memory::{bodies, taken_room::TakenRoom},
};
use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode},
    response::{IntoResponse as _, Response},
    routing::post,
};
use domain::limits::DELIVERY_BYTES_MAX;
use futures::StreamExt as _;
use rpc::v1::{ErrorCode, ErrorKind};

/// Characters of the id of a delivery and of the name of an event.
const NAME_CHARS_MAX: usize = 100;
/// Bytes of a too large body that are read and dropped: GitHub sends no more.
const DROPPED_BYTES_MAX: usize = 25 * 1024 * 1024;

/// A refusal: its code, its status, and a sentence for the person who reads GitHub's list of deliveries.
struct WebhookRefusal {
    code: String,
    status: StatusCode,
    message: String,
}

/// The route.
pub(crate) fn router(gateway: &Gateway) -> Router {
    Router::new().route("/webhooks/github", post(receive)).with_state(gateway.clone())
}

async fn receive(State(gateway): State<Gateway>, request: Request) -> Response {
    match store(&gateway, request).await {
        Ok(()) => (StatusCode::ACCEPTED, "accepted\n").into_response(),
        Err(WebhookRefusal { code, status, message }) => {
            let mut response = (status, format!("{message} ({code})\n")).into_response();
            response.headers_mut().extend(HeaderValue::from_str(&code).ok().map(|code| (CODE, code)));
            response
        }
    }
}

async fn store(gateway: &Gateway, request: Request) -> Result<(), WebhookRefusal> {
    let taken = TakenRoom::of(request.extensions());
    let headers = request.headers().clone();
    let guid = name(&headers, "x-github-delivery")?;
    let event = name(&headers, "x-github-event")?;
    let signature = text(&headers, "x-hub-signature-256").unwrap_or_default().to_owned();
    let body = read(gateway, request, &taken).await?;
    // Whoever sends something else than JSON is not GitHub, or its webhook has another content type.
    let subject = payload::subject(&body).map_err(|error| WebhookRefusal {
        code: ErrorCode::DeliveryInvalid.as_str().to_owned(),
        status: StatusCode::BAD_REQUEST,
        message: format!(
            "the delivery is no JSON of a webhook, whose content type is application/json: {error}"
        ),
    })?;
    let (installation, thread) = (subject.installation, subject.thread);
    let delivery = ReceivedDelivery { guid, event, signature, installation, thread, body: body.to_vec() };
    deliveries::receive(gateway, delivery).await.map_err(WebhookRefusal::from)
}

/// Reads the body within its limits of size and time, and with room for it.
async fn read(gateway: &Gateway, request: Request, taken: &TakenRoom) -> Result<Bytes, WebhookRefusal> {
    let announced = text(request.headers(), "content-length").and_then(|length| length.parse::<usize>().ok());
    let too_large = || WebhookRefusal {
        code: ErrorCode::BodyTooLarge.as_str().to_owned(),
        status: StatusCode::PAYLOAD_TOO_LARGE,
        message: format!("the delivery is larger than {DELIVERY_BYTES_MAX} bytes"),
    };
    let bytes = announced.unwrap_or(DELIVERY_BYTES_MAX);
    let body = bodies::with_deadline(request).into_body();
    if bytes > DELIVERY_BYTES_MAX {
        drop_body(body).await;
        return Err(too_large());
    }
    gateway.take_body_room(None, bytes, taken).await?;
    // It is too large, or too slow, or the connection broke, whose sender reads no answer.
    axum::body::to_bytes(body, DELIVERY_BYTES_MAX).await.map_err(|_| too_large())
}

/// Reads a too large body and drops it: GitHub reads the answer only after it has sent everything.
async fn drop_body(body: Body) {
    let (mut pieces, mut bytes) = (body.into_data_stream(), 0);
    while let Some(Ok(piece)) = pieces.next().await {
        bytes += piece.len();
        if bytes > DROPPED_BYTES_MAX {
            return;
        }
    }
}

/// The text of a header that names something.
fn name(headers: &HeaderMap, header: &str) -> Result<String, WebhookRefusal> {
    let is_name = |text: &&str| {
        !text.is_empty()
            && text.len() <= NAME_CHARS_MAX
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
    };
    text(headers, header).filter(is_name).map(ToOwned::to_owned).ok_or_else(|| WebhookRefusal {
        code: ErrorCode::DeliveryInvalid.as_str().to_owned(),
        status: StatusCode::BAD_REQUEST,
        message: format!("the header {header} is missing or malformed"),
    })
}

fn text<'a>(headers: &'a HeaderMap, header: &str) -> Option<&'a str> {
    headers.get(header)?.to_str().ok()
}

impl From<Error> for WebhookRefusal {
    fn from(error: Error) -> Self {
        let status = match error.kind() {
            ErrorKind::Unauthenticated => StatusCode::UNAUTHORIZED,
            ErrorKind::Busy | ErrorKind::Exhausted => StatusCode::TOO_MANY_REQUESTS,
            // GitHub shows the delivery as failed, and it is asked for again.
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self { code: error.code().to_owned(), status, message: error.to_string() }
    }
}
