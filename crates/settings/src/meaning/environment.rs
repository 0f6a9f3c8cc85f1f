//! Reads `environment`: what the sandboxes of sessions have.

use crate::{
    GitPush, ImageSetting, LevelHosts, Settings,
    meaning::reader::{Reader, TextList},
    node::{Content, Member, Node},
    problem::shown_text,
};
use domain::{
    egress::{
        allow::{self, EGRESS_ENTRIES_MAX},
        git::{GIT_CREDENTIALS_MAX, GitPrefix},
        push::{
            PUSH_RULES_MAX,
            branch::BranchPrefix,
            paths::{DENIED_PATTERNS_MAX, is_pattern},
        },
        secrets::SECRET_VARIABLE_BYTES_MAX,
    },
    limits::{ENVIRONMENT_SECRETS_MAX, IMAGE_REFERENCE_BYTES_MAX},
    policy::level::Level,
    secret::SecretName,
    session::environment::{
        ENVIRONMENT_SCRIPT_BYTES_MAX, ENVIRONMENT_VARIABLE_BYTES_MAX, ENVIRONMENT_VARIABLES_MAX,
        is_own_variable, is_script, is_variable_name,
    },
};
use std::collections::BTreeMap;

const KEYS: [&str; 11] = [
    "allow_ptrace",
    "allow_user_namespaces",
    "env",
    "git",
    "image",
    "image_credential",
    "install",
    "network",
    "secrets",
    "setup",
    "start",
];
/// What an environment of this level has. One that a repository proposes names no secrets of git.
fn keys(level: Level) -> Vec<&'static str> {
    KEYS.into_iter().filter(|key| level != Level::Environment || *key != "git").collect()
}

impl Reader {
    /// Reads `{"image": "ghcr.io/acme/dev:1", "image_credential": "GHCR_LOGIN", "setup": "apt-get install -y ripgrep", "install": "npm ci", "start": "make services",
    /// "env": {"CI": "1"}, "secrets": {"NPM_TOKEN": "NPM_TOKEN"}, "allow_ptrace": true, "network": {"allow": ["preset:npm", "*.acme.dev"], "setup": ["preset:debian"]}, "git":
    /// {"credentials": {"https://github.com/acme/": "GITHUB_TOKEN"}, "push": {"https://github.com/acme/": {"credential": "GITHUB_PUSH_TOKEN"}}}}`.
    pub(crate) fn environment(&mut self, node: &Node, settings: &mut Settings) {
        let (mut image, mut credential, mut setup) = (None, None, None);
        self.fields(node, |reader, entry| match &*entry.key {
            "network" => reader.network(&entry.node, settings),
            "git" if entry.origin.level != Level::Environment => reader.git(&entry.node, settings),
            // A person who may push to a repository must not choose what its sessions run in.
            "allow_ptrace"
            | "allow_user_namespaces"
            | "env"
            | "image"
            | "image_credential"
            | "install"
            | "secrets"
            | "setup"
            | "start"
                if entry.origin.level == Level::Repository =>
            {
                reader.ignore(entry);
            }
            "allow_ptrace" => settings.allow_ptrace = reader.flag(&entry.node),
            "allow_user_namespaces" => settings.allow_user_namespaces = reader.flag(&entry.node),
            "env" => settings.variables = reader.variables(&entry.node),
            "image" => image = reader.image(&entry.node),
            "image_credential" => credential = reader.credential(entry).map(|name| name.to_string()),
            "install" => settings.install = reader.script(&entry.node),
            "secrets" => settings.secrets = reader.secrets(&entry.node),
            "setup" => setup = reader.script(&entry.node),
            "start" => settings.start = reader.script(&entry.node),
            _ => reader.unknown(entry, &keys(entry.origin.level)),
        });
        match (image, credential, setup) {
            (Some(reference), credential, setup) => {
                settings.image = Some(ImageSetting { reference, credential, setup });
            }
            (None, Some(_), _) => {
                self.problem(&node.origin, "an image together with image_credential", "none")
            }
            // It needs to know what it sets up: the scripts of two images seldom fit both.
            (None, None, Some(_)) => self.problem(&node.origin, "an image together with setup", "none"),
            (None, None, None) => {}
        }
        if let Some(name) = settings.secrets.keys().find(|name| settings.variables.contains_key(*name)) {
            let found = format!("both for {}", shown_text(name));
            self.problem(&node.origin, "a variable either in env or in secrets", &found);
        }
    }

