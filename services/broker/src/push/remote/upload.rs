//! What a push reads of the repository: its references, the files of the base commit, and the commits of earlier pushes.

use super::{
    packet::{DELIMITER, FLUSH, Packet, PacketReader, line},
    server::Server,
};
use crate::{
    egress::git::request::Action,
    push::{
        directories::PushDirectory,
        error::{PushError, plain},
        request::ObjectId,
    },
};
use domain::egress::push::branch::BranchName;
use tokio::io::AsyncWriteExt as _;

/// Bytes of the references that may begin like the branch of a push. Beyond it: `push_unreachable`.
const REFERENCES_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Bytes of the files of the base commit, packed by the server. Beyond it: `push_unreachable`.
const FETCH_BYTES_MAX: u64 = 2 * 1024 * 1024 * 1024;

/// The references that a push needs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::push) struct References {
    /// What `HEAD` names: `refs/heads/main`.
    pub(in crate::push) default: Option<String>,
    /// The commit of the branch; `None`: there is no such branch.
    pub(in crate::push) tip: Option<ObjectId>,
}

/// Objects that a push reads.
#[derive(Debug, Clone, Copy)]
pub(in crate::push) enum Fetch<'a> {
    /// A commit without its history, and its files.
    Base(&'a ObjectId),
    /// What a commit has more than a base that has no history here.
    Since { tip: &'a ObjectId, base: &'a ObjectId },
}

impl Server<'_> {
    /// Reads the references.
    ///
    /// # Errors
    /// `Unauthorized`, `NotFound`, `Unreachable`.
    pub(in crate::push) async fn references(
        &self,
        branch: &BranchName,
        base: &ObjectId,
    ) -> Result<References, PushError> {
        let reference = branch.reference();
        let mut body = self.command("ls-refs", base);
        for argument in ["symrefs", "ref-prefix HEAD", &format!("ref-prefix {reference}")] {
            body += &line(&format!("{argument}\n"));
        }
        body += FLUSH;
        let answer = self.ask(Action::Pack, body.into()).await?;
        let mut packets = PacketReader::new(answer, REFERENCES_BYTES_MAX, self.host());
        let mut references = References::default();
        loop {
            let packet = packets.expect().await?;
            let Packet::Line(bytes) = packet else { return Ok(references) };
            let text = String::from_utf8_lossy(&bytes);
            let mut words = text.trim_end().split(' ');
            let (id, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            if name == "HEAD" {
                let target = words.find_map(|word| word.strip_prefix("symref-target:"));
                references.default = target.map(ToOwned::to_owned);
            } else if name == reference {
                let id = ObjectId::parse(id).ok_or_else(|| packets.broken("is not git's"))?;
                references.tip = Some(id);
            }
        }
    }

    /// Checks that the server speaks the version of the protocol that the other questions need, and that the repository has the format of the base commit.
    ///
    /// # Errors
    /// `BaseMissing`: it has another format. `Unauthorized`, `NotFound`, `Unreachable`.
    pub(in crate::push) async fn check_version(&self, base: &ObjectId) -> Result<(), PushError> {
        let answer = self.ask(Action::Refs, String::new().into()).await?;
        let mut packets = PacketReader::new(answer, REFERENCES_BYTES_MAX, self.host());
        let (mut is_new, mut format) = (false, "sha1".to_owned());
        // Some servers name the service first.
        while let Some(packet) = packets.next().await? {
            let Packet::Line(bytes) = packet else {
                if is_new {
                    break;
                }
                continue;
            };
            let text = String::from_utf8_lossy(&bytes).trim_end().to_owned();
            is_new |= text == "version 2";
            if !is_new && !text.starts_with('#') {
                break;
            }
            if let Some(named) = text.strip_prefix("object-format=") {
                named.clone_into(&mut format);
            }
        }
        if !is_new {
            let text =
                format!("{} does not speak version 2 of git's protocol, which pushes need", self.host());
            return Err(PushError::Unreachable(text));
        }
        // A repository that was made anew.
        if format == base.format() { Ok(()) } else { Err(PushError::BaseMissing(base.short())) }
    }

    /// Writes objects as a pack into a file of the directory. Returns the commits without history there.
    ///
    /// # Errors
    /// `BaseMissing`: the server does not have the commit. `Unauthorized`, `NotFound`, `Unreachable`.
    pub(in crate::push) async fn fetch(
        &self,
        fetch: Fetch<'_>,
        directory: &PushDirectory,
        file: &str,
    ) -> Result<Vec<ObjectId>, PushError> {
        let (wanted, arguments) = match fetch {
            Fetch::Base(base) => (base, vec![format!("want {base}"), "deepen 1".to_owned()]),
            Fetch::Since { tip, base } => {
                (tip, vec![format!("want {tip}"), format!("shallow {base}"), format!("have {base}")])
            }
        };
        let mut body = self.command("fetch", wanted);
        for argument in arguments.iter().map(String::as_str).chain(["ofs-delta", "no-progress", "done"]) {
            body += &line(&format!("{argument}\n"));
        }
        body += FLUSH;
        let answer = self.ask(Action::Pack, body.into()).await?;
        let mut packets = PacketReader::new(answer, FETCH_BYTES_MAX, self.host());
        let failed = |error: std::io::Error| PushError::failed("write a pack", &error);
        let mut pack = directory.create(file).await.map_err(failed)?;
        let (mut shallow, mut is_pack) = (vec![], false);
        while let Some(packet) = packets.next().await? {
            match packet {
                Packet::Line(bytes) if is_pack => match bytes.split_first() {
                    Some((1, data)) => pack.write_all(data).await.map_err(failed)?,
                    Some((3, reason)) => return Err(self.missing(reason, wanted)),
                    Some(_) | None => {}
                },
                Packet::Line(bytes) if bytes.starts_with(b"ERR ") => {
                    return Err(self.missing(&bytes[4..], wanted));
                }
                Packet::Line(bytes) => {
                    let text = String::from_utf8_lossy(&bytes);
                    let text = text.trim_end();
                    is_pack = text == "packfile";
                    shallow.extend(text.strip_prefix("shallow ").and_then(ObjectId::parse));
                }
                Packet::Delimiter | Packet::Flush => {}
            }
        }
        if !is_pack {
            return Err(packets.broken("is not git's"));
        }
        pack.flush().await.map_err(failed)?;
        Ok(shallow)
    }

    /// The beginning of a request, up to its arguments.
    fn command(&self, name: &str, base: &ObjectId) -> String {
        let lines = [
            format!("command={name}"),
            "agent=flotilla".to_owned(),
            format!("object-format={}", base.format()),
        ];
        lines.iter().map(|text| line(text)).chain([DELIMITER.to_owned()]).collect()
    }

    /// Why the server sends no objects: almost always because it has none of this name.
    fn missing(&self, reason: &[u8], wanted: &ObjectId) -> PushError {
        let reason = String::from_utf8_lossy(reason);
        if reason.contains("not our ref") || reason.contains("not a valid") {
            return PushError::BaseMissing(wanted.short());
        }
        PushError::Unreachable(format!("{} sends no objects: {}", self.host(), plain(&reason)))
    }
}
