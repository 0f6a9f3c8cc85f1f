//! The one command of a push: a branch is created, or moved forward from the commit that the broker saw there. No other command is ever written, and
//! none without the commit from which the branch must move, so nothing is forced, deleted or tagged.

use super::{
    exchange::Upload,
    packet::{FLUSH, Packet, PacketReader, line},
    report::{self, Report},
    server::Server,
};
use crate::{
    egress::git::{file_pieces::pieces, request::Action, servers::GitBody, upload_body::UploadBody},
    push::{error::PushError, request::ObjectId},
};
use bytes::Bytes;
use domain::egress::push::branch::BranchName;
use futures::{StreamExt as _, stream};
use std::path::Path;
use tokio::{fs::File, io};

/// Bytes of the first line of a server's references, with all that it can do. Beyond it: `push_unreachable`.
const CAPABILITIES_BYTES_MAX: u64 = 512 * 1024;
/// Bytes of the answer to a push: what hooks print. Beyond it: `push_unreachable`.
const REPORT_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// What a server can do with pushes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::push) struct Capabilities(Vec<String>);

/// The move of a branch.
#[derive(Debug)]
pub(in crate::push) struct Move<'a> {
    pub(in crate::push) branch: &'a BranchName,
    /// The commit at which the branch must be; `None`: there must be no such branch.
    pub(in crate::push) old: Option<&'a ObjectId>,
    pub(in crate::push) new: &'a ObjectId,
    /// The objects that the server may lack.
    pub(in crate::push) pack: &'a Path,
}

impl Capabilities {
    pub(in crate::push) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|word| word == name)
    }
}

impl Server<'_> {
    /// Asks what the server can do with pushes. It refuses a credential that may not push here, before anything is sent.
    ///
    /// # Errors
    /// `Unauthorized`, `NotFound`, `Unreachable`.
    pub(in crate::push) async fn capabilities(&self) -> Result<Capabilities, PushError> {
        let answer = self.ask(Action::PushRefs, String::new().into()).await?;
        let mut packets = PacketReader::new(answer, CAPABILITIES_BYTES_MAX, self.host());
        loop {
            let Packet::Line(bytes) = packets.expect().await? else { continue };
            if bytes.starts_with(b"#") {
                continue;
            }
            let words = bytes.split(|byte| *byte == 0).nth(1).unwrap_or_default();
            let words = String::from_utf8_lossy(words);
            let capabilities = Capabilities(words.split_whitespace().map(ToOwned::to_owned).collect());
            // The other references do not matter here. Dropping the answer ends it.
            return if capabilities.has("report-status") {
                Ok(capabilities)
            } else {
                Err(packets.broken("says that it does not report what becomes of a push"))
            };
        }
    }

    /// Sends the objects and the command.
    ///
    /// # Errors
    /// `Unauthorized`, `NotFound`; `Unreachable`: the branch was moved or not.
    pub(in crate::push) async fn push(
        &self,
        command: &Move<'_>,
        capabilities: &Capabilities,
    ) -> Result<Report, PushError> {
        let Move { branch, old, new, pack } = *command;
        let reference = branch.reference();
        let old = old.map_or_else(|| new.nothing(), ToString::to_string);
        let mut wanted = "report-status".to_owned();
        for name in ["side-band-64k", "quiet"].into_iter().filter(|name| capabilities.has(name)) {
            wanted += &format!(" {name}");
        }
        let format = format!("object-format={}", new.format());
        if capabilities.has(&format) {
            wanted += &format!(" {format}");
        }
        let head = line(&format!("{old} {new} {reference}\0 {wanted} agent=flotilla")) + FLUSH;
        let failed = |error: io::Error| PushError::failed("read a pack", &error);
        let file = File::open(pack).await.map_err(failed)?;
        let bytes = head.len() as u64 + file.metadata().await.map_err(failed)?.len();
        let body = UploadBody::new(stream::once(async { Ok(Bytes::from(head)) }).chain(pieces(file)));
        let answer = self.ask(Action::Push, Upload { body: GitBody::Upload(body), bytes }).await?;
        let packets = PacketReader::new(answer, REPORT_BYTES_MAX, self.host());
        report::read(packets, &reference, capabilities.has("side-band-64k")).await
    }
}
