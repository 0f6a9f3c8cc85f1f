//! `PromptService`: prompts over gRPC.
// Continues in app::prompts::accept.

use super::{
    convert_prompt,
    service::{Service, principal},
    status::{id, respond},
};
use crate::{app::prompts::accept, errors::entity::Entity};
use rpc::v1::{self, prompt_service_server::PromptService};
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl PromptService for Service {
    async fn accept_prompt(
        &self,
        request: Request<v1::AcceptPromptRequest>,
    ) -> Result<Response<v1::AcceptPromptResponse>, Status> {
        let principal = principal(&request)?;
        let request = request.into_inner();
        let session = id(&request.session_id, Entity::Session)?;
        let prompt = convert_prompt::prompt(request)?;
        let accepted = accept::accept(&self.0, &principal, &session, prompt).await;
        respond(accepted, |receipt| v1::AcceptPromptResponse {
            message_id: receipt.message_id.to_string(),
            inputs_ahead: receipt.inputs_ahead,
            queue_position: receipt.queue_position,
            event_seq: receipt.event_seq,
        })
    }
}
