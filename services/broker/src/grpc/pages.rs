//! The call that reads a page.

use super::ids::door;
use crate::{
    egress::{
        doors::Doors,
        error::EgressError,
        pages::reader::{Page, PageRequest},
    },
    error::Error,
};
use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use rpc::v1::{self, read_page_response::Part};
use std::{pin::Pin, sync::Arc, time::Duration};
use tonic::Status;

/// The head of a page, and then its bytes.
pub(super) type PageResponses = Pin<Box<dyn Stream<Item = Result<v1::ReadPageResponse, Status>> + Send>>;

/// Begins the response at once: while a call has none, it takes one of the calls of its connection, and a page may take minutes.
pub(super) async fn read(
    doors: Option<Arc<Doors>>,
    request: v1::ReadPageRequest,
) -> Result<PageResponses, Error> {
    let v1::ReadPageRequest { tenant_id, session_id, url, timeout_ms } = request;
    let (doors, key) = (doors.ok_or(Error::NoDoors)?, door(&tenant_id, &session_id)?);
    let request = PageRequest { url, time: Duration::from_millis(timeout_ms.into()) };
    let page = stream::once(async move { doors.read_page(&key, &request).await });
    Ok(Box::pin(page.flat_map(parts).map(to_response)))
}

/// The parts of a page that was found.
fn parts(found: Result<Page, EgressError>) -> Pin<Box<dyn Stream<Item = Result<Part, EgressError>> + Send>> {
    let page = match found {
        Ok(page) => page,
        Err(error) => return Box::pin(stream::iter([Err(error)])),
    };
    let head = v1::PageHead { url: page.url.clone(), media_type: page.media_type.clone() };
    let pieces = page.into_bytes().flat_map(|read| stream::iter(cut(read.map_err(EgressError::from))));
    Box::pin(stream::iter([Ok(Part::Head(head))]).chain(pieces))
}

/// The pieces of what was read at once.
fn cut(read: Result<Bytes, EgressError>) -> Vec<Result<Part, EgressError>> {
    match read {
        Ok(bytes) => bytes.chunks(rpc::CHUNK_BYTES).map(|piece| Ok(Part::Data(piece.to_vec()))).collect(),
        Err(error) => vec![Err(error)],
    }
}

fn to_response(part: Result<Part, EgressError>) -> Result<v1::ReadPageResponse, Status> {
    part.map(|part| v1::ReadPageResponse { part: Some(part) }).map_err(|error| {
        tracing::debug!(error.code = error.code().as_str(), "ReadPage ended early");
        Error::from(error).to_status()
    })
}
