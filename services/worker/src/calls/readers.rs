//! Who may read what the files of a session start from.

use domain::{
    egress::git::{GitPrefix, find_address},
    secret::SecretName,
    session::{Origin, Source},
};
use std::collections::BTreeMap;

/// Who may read the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum FilesReaders {
    /// Everybody, or there is nothing to read.
    Anybody,
    /// People with a credential, with the upload, or on the sandbox machine.
    #[default]
    Limited,
}

impl FilesReaders {
    /// The readers of a source, with the credentials of the settings above its repository.
    pub(crate) fn of(source: &Source, credentials: &BTreeMap<GitPrefix, SecretName>) -> Self {
        let is_limited = match source.repository() {
            Some(url) => url.starts_with("file://") || find_address(credentials.keys(), url).is_some(),
            None => matches!(source.origin, Origin::Bundle(_)),
        };
        if is_limited { Self::Limited } else { Self::Anybody }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_repository_with_a_credential_a_directory_and_an_upload_are_not_for_everybody() {
        let credentials = BTreeMap::from([(
            GitPrefix::parse("https://github.com/acme/").unwrap(),
            "TOKEN".parse().unwrap(),
        )]);
        let url = |url: &str| Origin::GitUrl(url.to_owned());
        for (origin, want) in [
            (Origin::Empty, FilesReaders::Anybody),
            (url("https://github.com/open/app.git"), FilesReaders::Anybody),
            (url("https://github.com/acme/app.git"), FilesReaders::Limited),
            (url("ssh://git@github.com/acme/app.git"), FilesReaders::Limited),
            (url("file:///srv/app"), FilesReaders::Limited),
            (Origin::Bundle("bundle".to_owned()), FilesReaders::Limited),
        ] {
            let source = Source { origin: origin.clone(), ..Source::default() };
            assert_eq!(FilesReaders::of(&source, &credentials), want, "{origin:?}");
        }
    }
}
