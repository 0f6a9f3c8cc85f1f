//! `MessageService`: the messages of a session in their newest state.

use super::{
    convert,
    service::{Service, principal},
    status::{id, to_status},
};
use crate::{app::history::messages, errors::entity::Entity, memory::taken_room::TakenRoom};
use rpc::v1::{self, message_service_server::MessageService};
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl MessageService for Service {
    async fn list_messages(
        &self,
        request: Request<v1::ListMessagesRequest>,
    ) -> Result<Response<v1::ListMessagesResponse>, Status> {
        let principal = principal(&request)?;
        let taken = TakenRoom::of(request.extensions());
        self.0.take_page_room(&principal, &taken).await.map_err(to_status)?;
        let request = request.into_inner();
        let session = id(&request.session_id, Entity::Session)?;
        let page = convert::page(request.page);
        let list = messages::list_stored(&self.0, &principal, &session, page).await.map_err(to_status)?;
        Ok(Response::new(v1::ListMessagesResponse {
            messages: list.entries.iter().map(convert::message).collect::<Result<_, _>>()?,
            next_cursor: list.next.unwrap_or_default(),
        }))
    }

    async fn get_message(
        &self,
        request: Request<v1::GetMessageRequest>,
    ) -> Result<Response<v1::GetMessageResponse>, Status> {
        let principal = principal(&request)?;
        let taken = TakenRoom::of(request.extensions());
        self.0.take_page_room(&principal, &taken).await.map_err(to_status)?;
        let request = request.into_inner();
        let session = id(&request.session_id, Entity::Session)?;
        let message = id(&request.message_id, Entity::Message)?;
        let entry = messages::get_stored(&self.0, &principal, &session, &message).await.map_err(to_status)?;
        Ok(Response::new(v1::GetMessageResponse { message: Some(convert::message(&entry)?) }))
    }
}