    fn script(&mut self, node: &Node) -> Option<String> {
        let text = self.text(node)?;
        let is_script = is_script(&text);
        if !is_script {
            self.expected(node, &format!("a script for bash of 1 to {ENVIRONMENT_SCRIPT_BYTES_MAX} bytes"));
        }
        is_script.then_some(text)
    }

    fn variables(&mut self, node: &Node) -> BTreeMap<String, String> {
        let mut variables = BTreeMap::new();
        self.fields(node, |reader, entry| {
            let (name, value) = (&*entry.key, reader.text(&entry.node));
            reader.variable_name(entry);
            let Some(value) = value else { return };
            if name.len() + value.len() > ENVIRONMENT_VARIABLE_BYTES_MAX || value.contains('\0') {
                let expected = format!(
                    "a text without zero bytes; name and value have at most {ENVIRONMENT_VARIABLE_BYTES_MAX} bytes"
                );
                reader.problem(&entry.node.origin, &expected, "another text");
            }
            variables.insert(name.to_owned(), value);
        });
        self.at_most(node, variables.len(), ENVIRONMENT_VARIABLES_MAX, "variables");
        variables
    }

    fn variable_name(&mut self, entry: &Member) {
        let name = &*entry.key;
        if !is_variable_name(name) {
            self.problem(&entry.origin, "the name of a variable, such as \"CI\"", &shown_text(name));
        } else if is_own_variable(name) {
            let expected = "a variable that the sandbox does not set itself";
            self.problem(&entry.origin, expected, &shown_text(name));
        }
    }

    /// Reads `{"NPM_TOKEN": "NPM_TOKEN"}`: the name of a secret for each variable.
    fn secrets(&mut self, node: &Node) -> BTreeMap<String, SecretName> {
        let mut secrets = BTreeMap::new();
        self.fields(node, |reader, entry| {
            reader.variable_name(entry);
            if entry.key.len() > SECRET_VARIABLE_BYTES_MAX {
                let expected = format!("the name of a variable of at most {SECRET_VARIABLE_BYTES_MAX} bytes");
                reader.problem(&entry.origin, &expected, "a longer one");
            }
            let secret = reader.credential(entry);
            secrets.extend(secret.map(|secret| (entry.key.to_string(), secret)));
        });
        self.at_most(node, secrets.len(), ENVIRONMENT_SECRETS_MAX, "secrets");
        secrets
    }

    fn git(&mut self, node: &Node, settings: &mut Settings) {
        self.fields(node, |reader, entry| match &*entry.key {
            // People who may push to a repository must not choose which secrets its sessions use.
            "credentials" | "push" if entry.origin.level == Level::Repository => reader.ignore(entry),
            "credentials" => reader.git_credentials(&entry.node, settings),
            "push" => reader.git_push(&entry.node, settings),
            _ => reader.unknown(entry, &["credentials", "push"]),
        });
    }

    fn git_credentials(&mut self, node: &Node, settings: &mut Settings) {
        self.fields(node, |reader, entry| {
            let secret = reader.credential(entry);
            let prefix = reader.prefix(entry, settings.git_credentials.keys());
            settings.git_credentials.extend(prefix.zip(secret));
        });
        self.at_most(node, settings.git_credentials.len(), GIT_CREDENTIALS_MAX, "prefixes");
    }

    fn git_push(&mut self, node: &Node, settings: &mut Settings) {
        self.fields(node, |reader, entry| {
            let push = reader.push(&entry.node);
            let prefix = reader.prefix(entry, settings.git_push.keys());
            settings.git_push.extend(prefix.zip(push));
        });
        self.at_most(node, settings.git_push.len(), PUSH_RULES_MAX, "prefixes");
    }

