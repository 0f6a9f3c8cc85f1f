//! `EventService`: what happens, live and resumable.
// Continues in `events`, for a session, and in `feed::subscriber`.

use super::{Service, from_store, id, session_id};
use crate::{
    events::{self, From, Wish},
    feed::subscriber,
};
use rpc::{
    status::invalid,
    v1::{self, event_service_server::EventService},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl EventService for Service {
    type SubscribeAllStream = ReceiverStream<Result<v1::SubscribeAllResponse, Status>>;
    type SubscribeStream = ReceiverStream<Result<v1::SubscribeResponse, Status>>;

    async fn subscribe(
        &self,
        request: Request<v1::SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let principal = self.0.principal(&request).await?;
        let request = request.into_inner();
        if request.tail_only && !request.cursor.is_empty() {
            return Err(invalid("cursor_invalid", "a stream begins at a cursor or at its tail, not both"));
        }
        let wish = Wish {
            tenant: principal.tenant,
            session: session_id(&request.session_id)?,
            from: if request.tail_only { From::Now } else { events::parse_cursor(&request.cursor)? },
            until_idle_after: request.until_idle.then_some(request.idle_after_seq),
        };
        let answers = events::subscribe(&self.0, wish).await?;
        Ok(Response::new(ReceiverStream::new(answers)))
    }

    async fn subscribe_all(
        &self,
        request: Request<v1::SubscribeAllRequest>,
    ) -> Result<Response<Self::SubscribeAllStream>, Status> {
        let principal = self.0.principal(&request).await?;
        let (tenant, reader, request) = (principal.tenant, principal.name, request.into_inner());
        let since = subscriber::parse_cursor(&request.cursor)?;
        let project = match request.project_id.as_str() {
            "" => None,
            text => {
                let project = id(text, "project_not_found", "project")?;
                Some(self.0.store.get_project(tenant, &project).await.map_err(from_store)?.id)
            }
        };
        let wish = subscriber::Wish { tenant, reader, project, since };
        let answers = subscriber::subscribe(&self.0, wish).await?;
        Ok(Response::new(ReceiverStream::new(answers)))
    }
}
