//! The execs of one session: those that run in memory, the others on disk, each exec id once.

use super::{
    attach::Source,
    record::{Exec, ExecOutcome, ExecProgress, OUT_INSIDE, OUTPUT, SPEC, STATE, Spec, write_end, write_spec},
    recorder::Recorder,
};
use crate::{
    error::{Error, blocking},
    layout,
    running::guard::SandboxGuard,
    sandbox::Command,
};
use chassis::tasks::Tasks;
use domain::{limits, text};
use rpc::v1::ErrorCode;
use sha2::{Digest as _, Sha256};
use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};
use tokio::sync::{Mutex, watch};

/// Finished execs and other tool calls of one session whose output is kept on disk; older ones are forgotten. Beyond it: `exec_unknown`.
const EXECS_KEPT_MAX: usize = 500;
/// Bytes of all outputs of one session that are kept on disk; the oldest ones are forgotten. A hundred of the longest. Beyond it:
/// `exec_unknown`.
const OUTPUTS_KEPT_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Prefix of the ids of outputs that do not belong to an exec, so that their directories have other names.
const OUTPUT_PREFIX: &str = "output:";
/// Characters of a digest that name a directory: 128 bits.
const NAME_CHARS: usize = 32;

/// The execs of one session.
#[derive(Debug)]
pub struct Registry {
    directory: PathBuf,
    running: Mutex<HashMap<String, Arc<Exec>>>,
}

