//! Checks the source of files. The session reports problems that only cloning can find.

use crate::ground::{entity::Entity, error::Error, invalid::Invalid, state::State};
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

/// Accepts only URLs that a sandbox may be allowed to clone. The sandbox's own settings make the final decision.
fn check_url(url: &str) -> Result<(), Error> {
    let schemes = ["https://", "ssh://", "file://"];
    let is_clean = url.len() <= SOURCE_BYTES_MAX && !url.chars().any(|c| c.is_whitespace() || c.is_control());
    if is_clean && schemes.iter().any(|scheme| url.starts_with(scheme)) {
        return Ok(());
    }
    let url = domain::text::head(url, 200).escape_debug().to_string();
    let message = format!("{url} is not an allowed repository URL; use https:// or upload a bundle");
    Err(Invalid::UrlNotAllowed.because(message))
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
}
