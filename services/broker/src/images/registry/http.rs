//! Requests to registries, their token services and the hosts of their blobs: repeated while there is hope, and read up to a bound.

use super::hosts::{HostError, Hosts, Route};
use crate::{
    body::{self, BodyError},
    cause::{causes, innermost},
    images::{error::ImageError, patience::Patience},
    outside::{client::OutsideClient, error::UpstreamError, proxy::UpstreamProxy},
};
use reqwest::{
    ClientBuilder, Response, StatusCode, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER},
};
use std::{sync::Arc, time::Duration};
use zeroize::Zeroizing;

/// Times that one request is sent. Beyond it: `registry_failed`, `registry_busy` or `registry_unreachable`.
const TRIES_MAX: u32 = 4;

/// The clients of this process.
#[derive(Debug)]
pub(crate) struct Http {
    pub(crate) hosts: Hosts,
    pub(crate) patience: Patience,
    tls: OutsideClient,
    plaintext: OutsideClient,
}

/// A request. It is a GET unless it has a form.
pub(crate) struct HttpRequest {
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) form: Option<Zeroizing<String>>,
    /// Time for the whole answer. `None`: only silence ends it.
    pub(crate) timeout: Option<Duration>,
}

/// The most that is read of an answer.
pub(crate) struct BodyBound<'a> {
    pub(crate) bytes: usize,
    /// What the answer is, for the error.
    pub(crate) subject: &'a str,
}

/// Why one try brought no answer.
enum Failure {
    /// The next one may.
    Transient(ImageError),
    /// No other will.
    Lasting(ImageError),
}

impl HttpRequest {
    pub(crate) fn get(url: Url) -> Self {
        Self { url, headers: HeaderMap::new(), form: None, timeout: None }
    }

    pub(crate) fn authorize(&mut self, authorization: Option<&HeaderValue>) {
        if let Some(value) = authorization {
            self.headers.insert(AUTHORIZATION, value.clone());
        }
    }
}

impl Http {
    /// # Errors
    /// The certificates of this system cannot be used.
    pub(crate) fn new(hosts: Hosts, patience: Patience) -> Result<Self, reqwest::Error> {
        // A layer must arrive as the registry stores it. Over HTTP/2, pulls from one host would share a connection, and callers that do not read would
        // hold up those of other tenants.
        let build = || chassis::http::builder().no_gzip().http1_only().read_timeout(patience.silence);
        let build_tls = || build().https_only(true).tls_certs_merge(hosts.authorities.iter().cloned());
        let upstream = hosts.upstream.as_deref();
        let tls = OutsideClient::new(upstream, build_tls, |builder: ClientBuilder| {
            builder.dns_resolver(Arc::new(hosts.clone()))
        })?;
        // The operator names the hosts without TLS, so no address of theirs is checked.
        let plaintext = OutsideClient::new(upstream, build, |builder| builder)?;
        Ok(Self { hosts, patience, tls, plaintext })
    }

    /// Sends a request until the host answers anything but "later".
    ///
    /// # Errors
    /// `Unreachable`, `Failed`, `Busy`.
    ///
    /// Dropped midway: the host may have seen the request.
    pub(crate) async fn send(&self, request: &HttpRequest) -> Result<Response, ImageError> {
        let (mut pause, mut tries) = (self.patience.first_pause, 1);
        loop {
            let (error, wait) = match self.try_once(request).await {
                Ok(response) => match later(&response) {
                    None => return Ok(response),
                    Some(error) => (error, retry_after(&response).unwrap_or(pause)),
                },
                Err(Failure::Transient(error)) => (error, pause),
                Err(Failure::Lasting(error)) => return Err(error),
            };
            if tries == TRIES_MAX || wait > self.patience.pause_max {
                return Err(error);
            }
            tracing::debug!(
                tries,
                error.code = error.code().as_str(),
                "a registry did not answer; trying again"
            );
            tokio::time::sleep(wait).await;
            (pause, tries) = (pause * 2, tries + 1);
        }
    }