impl Registry {
    /// The execs below `directory`, which is made with the first one.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory, running: Mutex::default() }
    }

    /// Enters an exec; `None` if this id was entered before, in this run of the service or an earlier one.
    ///
    /// # Errors
    /// `execs_too_many`.
    pub async fn enter(&self, spec: &Spec) -> Result<Option<Arc<Exec>>, Error> {
        let directory = self.directory.join(name(&spec.exec_id));
        let mut running = self.running.lock().await;
        if running.contains_key(&spec.exec_id) {
            return Ok(None);
        }
        let is_full = running.len() >= limits::EXECS_RUNNING_MAX;
        let (place, root, own) = (directory.clone(), self.directory.clone(), spec.clone());
        let entered = blocking("enter an exec", move || {
            if place.try_exists()? {
                return Ok(false);
            }
            if !is_full {
                make_place(&root, &place)?;
                write_spec(&place, &own)?;
            }
            Ok(true)
        });
        if !entered.await? {
            return Ok(None);
        }
        if is_full {
            let text = format!("the session already runs {} commands", limits::EXECS_RUNNING_MAX);
            return Err(Error::refused(ErrorCode::ExecsTooMany, text));
        }
        let exec = Arc::new(Exec { directory, progress: watch::Sender::new(ExecProgress::default()) });
        running.insert(spec.exec_id.clone(), Arc::clone(&exec));
        Ok(Some(exec))
    }

    /// Enters an exec that an earlier boot of the machine may have run. It counts as lost. An entry that exists stays.
    pub async fn enter_lost(&self, exec_id: &str) -> Result<(), Error> {
        let directory = self.directory.join(name(exec_id));
        let running = self.running.lock().await;
        let exists = tokio::fs::try_exists(&directory).await.map_err(Error::io("look for an exec"))?;
        if !exists && !running.contains_key(exec_id) {
            let (place, root) = (directory.clone(), self.directory.clone());
            blocking("make an exec's directory", move || make_place(&root, &place)).await?;
            write_end(&directory, &ExecOutcome::lost_with_entry()).await;
        }
        Ok(())
    }

    /// Whether an exec of the session ended before, in this run of the service or an earlier one. Execs that start together
    /// do not count for each other.
    pub async fn has_earlier(&self) -> Result<bool, Error> {
        let root = self.directory.clone();
        blocking("look for earlier execs", move || {
            for entry in std::fs::read_dir(root)? {
                let path = entry?.path();
                if path.join(SPEC).exists() && path.join(STATE).exists() {
                    return Ok(true);
                }
            }
            Ok(false)
        })
        .await
    }

    /// Keeps the whole output of a tool in the directory of those of execs, and returns its path inside.
    ///
    /// # Errors
    /// Those of the file system; nothing is kept then.
    pub async fn keep(&self, output_id: &str, data: Vec<u8>) -> Result<String, Error> {
        let name = name(&format!("{OUTPUT_PREFIX}{output_id}"));
        let (place, root) = (self.directory.join(&name), self.directory.clone());
        let _running = self.running.lock().await;
        blocking("keep an output", move || {
            make_place(&root, &place)?;
            std::fs::write(place.join(OUTPUT), data)?;
            // Written last: an output without this file is incomplete, and one with it may be removed.
            layout::replace_quickly(&place.join(STATE), b"{}")
        })
        .await?;
        Ok(format!("{}/{name}/{}", OUT_INSIDE, OUTPUT))
    }

    /// Reads an output that was kept, by its path inside.
    ///
    /// # Errors
    /// `file_not_found`: the session never kept it, or it was removed.
    pub async fn read_output(&self, path: &str) -> Result<Vec<u8>, Error> {
        let missing = || Error::refused(ErrorCode::FileNotFound, format!("the session has no output {path}"));
        let name = name_inside(path).ok_or_else(missing)?;
        match tokio::fs::read(self.directory.join(name).join(OUTPUT)).await {
            Ok(data) => Ok(data),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(missing()),
            Err(error) => Err(Error::io("read an output")(error)),
        }
    }

    /// Removes an exec that could not be started, so that the next attempt starts it.
    pub async fn cancel(&self, spec: &Spec, exec: &Exec) {
        let mut running = self.running.lock().await;
        if let Err(error) = tokio::fs::remove_dir_all(&exec.directory).await {
            tracing::warn!("the directory of an exec that was not started stays: {error}");
        }
        running.remove(&spec.exec_id);
        // Published after the removal: a caller that sees it may try again at once.
        exec.progress.send_modify(|progress| progress.is_cancelled = true);
    }

    /// Starts an entered exec in `sandbox` and has it recorded.
    ///
    /// # Errors
    /// If the exec did not start, also because a caller killed it first. The caller of this function then cancels it.
    pub async fn start(
        self: &Arc<Self>,
        tasks: &Tasks,
        sandbox: SandboxGuard,
        exec: Arc<Exec>,
        spec: Spec,
        command: sandbox_wire::v1::Exec,
    ) -> Result<(), Error> {
        let before = sandbox.sandbox().events();
        let limits = sandbox.limits();
        if exec.progress.borrow().is_killed {
            return Err(Error::refused(ErrorCode::ExecUnknown, "the command was killed before it started"));
        }
        let Command { number, events, .. } = sandbox.sandbox().exec(command).await?;
        exec.progress.send_modify(|progress| progress.number = Some(number));
        // A caller that killed it in between found no number.
        if exec.progress.borrow().is_killed {
            sandbox.sandbox().kill(number).await;
        }
        metrics::counter!("flotilla_execs_started_total").increment(1);
        let registry = Arc::clone(self);
        let (id, disk) = (spec.exec_id.clone(), Arc::clone(sandbox.disk()));
        let recorder = Recorder { exec, sandbox, events, spec, before, limits };
        tasks.spawn("exec", async move {
            recorder.run().await;
            registry.running.lock().await.remove(&id);
            if let Err(error) = disk.refresh().await {
                tracing::debug!("the next command walks through the workspace: {}", error.chain());
            }
        });
        Ok(())
    }

    /// Finds an exec.
    ///
    /// # Errors
    /// `exec_unknown`.
    pub async fn get(&self, exec_id: &str) -> Result<Source, Error> {
        let running = self.running.lock().await;
        if let Some(exec) = running.get(exec_id) {
            return Ok(Source::Running(Arc::clone(exec)));
        }
        let directory = self.directory.join(name(exec_id));
        if tokio::fs::try_exists(&directory).await.map_err(Error::io("look for an exec"))? {
            return Ok(Source::Ended(directory));
        }
        Err(Error::refused(ErrorCode::ExecUnknown, format!("the session has no exec {exec_id:?}")))
    }

    /// Finds an exec that runs, or is about to.
    pub async fn find_running(&self, exec_id: &str) -> Option<Arc<Exec>> {
        self.running.lock().await.get(exec_id).cloned()
    }

    /// Gives the execs that were started and have not ended.
    pub async fn list_running(&self) -> Vec<Arc<Exec>> {
        let running = self.running.lock().await;
        running.values().filter(|exec| exec.progress.borrow().number.is_some()).cloned().collect()
    }
}

