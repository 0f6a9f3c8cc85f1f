//! Contexts: the gateways that a person works with, kept in the user's configuration directory.

use crate::{exit::coded, stack::private};
use anyhow::{Context as _, Result, bail};
use chassis::secret::Secret;
use local::lock::Lock;
use serde::{Deserialize, Serialize, Serializer};
use std::{
    collections::BTreeMap,
    env, fs, io,
    path::{Path, PathBuf},
};

/// Name of the directory in the user's configuration directory.
const DIRECTORY: &str = "flotilla";
/// The file in it, mode 0600.
const FILE: &str = "contexts.json";
/// The lock of changes, next to the file.
const LOCK: &str = "contexts.lock";
/// Longest name of a context, in bytes. The command refuses a longer one.
const NAME_BYTES_MAX: usize = 100;
/// The name of the first context of a stack on this machine; further ones get a number.
const LOCAL: &str = "local";

/// The content of `contexts.json`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Contexts {
    /// The context that commands use if nothing nearer names a gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    /// By name.
    #[serde(default)]
    pub(crate) contexts: BTreeMap<String, Context>,
}

/// How to reach one gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Context {
    /// A stack on this machine: its data directory, which contains address and keys while it runs.
    Stack { data: PathBuf },
    Gateway {
        url: String,
        #[serde(serialize_with = "serialize_exposed")]
        api_key: Secret<String>,
        /// For `flotilla admin`; empty: this context has none.
        #[serde(default, skip_serializing_if = "is_absent", serialize_with = "serialize_exposed")]
        operator_key: Secret<String>,
    },
}

impl Contexts {
    /// Returns a context.
    ///
    /// # Errors
    /// The names that exist, if this one does not.
    pub(crate) fn get(&self, name: &str) -> Result<&Context> {
        if let Some(context) = self.contexts.get(name) {
            return Ok(context);
        }
        let names: Vec<&str> = self.contexts.keys().map(String::as_str).collect();
        let message = match names.as_slice() {
            [] => format!("there is no context {name:?}, and no other; `flotilla login URL` makes one"),
            names => format!("there is no context {name:?}; the contexts are: {}", names.join(", ")),
        };
        Err(coded("context_not_found", message))
    }

    /// Adds or replaces a context. The first one becomes the current one.
    pub(crate) fn set(&mut self, name: &str, context: Context) -> Result<()> {
        check_name(name)?;
        self.contexts.insert(name.to_owned(), context);
        self.current.get_or_insert_with(|| name.to_owned());
        Ok(())
    }

    /// Removes a context. If it is the current one, there is none afterwards.
    pub(crate) fn remove(&mut self, name: &str) -> Result<()> {
        self.get(name)?;
        self.contexts.remove(name);
        if self.current.as_deref() == Some(name) {
            self.current = None;
        }
        Ok(())
    }

    /// Adds the stack in a data directory unless it is there, and returns its name. It becomes the current one if the current one is a stack that does
    /// not run: one that was killed has left its context behind.
    pub(crate) fn set_stack(&mut self, data: &Path, runs: impl FnOnce(&Path) -> bool) -> Result<String> {
        let name = self.add_stack(data)?;
        let current = self.current.as_ref().and_then(|name| self.contexts.get(name));
        if matches!(current, Some(Context::Stack { data }) if !runs(data)) {
            self.current = Some(name.clone());
        }
        Ok(name)
    }

    fn add_stack(&mut self, data: &Path) -> Result<String> {
        let context = Context::Stack { data: data.to_owned() };
        if let Some((name, _)) = self.contexts.iter().find(|(_, it)| **it == context) {
            return Ok(name.clone());
        }
        let numbered = (2..).map(|number| format!("{LOCAL}-{number}"));
        let mut names = std::iter::once(LOCAL.to_owned()).chain(numbered);
        let name = names.find(|name| !self.contexts.contains_key(name)).unwrap_or_default();
        self.set(&name, context)?;
        Ok(name)
    }

    /// Removes the stack in a data directory.
    pub(crate) fn remove_stack(&mut self, data: &Path) {
        let context = Context::Stack { data: data.to_owned() };
        self.contexts.retain(|_, it| *it != context);
        self.current.take_if(|name| !self.contexts.contains_key(name.as_str()));
    }
}

fn is_absent(secret: &Secret<String>) -> bool {
    secret.expose().is_empty()
}

/// Writes a secret in the open: the file is its owner's alone.
fn serialize_exposed<S: Serializer>(secret: &Secret<String>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(secret.expose())
}

fn check_name(name: &str) -> Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:@".contains(c);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_plain) {
        bail!("a context's name is 1 to {NAME_BYTES_MAX} letters, digits and -_.:@, not {name:?}");
    }
    Ok(())
}

