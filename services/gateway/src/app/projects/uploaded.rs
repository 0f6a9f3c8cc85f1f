//! What is known of the uploaded files of a project: they stay as they are until a person uploads others.

use crate::{
    app::ground::gateway::Gateway,
    auth::principal::Principal,
    ground::{error::Error, scope::Scope},
};
use domain::{
    ids::Timestamp,
    session::{Origin, Source},
};

/// Bytes of a bundle that hold its refs as far as its HEAD, which the command line puts first.
const HEAD_BYTES: u32 = 1_024;

/// An uploaded source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UploadedSource {
    /// The commit that sessions start from; empty if the beginning of the bundle does not say.
    pub(crate) commit: String,
    pub(crate) uploaded_at: Timestamp,
}

/// Returns what is known of a source; `None` for a source that was not uploaded.
///
/// # Errors
/// `scope_missing`, `store_unavailable`.
pub(crate) async fn find(
    gateway: &Gateway,
    principal: &Principal,
    source: &Source,
) -> Result<Option<UploadedSource>, Error> {
    let Origin::Bundle(id) = &source.origin else { return Ok(None) };
    let tenant = principal.tenant(Scope::Read)?;
    let start = gateway.state.store.find_bundle_start(tenant, id, HEAD_BYTES).await?;
    Ok(start.map(|start| UploadedSource {
        commit: head(&start.bytes).unwrap_or_default(),
        uploaded_at: start.created_at,
    }))
}

/// Finds the HEAD among the refs at the beginning of a bundle: a line with its commit and its name.
fn head(bytes: &[u8]) -> Option<String> {
    let is_commit = |word: &str| matches!(word.len(), 40 | 64) && word.bytes().all(|b| b.is_ascii_hexdigit());
    // An empty line ends the refs. The pack behind it is no text.
    let lines = bytes.split(|byte| *byte == b'\n').take_while(|line| !line.is_empty());
    let refs = lines.filter_map(|line| std::str::from_utf8(line).ok()?.split_once(' '));
    refs.into_iter()
        .find(|(commit, name)| *name == "HEAD" && is_commit(commit))
        .map(|(commit, _)| commit.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_begins_with_its_refs() {
        let commit = "0123456789abcdef0123456789abcdef01234567";
        for (bundle, want) in [
            (format!("# v2 git bundle\n{commit} HEAD\n{commit} refs/heads/trunk\n\nPACK"), Some(commit)),
            (
                format!("# v3 git bundle\n@object-format=sha1\n-{commit} base\n{commit} HEAD\n\nPACK"),
                Some(commit),
            ),
            (format!("# v2 git bundle\n{commit} refs/heads/trunk\n\n{commit} HEAD\n"), None),
            ("# v2 git bundle\nno HEAD\n".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(head(bundle.as_bytes()).as_deref(), want, "{bundle}");
        }
    }
}
