//! Stops of file operations: a caller that leaves need not load the sandbox any longer.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// The file operations that wait or run, by the id of their request.
#[derive(Debug, Clone, Default)]
pub(super) struct Operations(Arc<Mutex<HashMap<u64, Arc<AtomicBool>>>>);

/// Whether one operation must stop. It is forgotten when this is dropped.
#[derive(Debug)]
pub(super) struct Stop {
    operations: Operations,
    id: u64,
    is_set: Arc<AtomicBool>,
}

impl Operations {
    pub(super) fn enter(&self, id: u64) -> Stop {
        let is_set = Arc::<AtomicBool>::default();
        self.lock().insert(id, Arc::clone(&is_set));
        Stop { operations: self.clone(), id, is_set }
    }

    /// Stops an operation; `false` if there is none of this id.
    pub(super) fn stop(&self, id: u64) -> bool {
        let operation = self.lock().get(&id).cloned();
        operation.is_some_and(|operation| {
            operation.store(true, Ordering::Relaxed);
            true
        })
    }

    /// A poisoned map is still consistent: no code panics between two changes of it.
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<AtomicBool>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stop {
    /// Whether the operation must stop.
    pub(super) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.operations.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_stopped_while_it_waits_or_runs() {
        let operations = Operations::default();
        let (one, other) = (operations.enter(1), operations.enter(2));
        assert!(operations.stop(1) && !operations.stop(3));
        assert_eq!((one.is_set(), other.is_set()), (true, false));
        drop(one);
        assert!(!operations.stop(1), "it may be the number of a command");
    }
}