    async fn try_once(&self, request: &HttpRequest) -> Result<Response, Failure> {
        let host = host_of(&request.url);
        let client = match self.hosts.route(&request.url) {
            Ok(Route::Tls) => &self.tls,
            Ok(Route::Plaintext) => &self.plaintext,
            Err(error) => {
                return Err(Failure::Lasting(ImageError::Unreachable { host, reason: error.to_string() }));
            }
        };
        let upstream = self.hosts.upstream_to(&request.url);
        let client = client.by(upstream);
        let mut builder = match &request.form {
            None => client.get(request.url.clone()),
            Some(form) => client
                .post(request.url.clone())
                .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
                .body(form.as_bytes().to_vec()),
        };
        if let Some(timeout) = request.timeout {
            builder = builder.timeout(timeout);
        }
        let response = match builder.headers(request.headers.clone()).send().await {
            Ok(response) => response,
            Err(error) => return Err(failure(host, &error, upstream)),
        };
        match upstream.and_then(|proxy| proxy.find_refusal(&response)) {
            Some(error) => Err(upstream_failure(host, &error)),
            None => Ok(response),
        }
    }
}

/// Reads an answer up to its bound.
///
/// # Errors
/// `TooLarge`, `Failed`.
pub(crate) async fn read(response: Response, bound: BodyBound<'_>) -> Result<Vec<u8>, ImageError> {
    let BodyBound { bytes, subject } = bound;
    let (host, mut body) = (host_of(response.url()), Vec::new());
    match body::read(response, bytes, &mut body).await {
        Ok(()) => Ok(body),
        Err(BodyError::TooLong) => {
            Err(ImageError::TooLarge(format!("{subject} is larger than {bytes} bytes")))
        }
        Err(BodyError::Broken(error)) => Err(cut(&host, &error)),
    }
}

/// The host of a URL for an error, with its port.
pub(crate) fn host_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// The error of an answer that broke off.
pub(crate) fn cut(host: &str, error: &reqwest::Error) -> ImageError {
    let reason = if error.is_timeout() {
        "it stopped in the middle of an answer".to_owned()
    } else {
        format!("its answer broke off: {}", innermost(error))
    };
    ImageError::Failed { host: host.to_owned(), reason }
}

/// The error of an answer that asks to come again. `None`: it says something.
fn later(response: &Response) -> Option<ImageError> {
    let (host, status) = (host_of(response.url()), response.status());
    match status {
        StatusCode::TOO_MANY_REQUESTS => {
            Some(ImageError::Busy(format!("{host} answers that there are too many requests (429)")))
        }
        status if status.is_server_error() => {
            Some(ImageError::Failed { host, reason: format!("it answered {}", status.as_u16()) })
        }
        _ => None,
    }
}

/// The pause that the host asks for, in its usual form: seconds.
fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// The failure of the upstream proxy on the way to a host. A proxy that refuses a login once refuses it always.
fn upstream_failure(host: String, error: &UpstreamError) -> Failure {
    let unreachable = ImageError::Unreachable { host, reason: error.to_string() };
    match error {
        UpstreamError::Login { .. } | UpstreamError::Silent { .. } => Failure::Lasting(unreachable),
        UpstreamError::Unreachable { .. } | UpstreamError::Refused { .. } => Failure::Transient(unreachable),
    }
}

fn failure(host: String, error: &reqwest::Error, upstream: Option<&UpstreamProxy>) -> Failure {
    if let Some(cause) = upstream.and_then(|proxy| proxy.explain(error)) {
        return upstream_failure(host, &cause);
    }
    if let Some(cause) = find_host_error(error) {
        let error = ImageError::Unreachable { host, reason: cause.to_string() };
        // Name servers drop some of many parallel questions.
        let is_transient = cause == HostError::Unresolved;
        return if is_transient { Failure::Transient(error) } else { Failure::Lasting(error) };
    }
    match (error.is_connect(), error.is_timeout()) {
        (true, true) => {
            Failure::Lasting(ImageError::Unreachable { host, reason: "no connection in time".to_owned() })
        }
        (true, false) => Failure::Transient(ImageError::Unreachable { host, reason: innermost(error) }),
        (false, true) => {
            Failure::Lasting(ImageError::Failed { host, reason: "it did not answer in time".to_owned() })
        }
        (false, false) => Failure::Transient(ImageError::Failed { host, reason: innermost(error) }),
    }
}

fn find_host_error(error: &reqwest::Error) -> Option<HostError> {
    causes(error).find_map(|cause| cause.downcast_ref::<HostError>()).copied()
}
