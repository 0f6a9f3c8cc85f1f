//! Checks the source of files. The session reports problems that only cloning can find.

use crate::{
    errors::{entity::Entity, error::Error, invalid::Invalid},
    state::State,
};
use domain::{
    ids::TenantId,
    session::{Origin, Source},
    text::is_sha256,
};

/// Longest URL or revision; bytes. Beyond it: `url_not_allowed` or `revision_invalid`.
const SOURCE_BYTES_MAX: usize = 2_048;

/// Checks a source.
///
/// # Errors
/// `url_not_allowed`, `revision_invalid`, `bundle_not_found`, `store_unavailable`.
pub(in crate::app) async fn check(state: &State, tenant: TenantId, source: &Source) -> Result<(), Error> {
    check_form(source)?;
    if let Origin::Bundle(id) = &source.origin
        && !(is_sha256(id) && state.store.has_bundle(tenant, id).await?)
    {
        return Err(Error::NotFound(Entity::Bundle));
    }
    Ok(())
}

fn check_form(source: &Source) -> Result<(), Error> {
    if let Origin::GitUrl(url) = &source.origin {
        check_url(url)?;
    }
    let is_word =
        |text: &str| !text.starts_with('-') && !text.chars().any(|c| c.is_whitespace() || c.is_control());
    let revision = source.revision.as_deref().unwrap_or_default();
    if revision.len() > SOURCE_BYTES_MAX || !is_word(revision) {
        return Err(Invalid::Revision.because("a revision must be a branch, a tag or a commit"));
    }
    Ok(())
}

/// Accepts only URLs that a sandbox may be allowed to clone. The sandbox's own settings make the final decision. Every reader of a project sees the
/// URL of its source, so a URL with a credential is refused, and no message repeats it.
fn check_url(url: &str) -> Result<(), Error> {
    if has_credential(url) {
        let message = "the repository URL names a user or a password, which everybody who sees the project could read; leave it out, store the \
             credential with `flotilla secret set`, and name the secret in environment.git.credentials";
        return Err(Invalid::UrlNotAllowed.because(message));
    }
    let schemes = ["https://", "ssh://", "file://"];
    let is_clean = url.len() <= SOURCE_BYTES_MAX && !url.chars().any(|c| c.is_whitespace() || c.is_control());
    if is_clean && schemes.iter().any(|scheme| url.starts_with(scheme)) {
        return Ok(());
    }
    // Git's short form of ssh can have a password too.
    let shown = if url.contains('@') { "the source" } else { domain::text::head(url, 200) };
    let message =
        format!("{} is not an allowed repository URL; use https:// or upload a bundle", shown.escape_debug());
    Err(Invalid::UrlNotAllowed.because(message))
}

/// Whether a URL names a user or a password before its host. A user of ssh without a password is no secret.
fn has_credential(url: &str) -> bool {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let authority = rest.split(['/', '\\', '?', '#']).next().unwrap_or_default();
    authority.rsplit_once('@').is_some_and(|(user, _)| scheme != "ssh" || user.contains(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_sources_are_refused() {
        let code = |source: Source| check_form(&source).err().map(|error| error.code().to_owned());
        let url = |url: &str| code(Source { origin: Origin::GitUrl(url.to_owned()), ..Source::default() });
        for hostile in ["ext::sh -c id", "git://h/r", "-u evil", "https://a b", "/etc", "", "https://a\nb"] {
            assert_eq!(url(hostile).as_deref(), Some("url_not_allowed"), "{hostile}");
        }
        assert_eq!(url("https://example.com/a.git"), None);
        let revision = |text: &str| code(Source { revision: Some(text.to_owned()), ..Source::default() });
        for hostile in ["--upload-pack=id", "a b"] {
            assert_eq!(revision(hostile).as_deref(), Some("revision_invalid"), "{hostile}");
        }
        assert_eq!(revision("main"), None);
    }

    #[test]
    fn a_url_with_a_credential_is_refused_and_not_repeated() {
        for (url, is_refused) in [
            ("https://u:hunter2@host.example/x.git", true),
            ("https://hunter2@host.example/x.git", true),
            ("https://@host.example/x.git", true),
            ("https://u:hun@ter2@host.example/x.git", true),
            ("https://u:hunter2@host.example", true),
            ("https://u:hunter2@host.example?x", true),
            ("http://u:hunter2@host.example/x.git", true),
            ("HTTPS://u:hunter2@host.example/x.git", true),
            ("ssh://git:hunter2@host.example/x.git", true),
            ("git:hunter2@host.example:x.git", true),
            ("ssh://git@host.example/x.git", false),
            ("ssh://git@host.example:2222/x.git", false),
            ("ssh://host.example/x.git", false),
            ("https://host.example:8443/x.git", false),
            ("https://host.example/@scope/x.git", false),
            ("https://host.example/x.git?user@host", false),
            ("file:///srv/a@b.git", false),
        ] {
            let refused = check_url(url).err();
            assert_eq!(refused.as_ref().map(Error::code), is_refused.then_some("url_not_allowed"), "{url}");
            let message = refused.map(|error| error.to_string()).unwrap_or_default();
            assert!(!message.contains("hunter2") && !message.contains("ter2@"), "{message}");
        }
        let hint = check_url("https://u:p@host.example/x.git")
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        assert!(
            hint.contains("flotilla secret set") && hint.contains("environment.git.credentials"),
            "{hint}"
        );
    }
}
