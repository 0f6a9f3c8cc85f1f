//! `PromptService`: the way in for work over gRPC.
// Continues in `intake`.

use super::{Service, from_prompt, session_id};
use crate::intake;
use rpc::v1::{self, prompt_service_server::PromptService};
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl PromptService for Service {
    async fn accept_prompt(
        &self,
        request: Request<v1::AcceptPromptRequest>,
    ) -> Result<Response<v1::AcceptPromptResponse>, Status> {
        let principal = self.0.principal(&request).await?;
        let request = request.into_inner();
        let session = session_id(&request.session_id)?;
        let asked = from_prompt::asked(request)?;
        let accepted = intake::accept(&self.0, &principal, &session, asked).await?;
        // A hint for people: the answer does not fail for it.
        let queue_position = self.0.store.get_queue_position(principal.tenant, &session).await.unwrap_or(0);
        Ok(Response::new(v1::AcceptPromptResponse {
            message_id: accepted.message_id.to_string(),
            inputs_ahead: accepted.inputs_ahead,
            queue_position,
            event_seq: accepted.events.first().map_or(0, |event| event.seq),
        }))
    }
}