/// The caller chooses exec ids; a digest is a safe name of fixed length.
fn name(exec_id: &str) -> String {
    let digest = text::hex(&Sha256::digest(exec_id));
    digest.chars().take(NAME_CHARS).collect()
}

/// The name of the directory in a path inside. Every other path is refused.
fn name_inside(path: &str) -> Option<&str> {
    let name = path.strip_prefix(OUT_INSIDE)?.strip_prefix('/')?;
    let name = name.strip_suffix(OUTPUT)?.strip_suffix('/')?;
    let is_digest = name.len() == NAME_CHARS && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_digest.then_some(name)
}

/// Makes the directory `place` of an exec or an output below `root`, after it has removed old ones.
fn make_place(root: &Path, place: &Path) -> io::Result<()> {
    forget_old(root)?;
    layout::make_passage(place)
}

/// Removes the oldest ended execs and outputs beyond the limits of number and size, and makes room for one more.
fn forget_old(directory: &Path) -> io::Result<()> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Ok(()) };
    let mut ended: Vec<(SystemTime, PathBuf, u64)> = entries
        .flatten()
        .filter_map(|entry| {
            let path = entry.path();
            let ended_at = path.join(STATE).metadata().ok()?.modified().ok()?;
            let bytes = path.join(OUTPUT).metadata().map_or(0, |output| output.len());
            Some((ended_at, path, bytes))
        })
        .collect();
    ended.sort();
    let most = OUTPUTS_KEPT_BYTES_MAX - limits::EXEC_OUTPUT_BYTES_MAX;
    let excess = excess(&ended.iter().map(|(_, _, bytes)| *bytes).collect::<Vec<_>>(), most);
    ended.into_iter().take(excess).try_for_each(|(_, path, _)| std::fs::remove_dir_all(path))
}

/// How many of the oldest outputs, of these sizes, must be removed for one more: their number must fit, and their bytes
/// must be at most `bytes_max`.
fn excess(sizes: &[u64], bytes_max: u64) -> usize {
    let mut bytes = 0_u64;
    let fits = |size: &&u64| {
        bytes = bytes.saturating_add(**size);
        bytes <= bytes_max
    };
    let newest = sizes.iter().rev().take(EXECS_KEPT_MAX - 1).take_while(fits).count();
    sizes.len() - newest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_outputs_lead_to_one() {
        let digest = "0123456789abcdef0123456789abcdef";
        for (path, want) in [
            (format!("/run/sbx/out/{digest}/output"), Some(digest)),
            (format!("/run/sbx/out/{digest}/state.json"), None),
            (format!("/run/sbx/out/{digest}/../output"), None),
            (format!("/run/sbx/out/../{digest}/output"), None),
            (format!("/run/sbx/out{digest}/output"), None),
            ("/run/sbx/out/../../../../../../etc/shadow/output".to_owned(), None),
            ("/run/sbx/out/output".to_owned(), None),
        ] {
            assert_eq!(name_inside(&path), want, "{path}");
        }
    }

    #[test]
    fn the_oldest_outputs_go_when_there_are_too_many_or_too_large_ones() {
        let many = vec![1; EXECS_KEPT_MAX + 4];
        for (sizes, bytes_max, want) in [
            (&[][..], 10, 0),
            (&[5, 5], 10, 0),
            (&[5, 5, 5], 10, 1),
            (&[1, 20, 1], 10, 2),
            (&[20], 10, 1),
            (&many, 1_000_000, 5),
        ] {
            assert_eq!(excess(sizes, bytes_max), want, "{}", sizes.len());
        }
    }
}
