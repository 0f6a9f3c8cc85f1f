//! The execs of one session: those that run in memory, the others on disk, each exec id once.

use super::{Exec, Progress, Recorder, Spec, attach::Source, write_spec};
use crate::{code::Code, error::Error, layout, session::Use, wire};
use chassis::tasks::Tasks;
use domain::limits;
use sha2::{Digest as _, Sha256};
use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};
use tokio::sync::{Mutex, watch};

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

    /// Enters an exec; `None` when this id was entered before, in whatever life of the service.
    ///
    /// # Errors
    /// `execs_too_many`.
    pub async fn enter(&self, spec: &Spec) -> Result<Option<Arc<Exec>>, Error> {
        let directory = self.directory.join(name(&spec.exec_id));
        let mut running = self.running.lock().await;
        if running.contains_key(&spec.exec_id) {
            return Ok(None);
        }
        if tokio::fs::try_exists(&directory).await.map_err(Error::io("look for an exec"))? {
            return Ok(None);
        }
        if running.len() >= limits::EXECS_RUNNING_MAX {
            let text = format!("{} commands of this session run already", limits::EXECS_RUNNING_MAX);
            return Err(Error::refused(Code::ExecsTooMany, text));
        }
        let (place, kept) = (directory.clone(), self.directory.clone());
        let made = tokio::task::spawn_blocking(move || {
            forget_old(&kept)?;
            layout::make_passage(&place)
        });
        made.await
            .unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(Error::io("make an exec's directory"))?;
        write_spec(&directory, spec).await?;
        let exec = Arc::new(Exec { directory, progress: watch::Sender::new(Progress::default()) });
        running.insert(spec.exec_id.clone(), Arc::clone(&exec));
        Ok(Some(exec))
    }

    /// Takes an exec back that could not be started, so that the next try starts it.
    pub async fn cancel(&self, spec: &Spec, exec: &Exec) {
        let mut running = self.running.lock().await;
        if let Err(error) = tokio::fs::remove_dir_all(&exec.directory).await {
            tracing::warn!("the directory of an exec that was not started stays: {error}");
        }
        running.remove(&spec.exec_id);
        // After it is gone: who is told so may ask again at once.
        exec.progress.send_modify(|progress| progress.is_cancelled = true);
    }

    /// Starts an entered exec in `sandbox` and has it recorded.
    ///
    /// # Errors
    /// When it was not started, also because somebody asked for its end before; the caller then cancels it.
    pub async fn start(
        self: &Arc<Self>,
        tasks: &Tasks,
        sandbox: Use,
        exec: Arc<Exec>,
        (spec, command): (Spec, wire::Exec),
    ) -> Result<(), Error> {
        let before = sandbox.sandbox().events();
        let limits = sandbox.limits();
        if exec.progress.borrow().is_killed {
            return Err(Error::refused(Code::ExecUnknown, "the command was ended before it started"));
        }
        let (number, events) = sandbox.sandbox().exec(command).await?;
        exec.progress.send_modify(|progress| progress.number = Some(number));
        // Whoever asked in between found no number.
        if exec.progress.borrow().is_killed {
            sandbox.sandbox().kill(number).await;
        }
        metrics::counter!("flotilla_execs_started_total").increment(1);
        let registry = Arc::clone(self);
        let id = spec.exec_id.clone();
        let recorder = Recorder { exec, sandbox, events, spec, before, limits };
        tasks.spawn("exec", async move {
            recorder.run().await;
            registry.running.lock().await.remove(&id);
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
        Err(Error::refused(Code::ExecUnknown, format!("the session has no exec {exec_id:?}")))
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

/// Exec ids are the caller's; a digest is a safe name of equal length for each.
fn name(exec_id: &str) -> String {
    let digest: String = Sha256::digest(exec_id).iter().map(|byte| format!("{byte:02x}")).collect();
    digest.chars().take(NAME_CHARS).collect()
}

/// Removes the oldest ended execs beyond the number that is kept.
fn forget_old(directory: &Path) -> io::Result<()> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Ok(()) };
    let mut ended: Vec<(SystemTime, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| {
            Some((entry.path().join(super::STATE).metadata().ok()?.modified().ok()?, entry.path()))
        })
        .collect();
    let excess = ended.len().saturating_sub(limits::EXECS_KEPT_MAX - 1);
    ended.sort();
    ended.into_iter().take(excess).try_for_each(|(_, path)| std::fs::remove_dir_all(path))
}
