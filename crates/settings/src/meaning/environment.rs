//! Reads `environment`: what the sandboxes of sessions have.

use crate::{
    GitPush, ImageSetting, LevelHosts, Settings,
    meaning::reader::{Reader, TextList},
    node::{Content, Entry, Node},
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
    },
    limits::IMAGE_REFERENCE_BYTES_MAX,
    policy::level::Level,
    secret::SecretName,
};

impl Reader {
    /// Reads `{"image": "ghcr.io/acme/dev:1", "image_credential": "GHCR_LOGIN", "network": {"allow": ["preset:npm", "*.acme.dev"]}, "git":
    /// {"credentials": {"https://github.com/acme/": "GITHUB_TOKEN"}, "push": {"https://github.com/acme/": {"credential": "GITHUB_PUSH_TOKEN"}}}}`.
    pub(crate) fn environment(&mut self, node: &Node, settings: &mut Settings) {
        let (mut image, mut credential) = (None, None);
        self.fields(node, |reader, entry| match &*entry.key {
            "network" => settings.network = reader.network(&entry.node),
            "git" => reader.git(&entry.node, settings),
            // Whoever may push to a repository must not choose what its sessions run in.
            "image" | "image_credential" if entry.origin.level == Level::Repository => reader.ignore(entry),
            "image" => image = reader.image(&entry.node),
            "image_credential" => credential = reader.credential(entry).map(|name| name.to_string()),
            _ => reader.unknown(entry, &["git", "image", "image_credential", "network"]),
        });
        match (image, credential) {
            (Some(reference), credential) => settings.image = Some(ImageSetting { reference, credential }),
            (None, Some(_)) => self.problem(&node.origin, "an image beside image_credential", "none"),
            (None, None) => {}
        }
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
        entry: &Entry,
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

    fn credential(&mut self, entry: &Entry) -> Option<SecretName> {
        let text = self.text(&entry.node)?;
        let name = text.parse::<SecretName>();
        if name.is_err() {
            // It may be the value of the secret.
            self.problem(&entry.node.origin, "the name of a secret", "a text that is none");
        }
        name.ok()
    }

    fn network(&mut self, node: &Node) -> Vec<LevelHosts> {
        let mut network = vec![];
        self.fields(node, |reader, entry| match &*entry.key {
            "allow" => {
                network.push(LevelHosts { level: node.origin.level, allow: reader.hosts(&entry.node) });
            }
            _ => reader.unknown(entry, &["allow"]),
        });
        network
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
