//! One request of a client of Git LFS and its answer.

use super::{
    batch::{LfsLogin, LfsQuestion},
    object::ObjectRead,
    request::{self, LfsRequest},
};
use crate::egress::{
    git::{
        exchange::{ExchangeContext, OpenedRepository, download},
        refusal::GitRefusal,
    },
    journal::JournalRecord,
};
use domain::egress::{
    git::GitAddress,
    lfs::{
        batch::{LFS_DOWNLOAD, LFS_TYPE, LfsBatch, LfsBatchAnswer, LfsObjectError, LfsPlace, LfsResult},
        pointer::LfsPointer,
    },
};
use hyper::{
    Request, Response,
    body::{Body as _, Incoming},
    header::{CONTENT_TYPE, HeaderValue},
};
use reqwest::Body;
use std::{future::poll_fn, pin::Pin};

/// Bytes of a message that names objects: a hundred of them take some 11,000. Beyond it: `git_request_too_large`.
const BATCH_BYTES_MAX: u64 = 64 * 1024;
/// Characters of a sentence of a server that a client gets.
const MESSAGE_CHARS: usize = 200;

/// Answers one request. The rest of an object follows while the client reads it.
pub(in crate::egress::git) async fn answer(
    context: ExchangeContext,
    asked: Result<LfsRequest, GitRefusal>,
    request: Request<Incoming>,
) -> Response<Body> {
    let ExchangeContext { key, relay, journal, .. } = &context;
    let mut record = JournalRecord::begin(key, journal, relay, GitRefusal::Interrupted.code());
    let result = match asked {
        Ok(LfsRequest::Batch(repository)) => {
            batch(&context, &repository, request.into_body(), &mut record).await
        }
        Ok(LfsRequest::Object { repository, pointer }) => {
            match object(&context, &repository, pointer, &mut record).await {
                Ok(answer) => return stream(answer, record),
                Err(refusal) => Err(refusal),
            }
        }
        Err(refusal) => Err(refusal),
    };
    match result {
        Ok(text) => {
            record.code = None;
            typed(Body::from(text), LFS_TYPE)
        }
        Err(refusal) => {
            record.code = Some(refusal.code());
            refusal.to_response()
        }
    }
}

fn stream(answer: reqwest::Response, record: JournalRecord) -> Response<Body> {
    typed(download(answer, record), "application/octet-stream")
}

fn typed(body: Body, content_type: &'static str) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Asks the server for a batch, and puts links to the door in place of those of the server.
async fn batch(
    context: &ExchangeContext,
    repository: &GitAddress,
    body: Incoming,
    record: &mut JournalRecord,
) -> Result<String, GitRefusal> {
    let opened = context.open_lfs(repository, record).await?;
    let text = read(body).await?;
    let batch = LfsBatch::parse(&text).ok_or(GitRefusal::Request)?;
    if batch.operation != LFS_DOWNLOAD {
        return Err(GitRefusal::Push);
    }
    let pointers = batch.pointers().ok_or(GitRefusal::Request)?;
    let question = question(context, repository, opened.as_ref(), &pointers);
    let results = question.ask(&context.servers).await?;
    let shown =
        pointers.iter().zip(results).map(|(pointer, result)| (pointer, show(repository, pointer, result)));
    let answer = LfsBatchAnswer::new(shown).to_text();
    let bytes = (text.len() + answer.len()) as u64;
    context.relay.note(bytes).map_err(|_| GitRefusal::Quota)?;
    Ok(answer)
}

/// What the server of an opened repository is asked about objects.
fn question<'a>(
    context: &ExchangeContext,
    repository: &'a GitAddress,
    opened: Option<&'a OpenedRepository>,
    pointers: &'a [LfsPointer],
) -> LfsQuestion<'a> {
    let login = opened.map(|OpenedRepository { secret, authorization }| LfsLogin { secret, authorization });
    LfsQuestion { tenant: context.key.tenant, repository, login, pointers }
}

/// What a client gets to know about an object: nothing of what opens it.
fn show(repository: &GitAddress, pointer: &LfsPointer, result: LfsResult) -> LfsResult {
    match result {
        Ok(_) => Ok(LfsPlace {
            href: request::link(repository, pointer),
            is_authenticated: true,
            ..LfsPlace::default()
        }),
        Err(LfsObjectError { code, message }) => {
            let letters = message.chars().filter(|letter| !letter.is_control());
            Err(LfsObjectError { code, message: letters.take(MESSAGE_CHARS).collect() })
        }
    }
}

async fn read(mut body: Incoming) -> Result<Vec<u8>, GitRefusal> {
    let mut text = vec![];
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let frame = frame.map_err(|_| GitRefusal::Interrupted)?;
        let piece = frame.into_data().unwrap_or_default();
        if (text.len() + piece.len()) as u64 > BATCH_BYTES_MAX {
            return Err(GitRefusal::TooLarge(BATCH_BYTES_MAX));
        }
        text.extend_from_slice(&piece);
    }
    Ok(text)
}

/// Asks for one object, and begins to read it.
async fn object(
    context: &ExchangeContext,
    repository: &GitAddress,
    pointer: LfsPointer,
    record: &mut JournalRecord,
) -> Result<reqwest::Response, GitRefusal> {
    let opened = context.open_lfs(repository, record).await?;
    let pointers = [pointer];
    let question = question(context, repository, opened.as_ref(), &pointers);
    let host = repository.authority();
    let place = match question.ask(&context.servers).await?.pop() {
        Some(Ok(place)) => place,
        Some(Err(error)) if !error.is_missing() => {
            let reason = format!("gives no object of Git LFS ({})", error.code);
            return Err(GitRefusal::Failed { host, reason });
        }
        Some(Err(_)) | None => return Err(GitRefusal::LfsMissing(host)),
    };
    let read = ObjectRead { question: &question, access: &context.access, place };
    let (host, answer) = read.open(&context.servers).await?;
    record.host = host;
    Ok(answer)
}
