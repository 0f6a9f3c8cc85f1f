//! `TerminalService`: terminals. Requests are checked here.

use super::{
    exec,
    server::{ResponseStream, Server},
};
use crate::{
    error::Error,
    exec::variables::environment,
    programs::terminal_start::{self, Program},
    terminal::{attach, limits::READER_PIECES_MAX, pty},
    tree::meta::DIRECTORY,
};
use domain::limits;
use rpc::v1::{self, ErrorCode, terminal_service_server::TerminalService};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

/// The default command.
const SHELL: &str = "/bin/bash";
/// The terminal type that every current emulator supports.
const TERM: &str = "xterm-256color";
/// The default size.
const SIZE: v1::TerminalSize = v1::TerminalSize { rows: 24, columns: 80 };
/// Characters of an id that tell the terminals of one session apart, for people.
const ID_TAIL_CHARS: usize = 4;

#[tonic::async_trait]
impl TerminalService for Server {
    type AttachTerminalStream = ResponseStream<v1::AttachTerminalResponse>;

    async fn create_terminal(
        &self,
        request: Request<v1::CreateTerminalRequest>,
    ) -> Result<Response<v1::CreateTerminalResponse>, Status> {
        let (call, message) = self.begin("create_terminal", request)?;
        let caller = call.caller.clone();
        call.run(async move {
            let meta = caller.root.workspace().await?;
            let program = program(message, &caller.session.shared.doors.variables(), &meta.env)?;
            let (terminal, created) = terminal_start::run(&caller, program, &meta).await?;
            Ok(v1::CreateTerminalResponse { terminal: Some(terminal.info()), created })
        })
        .await
    }

    async fn list_terminals(
        &self,
        request: Request<v1::ListTerminalsRequest>,
    ) -> Result<Response<v1::ListTerminalsResponse>, Status> {
        let (call, _) = self.begin("list_terminals", request)?;
        let session = Arc::clone(&call.caller.session);
        call.run(async move { Ok(v1::ListTerminalsResponse { terminals: session.terminals.list().await }) })
            .await
    }

    async fn get_terminal(
        &self,
        request: Request<v1::GetTerminalRequest>,
    ) -> Result<Response<v1::GetTerminalResponse>, Status> {
        let (call, message) = self.begin("get_terminal", request)?;
        let session = Arc::clone(&call.caller.session);
        call.run(async move {
            let terminal = session.terminals.get(&message.terminal_id).await?;
            Ok(v1::GetTerminalResponse { terminal: Some(terminal.info()) })
        })
        .await
    }

    async fn update_terminal(
        &self,
        request: Request<v1::UpdateTerminalRequest>,
    ) -> Result<Response<v1::UpdateTerminalResponse>, Status> {
        let (call, message) = self.begin("update_terminal", request)?;
        let session = Arc::clone(&call.caller.session);
        call.run(async move {
            check_title(&message.title)?;
            let terminal = session.terminals.get(&message.terminal_id).await?;
            terminal.update(message.title, message.size).await?;
            Ok(v1::UpdateTerminalResponse { terminal: Some(terminal.info()) })
        })
        .await
    }

    async fn write_terminal(
        &self,
        request: Request<v1::WriteTerminalRequest>,
    ) -> Result<Response<v1::WriteTerminalResponse>, Status> {
        let (call, message) = self.begin("write_terminal", request)?;
        let session = Arc::clone(&call.caller.session);
        call.run(async move {
            let terminal = session.terminals.get(&message.terminal_id).await?;
            terminal.type_in(message.data).await.map(|()| v1::WriteTerminalResponse {})
        })
        .await
    }

    async fn attach_terminal(
        &self,
        request: Request<v1::AttachTerminalRequest>,
    ) -> Result<Response<Self::AttachTerminalStream>, Status> {
        let (call, message) = self.begin("attach_terminal", request)?;
        let session = Arc::clone(&call.caller.session);
        call.run(async move {
            let terminal = session.terminals.get_for_reader(&message.terminal_id).await?;
            let (to, answers) = mpsc::channel(READER_PIECES_MAX);
            session.shared.tasks.spawn("terminal reader", attach::run(terminal, message, to));
            Ok(Box::pin(ReceiverStream::new(answers)) as Self::AttachTerminalStream)
        })
        .await
    }

    async fn delete_terminal(
        &self,
        request: Request<v1::DeleteTerminalRequest>,
    ) -> Result<Response<v1::DeleteTerminalResponse>, Status> {
        let (call, message) = self.begin("delete_terminal", request)?;
        let session = Arc::clone(&call.caller.session);
        call.run(async move {
            session.terminals.remove(&message.terminal_id).await?.end().await;
            Ok(v1::DeleteTerminalResponse {})
        })
        .await
    }
}

/// The program that a caller asks for, with defaults filled in.
fn program(
    message: v1::CreateTerminalRequest,
    network: &[(&str, &str)],
    image: &[String],
) -> Result<Program, Error> {
    let invalid = |text: &str| Err(Error::refused(ErrorCode::ArgumentInvalid, text));
    let v1::CreateTerminalRequest { terminal_id: id, command, args, directory, env, title, size, .. } =
        message;
    if id.is_empty() || id.len() > limits::EXEC_ID_BYTES_MAX {
        return invalid("terminal_id must have between 1 and 128 bytes");
    }
    if command.len() + args.iter().map(String::len).sum::<usize>() > limits::EXEC_COMMAND_BYTES_MAX {
        return invalid("the command is too long");
    }
    exec::check_environment(&env)?;
    check_title(&title)?;
    let size = size.unwrap_or(SIZE);
    pty::check_size(&size)?;
    let command = if command.is_empty() { SHELL.to_owned() } else { command };
    let is_shell = command.ends_with("sh");
    // A login shell would replace the PATH of an image.
    let is_login = args.is_empty() && is_shell && image.is_empty();
    let args = if is_login { vec!["-l".to_owned()] } else { args };
    let directory = if directory.is_empty() { DIRECTORY.to_owned() } else { directory };
    let title = if title.is_empty() { format!("Terminal {}", tail(&id)) } else { title };
    let info = v1::Terminal { id, title, command, args, directory, pid: 0, exit_code: None };
    Ok(Program { info, env: environment(env, TERM, network, image), size })
}

fn check_title(title: &str) -> Result<(), Error> {
    if title.len() > limits::NAME_BYTES_MAX {
        let text = format!("the title is too long; the limit is {} bytes", limits::NAME_BYTES_MAX);
        return Err(Error::refused(ErrorCode::ArgumentInvalid, text));
    }
    Ok(())
}

fn tail(id: &str) -> String {
    let skipped = id.chars().count().saturating_sub(ID_TAIL_CHARS);
    id.chars().skip(skipped).collect()
}