    /// Reads `{"credential": "GITHUB_PUSH_TOKEN", "branches": "agent/", "deny": ["deploy/**"]}`.
    fn push(&mut self, node: &Node) -> Option<GitPush> {
        let (mut credential, mut branches, mut deny) = (None, BranchPrefix::default(), vec![]);
        let mut has_credential = false;
        self.fields(node, |reader, entry| match &*entry.key {
            "credential" => {
                has_credential = true;
                credential = reader.credential(entry);
            }
            "branches" => match reader.text(&entry.node).map(|text| text.parse()) {
                Some(Ok(prefix)) => branches = prefix,
                Some(Err(_)) => {
                    let expected =
                        "the beginning of names of branches, with a slash at its end, such as \"agent/\"";
                    reader.expected(&entry.node, expected);
                }
                None => {}
            },
            "deny" => deny = reader.patterns(&entry.node),
            _ => reader.unknown(entry, &["branches", "credential", "deny"]),
        });
        if !has_credential && matches!(node.value, Content::Map(_)) {
            self.problem(&node.origin, "a credential: the name of a secret that may push", "none");
        }
        Some(GitPush { credential: credential?, branches, deny })
    }

    fn patterns(&mut self, node: &Node) -> Vec<String> {
        let list = TextList {
            kind: "a list of paths",
            items: "paths",
            most: DENIED_PATTERNS_MAX,
            expected: "a path of the repository with *, ? and **, such as \"deploy/**\"",
        };
        self.texts(node, &list, is_pattern)
    }

    /// Reads the prefix of URLs that is the key of an entry, unless one of `known` means the same place.
    fn prefix<'a>(
        &mut self,
        entry: &Member,
        mut known: impl Iterator<Item = &'a GitPrefix>,
    ) -> Option<GitPrefix> {
        match GitPrefix::parse(&entry.key) {
            Ok(prefix) if known.any(|other| other.is_same_place(&prefix)) => {
                self.problem(&entry.origin, "each prefix once", "a prefix that means the same place");
                None
            }
            Ok(prefix) => Some(prefix),
            Err(error) => {
                // The key may hold a password, so neither the path nor the text repeats it.
                let key = self.path.0.pop();
                let expected =
                    "the beginning of the URLs of repositories, such as \"https://github.com/acme/\"";
                self.problem(&entry.origin, expected, &format!("a prefix that cannot be one: {error}"));
                self.path.0.extend(key);
                None
            }
        }
    }

    fn image(&mut self, node: &Node) -> Option<String> {
        let text = self.text(node)?;
        let is_reference = (1..=IMAGE_REFERENCE_BYTES_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_reference {
            self.expected(node, "the reference of an image, such as \"ghcr.io/acme/dev:1\"");
        }
        is_reference.then_some(text)
    }

    fn credential(&mut self, entry: &Member) -> Option<SecretName> {
        let text = self.text(&entry.node)?;
        let name = text.parse::<SecretName>();
        if name.is_err() {
            // It may be the value of the secret.
            self.problem(&entry.node.origin, "the name of a secret", "a text that is none");
        }
        name.ok()
    }

    fn network(&mut self, node: &Node, settings: &mut Settings) {
        let level = node.origin.level;
        let mut session: Option<LevelHosts> = None;
        self.fields(node, |reader, entry| match &*entry.key {
            "allow" => {
                let hosts = reader.hosts(&entry.node);
                session.get_or_insert_with(|| LevelHosts::none(level)).allow = hosts;
            }
            // A list of the level too: it allows nothing by itself.
            "ask" => {
                let hosts = reader.hosts(&entry.node);
                session.get_or_insert_with(|| LevelHosts::none(level)).ask = hosts;
            }
            // The setup is none of the repository's.
            "setup" if level == Level::Repository => reader.ignore(entry),
            "setup" => {
                let allow = reader.hosts(&entry.node);
                settings.setup_network = vec![LevelHosts { allow, ..LevelHosts::none(level) }];
            }
            _ => reader.unknown(entry, &["allow", "ask", "setup"]),
        });
        settings.network = session.into_iter().collect();
    }

    fn hosts(&mut self, node: &Node) -> Vec<String> {
        let expected = allow::expected();
        let list = TextList {
            kind: "a list of hosts",
            items: "hosts",
            most: EGRESS_ENTRIES_MAX,
            expected: &expected,
        };
        self.texts(node, &list, allow::is_entry)
    }
}