/// The directory of `contexts.json`: below `XDG_CONFIG_HOME`, else below `.config` in the home directory.
///
/// # Errors
/// Neither is set.
pub(crate) fn directory() -> Result<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")));
    base.map(|base| base.join(DIRECTORY))
        .context("find the contexts: neither XDG_CONFIG_HOME nor HOME is set")
}

/// Reads the contexts; none if there is no file.
pub(crate) fn load(directory: &Path) -> Result<Contexts> {
    let file = directory.join(FILE);
    let json = match fs::read(&file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Contexts::default()),
        other => other.with_context(|| format!("read {}", file.display()))?,
    };
    serde_json::from_slice(&json).with_context(|| format!("read {}", file.display()))
}

/// Changes the contexts. Two processes that do so at the same time wait for each other. An error of `change` changes nothing.
pub(crate) fn change<T>(directory: &Path, change: impl FnOnce(&mut Contexts) -> Result<T>) -> Result<T> {
    private::make_directory(directory)?;
    let _lock = Lock::wait(&directory.join(LOCK)).context("lock the contexts")?;
    let mut contexts = load(directory)?;
    let result = change(&mut contexts)?;
    private::write(&directory.join(FILE), &serde_json::to_string_pretty(&contexts)?)?;
    Ok(result)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn gateway(url: &str) -> Context {
        Context::Gateway {
            url: url.to_owned(),
            api_key: Secret::new("fk_secret".to_owned()),
            operator_key: Secret::default(),
        }
    }

    #[test]
    fn stacks_get_names_and_leave_nothing_behind() {
        let mut contexts = Contexts::default();
        assert_eq!(contexts.set_stack(Path::new("/a"), |_| true).unwrap(), "local");
        assert_eq!(contexts.set_stack(Path::new("/b"), |_| false).unwrap(), "local-2");
        assert_eq!(contexts.current.as_deref(), Some("local-2"));
        contexts.current = Some("local".to_owned());
        assert_eq!(contexts.set_stack(Path::new("/a"), |_| true).unwrap(), "local");
        assert_eq!(contexts.current.as_deref(), Some("local"));
        contexts.remove_stack(Path::new("/a"));
        assert_eq!(contexts.current, None);
        contexts.set("work", gateway("https://flotilla.example")).unwrap();
        contexts.remove_stack(Path::new("/b"));
        assert_eq!(contexts.contexts.keys().collect::<Vec<_>>(), ["work"]);
        contexts.current = Some("work".to_owned());
        contexts.remove("work").unwrap();
        assert_eq!(contexts, Contexts::default());
    }

    #[test]
    fn an_unknown_name_lists_the_others() {
        let mut contexts = Contexts::default();
        let error = |contexts: &Contexts| contexts.get("x").unwrap_err().to_string();
        assert!(error(&contexts).contains("flotilla login"), "{}", error(&contexts));
        contexts.set("work", gateway("https://flotilla.example")).unwrap();
        assert_eq!(error(&contexts), "there is no context \"x\"; the contexts are: work");
        for name in ["", "a b", "a/b", "é", &"x".repeat(NAME_BYTES_MAX + 1)] {
            assert!(contexts.set(name, gateway("http://h")).is_err(), "{name}");
        }
    }

    #[test]
    fn the_file_is_private_and_a_failed_change_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let directory = dir.path().join("deep/flotilla");
        assert_eq!(load(&directory).unwrap(), Contexts::default());
        change(&directory, |contexts| contexts.set("work", gateway("https://flotilla.example"))).unwrap();
        let saved = load(&directory).unwrap();
        assert_eq!(saved.get("work").unwrap(), &gateway("https://flotilla.example"));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&directory), mode(&directory.join(FILE))), (0o700, 0o600));
        let failed = change(&directory, |contexts| {
            contexts.contexts.clear();
            contexts.set("a b", gateway("http://h"))
        });
        assert!(failed.is_err());
        assert_eq!(load(&directory).unwrap(), saved);
        fs::write(directory.join(FILE), "{").unwrap();
        assert!(change(&directory, |_| Ok(())).is_err(), "a file that cannot be read is not replaced");
    }

    #[test]
    fn changes_at_the_same_time_are_all_kept() {
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for number in 0..8 {
                let directory = dir.path();
                scope.spawn(move || {
                    change(directory, |contexts| {
                        contexts.set_stack(Path::new(&format!("/{number}")), |_| true)
                    })
                    .unwrap()
                });
            }
        });
        assert_eq!(load(dir.path()).unwrap().contexts.len(), 8);
    }
}
