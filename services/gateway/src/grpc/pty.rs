//! `PtyService`: terminals of sessions.

use super::{Service, session_id};
use crate::{bodies, pty::Place, state::State};
use domain::ids::{TenantId, pty::PtyId};
use rpc::{
    status::invalid,
    v1::{self, attach_pty_response, attach_terminal_response::Item, pty_service_server::PtyService},
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

/// Answers that wait for a slow client; what it does not take in time the sandbox forgets, not we.
const WAITING_MAX: usize = 8;

type Answers = mpsc::Sender<Result<v1::AttachPtyResponse, Status>>;

#[tonic::async_trait]
impl PtyService for Service {
    type AttachPtyStream = ReceiverStream<Result<v1::AttachPtyResponse, Status>>;

    async fn create_pty(
        &self,
        request: Request<v1::CreatePtyRequest>,
    ) -> Result<Response<v1::CreatePtyResponse>, Status> {
        let tenant = self.0.principal(&request).await?.tenant;
        let request = request.into_inner();
        let place = Place::of(&self.0, tenant, &session_id(&request.session_id)?).await?;
        let pty = Some(place.create(request).await?);
        Ok(Response::new(v1::CreatePtyResponse { pty }))
    }

    async fn list_ptys(
        &self,
        request: Request<v1::ListPtysRequest>,
    ) -> Result<Response<v1::ListPtysResponse>, Status> {
        let tenant = self.0.principal(&request).await?.tenant;
        let place = Place::of(&self.0, tenant, &session_id(&request.get_ref().session_id)?).await?;
        Ok(Response::new(v1::ListPtysResponse { ptys: place.list().await? }))
    }

    async fn get_pty(
        &self,
        request: Request<v1::GetPtyRequest>,
    ) -> Result<Response<v1::GetPtyResponse>, Status> {
        let tenant = self.0.principal(&request).await?.tenant;
        let (place, id) = Place::of_pty(&self.0, tenant, &request.get_ref().pty_id).await?;
        Ok(Response::new(v1::GetPtyResponse { pty: Some(place.get(&id).await?) }))
    }

    async fn update_pty(
        &self,
        request: Request<v1::UpdatePtyRequest>,
    ) -> Result<Response<v1::UpdatePtyResponse>, Status> {
        let tenant = self.0.principal(&request).await?.tenant;
        let request = request.into_inner();
        let (place, id) = Place::of_pty(&self.0, tenant, &request.pty_id).await?;
        let pty = Some(place.update(&id, request.title, request.size).await?);
        Ok(Response::new(v1::UpdatePtyResponse { pty }))
    }

    async fn delete_pty(
        &self,
        request: Request<v1::DeletePtyRequest>,
    ) -> Result<Response<v1::DeletePtyResponse>, Status> {
        let tenant = self.0.principal(&request).await?.tenant;
        let (place, id) = Place::of_pty(&self.0, tenant, &request.get_ref().pty_id).await?;
        place.delete(&id).await?;
        Ok(Response::new(v1::DeletePtyResponse {}))
    }

    async fn attach_pty(
        &self,
        request: Request<Streaming<v1::AttachPtyRequest>>,
    ) -> Result<Response<Self::AttachPtyStream>, Status> {
        let tenant = self.0.principal(&request).await?.tenant;
        let mut asked = request.into_inner();
        let first = tokio::time::timeout(bodies::SILENCE, asked.message()).await;
        let first = first.unwrap_or_else(|_| Err(bodies::too_slow()))?.unwrap_or_default();
        let typist = Typist::of(&self.0, tenant, &first.pty_id).await?;
        let items = typist.place.attach(&typist.id, first.from_offset_bytes).await?;
        if !first.data.is_empty() {
            typist.place.write(&typist.id, first.data).await?;
        }
        let (answers, receiver) = mpsc::channel(WAITING_MAX);
        tokio::spawn(async move {
            if let Err(status) = typist.relay(items, asked, &answers).await {
                drop(answers.send(Err(status)).await);
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

/// Somebody at a terminal.
struct Typist {
    place: Place,
    id: PtyId,
    shutdown: tokio_util::sync::CancellationToken,
}

impl Typist {
    async fn of(state: &State, tenant: TenantId, pty: &str) -> Result<Self, Status> {
        let (place, id) = Place::of_pty(state, tenant, pty).await?;
        Ok(Self { place, id, shutdown: state.shutdown.clone() })
    }

    /// Passes on what is said and typed until the program ends, or either side leaves.
    async fn relay(
        &self,
        mut items: Streaming<v1::AttachTerminalResponse>,
        mut asked: Streaming<v1::AttachPtyRequest>,
        answers: &Answers,
    ) -> Result<(), Status> {
        let mut is_typing = true;
        loop {
            tokio::select! {
                () = self.shutdown.cancelled() => {
                    return Err(rpc::status::unavailable("gateway_stopped", "the gateway stops; attach again"));
                }
                () = answers.closed() => return Ok(()),
                item = items.message() => {
                    let Some(item) = item?.and_then(|response| response.item) else { return Ok(()) };
                    let item = match item {
                        Item::Replay(replay) => attach_pty_response::Item::Replay(replay),
                        Item::Output(output) => attach_pty_response::Item::Output(output),
                        Item::Exit(exit) => attach_pty_response::Item::Exit(exit),
                    };
                    if answers.send(Ok(v1::AttachPtyResponse { item: Some(item) })).await.is_err() {
                        return Ok(());
                    }
                }
                typed = asked.message(), if is_typing => match typed? {
                    // Whoever only listens has said all that it will.
                    None => is_typing = false,
                    Some(typed) if !typed.pty_id.is_empty() => {
                        return Err(invalid("pty_named_twice", "only the first message names the terminal"));
                    }
                    Some(typed) => self.place.write(&self.id, typed.data).await?,
                },
            }
        }
    }
}
