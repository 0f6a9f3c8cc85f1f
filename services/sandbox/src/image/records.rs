//! What is known of the builds of environment layers: for each key, the state and the log of the newest build. They stay when the layer is gone, so that
//! people can read why a build failed.

use super::{digest::Digest, layer::EnvironmentLayerName, script::BuildStage};
use crate::layout::{self, Layout};
use domain::ids::TenantId;
use serde::{Deserialize, Serialize};
use std::{
    collections::HashSet,
    fs, io,
    path::PathBuf,
    time::{SystemTime, UNIX_EPOCH},
};

/// Keys of one tenant whose newest build is known. Beyond it those without a layer are forgotten, oldest first.
pub const BUILDS_KEPT_MAX: usize = 100;

const STATE: &str = "state.json";
const LOG: &str = "log";

/// `state.json`: `{"project":"prj_…","started_at_ms":1795292980519,"ended_at_ms":1795292999000,"code":"setup_failed","message":"…"}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildRecord {
    pub project: String,
    /// The script. Earlier versions had only setups.
    #[serde(default)]
    pub stage: BuildStage,
    /// When it began; milliseconds since 1970.
    pub started_at_ms: i64,
    /// When it ended; `None` while it runs.
    pub ended_at_ms: Option<i64>,
    /// Why it failed; empty otherwise.
    pub code: String,
    /// The same for people.
    pub message: String,
}

/// The records of this machine.
#[derive(Debug)]
pub(super) struct Records {
    layout: Layout,
}

/// Milliseconds since 1970.
pub(super) fn milliseconds(time: SystemTime) -> i64 {
    let elapsed = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
}

impl Records {
    /// The records in the data directory. Builds that an earlier service did not end count as interrupted. Blocks.
    pub(super) fn load(layout: Layout) -> io::Result<Self> {
        let records = Self { layout };
        for entry in fs::read_dir(records.layout.builds())? {
            let Some(tenant) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            for (key, record) in records.list(tenant)? {
                if record.ended_at_ms.is_none() {
                    let message = "the sandbox service ended before the build did".to_owned();
                    let ended_at_ms = Some(record.started_at_ms);
                    let code = record.stage.interrupted().as_str().to_owned();
                    let ended = BuildRecord { ended_at_ms, code, message, ..record };
                    records.write(&EnvironmentLayerName { tenant, key }, &ended)?;
                }
            }
        }
        Ok(records)
    }

    /// Notes that a build began. `ready` are the keys of the tenant that have a layer. Blocks.
    pub(super) fn begin(
        &self,
        name: &EnvironmentLayerName,
        project: &str,
        stage: BuildStage,
        ready: &HashSet<Digest>,
    ) -> io::Result<BuildRecord> {
        layout::make_passage(&self.directory(name))?;
        let record = BuildRecord {
            project: project.to_owned(),
            stage,
            started_at_ms: milliseconds(SystemTime::now()),
            ended_at_ms: None,
            code: String::new(),
            message: String::new(),
        };
        self.write(name, &record)?;
        let known = self.list(name.tenant)?;
        let excess = known.len().saturating_sub(BUILDS_KEPT_MAX);
        let is_old =
            |known: &&(Digest, BuildRecord)| known.1.ended_at_ms.is_some() && !ready.contains(&known.0);
        for (key, _) in known.iter().rev().filter(is_old).take(excess) {
            self.remove(&EnvironmentLayerName { tenant: name.tenant, key: key.clone() })?;
        }
        Ok(record)
    }

    /// Notes how a build ended, with what it printed. Blocks.
    pub(super) fn end(
        &self,
        name: &EnvironmentLayerName,
        record: &BuildRecord,
        log: &[u8],
    ) -> io::Result<()> {
        layout::replace_quickly(&self.directory(name).join(LOG), log)?;
        self.write(name, record)
    }

    /// The record of a key. Blocks.
    pub(super) fn find(&self, name: &EnvironmentLayerName) -> io::Result<Option<BuildRecord>> {
        match fs::read(self.directory(name).join(STATE)) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The log of a key; empty without one. Blocks.
    pub(super) fn log(&self, name: &EnvironmentLayerName) -> io::Result<Vec<u8>> {
        match fs::read(self.directory(name).join(LOG)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(vec![]),
            read => read,
        }
    }

    /// The records of a tenant, newest first. Blocks.
    pub(super) fn list(&self, tenant: TenantId) -> io::Result<Vec<(Digest, BuildRecord)>> {
        let entries = match fs::read_dir(self.of_tenant(tenant)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
            entries => entries?,
        };
        let mut list = vec![];
        for entry in entries {
            let Some(key) = entry?.file_name().to_str().and_then(Digest::from_hex) else { continue };
            let name = EnvironmentLayerName { tenant, key };
            // A crash of the machine may have emptied the file.
            list.extend(self.find(&name)?.map(|record| (name.key, record)));
        }
        list.sort_by_key(|(_, record)| std::cmp::Reverse(record.started_at_ms));
        Ok(list)
    }

    /// Forgets a key. Blocks.
    pub(super) fn remove(&self, name: &EnvironmentLayerName) -> io::Result<()> {
        layout::remove_directory(&self.directory(name))
    }

    /// Forgets a tenant. Blocks.
    pub(super) fn close_tenant(&self, tenant: TenantId) -> io::Result<()> {
        layout::remove_directory(&self.of_tenant(tenant))
    }

    fn write(&self, name: &EnvironmentLayerName, record: &BuildRecord) -> io::Result<()> {
        layout::replace_quickly(&self.directory(name).join(STATE), &serde_json::to_vec(record)?)
    }

    fn of_tenant(&self, tenant: TenantId) -> PathBuf {
        self.layout.builds().join(tenant.to_string())
    }

    fn directory(&self, name: &EnvironmentLayerName) -> PathBuf {
        self.of_tenant(name.tenant).join(name.key.hex())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_was_not_ended_is_interrupted_and_old_failures_are_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::create(directory.path()).unwrap();
        let records = Records::load(layout.clone()).unwrap();
        let tenant = TenantId(uuid::Uuid::now_v7());
        let name = |number: usize| {
            let key = Digest::from_hex(&format!("{number:064x}")).unwrap();
            EnvironmentLayerName { tenant, key }
        };
        let first = records.begin(&name(0), "prj", BuildStage::Install, &HashSet::new()).unwrap();
        assert_eq!(records.find(&name(0)).unwrap(), Some(first));
        drop(records);
        let records = Records::load(layout).unwrap();
        let first = records.find(&name(0)).unwrap().unwrap();
        assert_eq!(
            (first.code.as_str(), first.ended_at_ms),
            ("install_interrupted", Some(first.started_at_ms))
        );
        let ready = HashSet::from([name(0).key]);
        for number in 1..=BUILDS_KEPT_MAX {
            let record = records.begin(&name(number), "prj", BuildStage::Setup, &ready).unwrap();
            let ended = BuildRecord { ended_at_ms: Some(record.started_at_ms), ..record };
            records.end(&name(number), &ended, format!("log {number}").as_bytes()).unwrap();
        }
        assert_eq!(records.list(tenant).unwrap().len(), BUILDS_KEPT_MAX);
        assert!(records.find(&name(0)).unwrap().is_some(), "it has a layer");
        assert_eq!(records.log(&name(BUILDS_KEPT_MAX)).unwrap(), b"log 100");
        assert_eq!(records.log(&name(0)).unwrap(), b"");
        records.close_tenant(tenant).unwrap();
        assert_eq!(records.list(tenant).unwrap(), []);
    }
}
