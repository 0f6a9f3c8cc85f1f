//! `PtyService`: terminals of sessions.

use crate::{
    app::terminals::{
        host::{TerminalHost, TerminalOutput},
        terminal::{Terminal, TerminalChange, TerminalItem, TerminalRequest, TerminalSize},
    },
    auth::principal::Principal,
    errors::{entity::Entity, error::Error, invalid::Invalid},
    grpc::{
        service::{Service, principal},
        status::{id, respond, to_status},
    },
    memory::bodies,
};
use domain::ids::pty::PtyId;
use rpc::v1::{self, attach_pty_response, pty_service_server::PtyService};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

/// Items that wait for a slow client, each with 32 KiB at most. The sandbox, not the gateway, drops output that the client does not read in
/// time.
const WAITING_MAX: usize = 1;

type Items = mpsc::Sender<Result<v1::AttachPtyResponse, Status>>;

#[tonic::async_trait]
impl PtyService for Service {
    type AttachPtyStream = ReceiverStream<Result<v1::AttachPtyResponse, Status>>;

    async fn create_pty(
        &self,
        request: Request<v1::CreatePtyRequest>,
    ) -> Result<Response<v1::CreatePtyResponse>, Status> {
        let principal = principal(&request)?;
        let v1::CreatePtyRequest { session_id, command, args, directory, env, title, size } =
            request.into_inner();
        let host = self.host_of_session(&principal, &session_id).await?;
        let request = TerminalRequest { command, args, directory, env, title, size: size.map(from_size) };
        respond(host.create(request).await, |created| v1::CreatePtyResponse { pty: Some(terminal(created)) })
    }

    async fn list_ptys(
        &self,
        request: Request<v1::ListPtysRequest>,
    ) -> Result<Response<v1::ListPtysResponse>, Status> {
        let principal = principal(&request)?;
        let host = self.host_of_session(&principal, &request.get_ref().session_id).await?;
        respond(host.list().await, |list| v1::ListPtysResponse {
            ptys: list.into_iter().map(terminal).collect(),
        })
    }

    async fn get_pty(
        &self,
        request: Request<v1::GetPtyRequest>,
    ) -> Result<Response<v1::GetPtyResponse>, Status> {
        let principal = principal(&request)?;
        let (host, id) = self.host_of_terminal(&principal, &request.get_ref().pty_id).await?;
        respond(host.get(&id).await, |found| v1::GetPtyResponse { pty: Some(terminal(found)) })
    }

    async fn update_pty(
        &self,
        request: Request<v1::UpdatePtyRequest>,
    ) -> Result<Response<v1::UpdatePtyResponse>, Status> {
        let principal = principal(&request)?;
        let v1::UpdatePtyRequest { pty_id, title, size } = request.into_inner();
        let (host, id) = self.host_of_terminal(&principal, &pty_id).await?;
        let change = TerminalChange { title, size: size.map(from_size) };
        respond(host.update(&id, change).await, |updated| v1::UpdatePtyResponse {
            pty: Some(terminal(updated)),
        })
    }

    async fn delete_pty(
        &self,
        request: Request<v1::DeletePtyRequest>,
    ) -> Result<Response<v1::DeletePtyResponse>, Status> {
        let principal = principal(&request)?;
        let (host, id) = self.host_of_terminal(&principal, &request.get_ref().pty_id).await?;
        respond(host.delete(&id).await, |()| v1::DeletePtyResponse {})
    }

    async fn attach_pty(
        &self,
        request: Request<Streaming<v1::AttachPtyRequest>>,
    ) -> Result<Response<Self::AttachPtyStream>, Status> {
        let principal = principal(&request)?;
        let mut input = request.into_inner();
        let first = tokio::time::timeout(bodies::SILENCE, input.message()).await;
        let first = first.unwrap_or_else(|_| Err(bodies::too_slow()))?.unwrap_or_default();
        let (host, id) = self.host_of_terminal(&principal, &first.pty_id).await?;
        let output = host.attach(&id, first.from_offset_bytes).await.map_err(to_status)?;
        if !first.data.is_empty() {
            host.write(&id, first.data).await.map_err(to_status)?;
        }
        let (items, receiver) = mpsc::channel(WAITING_MAX);
        let relay = Relay { host, id, shutdown: self.0.shutdown().clone(), items };
        self.0.tasks().spawn("terminal relay", async move {
            if let Err(status) = relay.run(output, input).await {
                drop(relay.items.send(Err(status)).await);
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

impl Service {
    async fn host_of_session(&self, principal: &Principal, session: &str) -> Result<TerminalHost, Status> {
        let session = id(session, Entity::Session)?;
        TerminalHost::of_session(&self.0, principal, &session).await.map_err(to_status)
    }

    async fn host_of_terminal(
        &self,
        principal: &Principal,
        terminal: &str,
    ) -> Result<(TerminalHost, PtyId), Status> {
        TerminalHost::of_terminal(&self.0, principal, terminal).await.map_err(to_status)
    }
}

/// A client's connection to a terminal.
struct Relay {
    host: TerminalHost,
    id: PtyId,
    shutdown: CancellationToken,
    items: Items,
}

impl Relay {
    /// Forwards input and output until the program ends, or either side disconnects.
    async fn run(
        &self,
        mut output: TerminalOutput,
        mut input: Streaming<v1::AttachPtyRequest>,
    ) -> Result<(), Status> {
        let mut is_typing = true;
        loop {
            tokio::select! {
                () = self.shutdown.cancelled() => return Err(to_status(Error::GatewayStopped)),
                () = self.items.closed() => return Ok(()),
                next = output.next() => {
                    let Some(next) = next.map_err(to_status)? else { return Ok(()) };
                    if self.items.send(Ok(v1::AttachPtyResponse { item: Some(item(next)) })).await.is_err() {
                        return Ok(());
                    }
                }
                typed = input.message(), if is_typing => match typed.map_err(with_code)? {
                    // The client sends no more input.
                    None => is_typing = false,
                    Some(typed) if !typed.pty_id.is_empty() => {
                        let message = "only the first message can name the terminal";
                        return Err(to_status(Invalid::TerminalNamedTwice.because(message)));
                    }
                    Some(typed) => self.host.write(&self.id, typed.data).await.map_err(to_status)?,
                },
            }
        }
    }
}

/// Adds the stable code to the status of a too large message that ends the stream. Before the stream begins, the router does so.
fn with_code(status: Status) -> Status {
    bodies::too_large(&status).unwrap_or(status)
}

fn from_size(size: v1::TerminalSize) -> TerminalSize {
    TerminalSize { rows: size.rows, columns: size.columns }
}

fn terminal(terminal: Terminal) -> v1::Terminal {
    let Terminal { id, title, command, args, directory, pid, exit_code } = terminal;
    v1::Terminal { id, title, command, args, directory, pid, exit_code }
}

fn item(item: TerminalItem) -> attach_pty_response::Item {
    use attach_pty_response::Item;
    match item {
        TerminalItem::Replay { from_offset_bytes, to_offset_bytes, lost_bytes } => {
            Item::Replay(v1::TerminalReplay { from_offset_bytes, to_offset_bytes, lost_bytes })
        }
        TerminalItem::Output { offset_bytes, data } => {
            Item::Output(v1::TerminalOutput { offset_bytes, data })
        }
        TerminalItem::Exit { code } => Item::Exit(v1::TerminalExit { code }),
    }
}
