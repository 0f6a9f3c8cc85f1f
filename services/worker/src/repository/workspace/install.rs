//! What a workspace gets in addition to the files that it starts from. The script of an install runs with these files and with secrets, and what it leaves goes
//! into other sessions. So it needs files that no agent wrote. A copy gets what is installed where its files were copied from, and runs nothing.

use crate::repository::{environment::entries, proposal::EnvironmentNotice, secrets::SecretUse};
use domain::session::{
    Source,
    files::{PeoplesFiles, SourceFiles},
};
use rpc::v1::{self, ErrorCode};
use settings::{LevelHosts, Settings};

/// The install of the settings, for files that no agent wrote.
pub(super) struct TeamInstall {
    files: PeoplesFiles,
    script: String,
    hosts: Vec<String>,
}

impl TeamInstall {
    /// The install for the files of `source`; `None`: none runs with them, or the settings have none.
    pub(super) fn of(settings: &Settings, source: &Source) -> Option<Self> {
        let files = match source.files() {
            SourceFiles::People(files) => files,
            SourceFiles::Nothing | SourceFiles::Agents(_) => return None,
        };
        let script = settings.install.clone()?;
        Some(Self { files, script, hosts: hosts(&settings.setup_network) })
    }

    pub(super) fn secret_use(&self) -> SecretUse {
        SecretUse::Install(self.files)
    }

    /// The install as the sandbox knows it, with these versions of the secrets.
    pub(super) fn spec(&self, secrets: &[String]) -> v1::WorkspaceInstall {
        v1::WorkspaceInstall {
            script: self.script.clone(),
            hosts: self.hosts.clone(),
            secrets: secrets.to_vec(),
        }
    }
}

fn hosts(network: &[LevelHosts]) -> Vec<String> {
    network.iter().map(entries).collect()
}

/// The notice of a copy whose origin has something installed that the machine no longer keeps.
pub(super) fn not_copied() -> EnvironmentNotice {
    let why =
        "the sandbox machine no longer keeps what is installed in the session that this one is a copy of";
    let text = format!(
        "Nothing is installed in this session, because {why}. The install of the settings runs only with files that no agent wrote. A new session of the project has it"
    );
    let sentence = format!(
        "Packages that the project installs may be missing here, because {why}. Install what the task needs, or say what is missing."
    );
    EnvironmentNotice::new(ErrorCode::InstallNotCopied, text, sentence)
}
