//! The guidance of a repository: the instructions and skills that the sandbox finds in the files, and the configuration
//! that was kept when the workspace was opened.

use crate::{error::Error, session::caller::Caller, workspace::configuration};
use rpc::v1::{self, ErrorCode};
use sandbox_wire::v1::{reply, request};
use std::mem::take;

/// Reads the guidance for the caller.
pub(super) async fn read(
    caller: &Caller,
    mut message: v1::ReadGuidanceRequest,
) -> Result<v1::ReadGuidanceResponse, Error> {
    let meta = caller.root.workspace().await?;
    let wants_configuration =
        !message.only_levels && take(&mut message.known_base_commit) != meta.base_commit;
    let sandbox = caller.enter().await?;
    let reply = sandbox.sandbox().call(request::Body::ReadGuidance(message)).await?;
    let reply::Body::ReadGuidance(mut response) = reply else {
        return Err(Error::refused(ErrorCode::Internal, "the sandbox sent a reply of the wrong kind"));
    };
    if wants_configuration {
        let configuration = configuration::read(&caller.root, &meta).await?;
        response.configuration = configuration.files;
        response.left_out.extend(configuration.left_out);
        response.too_large.extend(configuration.too_large);
    }
    response.base_commit = meta.base_commit;
    Ok(response)
}
