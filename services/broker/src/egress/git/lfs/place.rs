//! A place that a server names for an object: its URL, and the headers that open it. Both are foreign content.

use crate::egress::git::link::Link;
use domain::egress::lfs::batch::LfsPlace;
use hyper::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName,
    HeaderValue, RANGE, TE, TRANSFER_ENCODING, UPGRADE,
};

/// Headers that open an object. Stores need one or two. Beyond it: `git_lfs_link_refused`.
const HEADERS_MAX: usize = 16;
/// Bytes of these headers: a token may have some thousand. Beyond it: `git_lfs_link_refused`.
const HEADERS_BYTES_MAX: usize = 16 * 1024;
/// What a server may not set: it would change the request itself.
const OWN_HEADERS: [HeaderName; 9] =
    [ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, RANGE, TE, TRANSFER_ENCODING, UPGRADE];

#[derive(Debug)]
pub(super) struct ObjectPlace {
    pub(super) link: Link,
    /// They do not print.
    pub(super) headers: HeaderMap,
    /// Whether a place at the server of the repository gets the credential of the settings too.
    pub(super) needs_credential: bool,
}

impl ObjectPlace {
    /// Reads what a server names.
    ///
    /// # Errors
    /// What is wrong with it. The error repeats nothing of it.
    pub(super) fn parse(place: &LfsPlace) -> Result<Self, &'static str> {
        let LfsPlace { href, headers: given, is_authenticated } = place;
        let link = Link::parse(href)?;
        let bytes: usize = given.iter().map(|(name, value)| name.len() + value.len()).sum();
        if given.len() > HEADERS_MAX || bytes > HEADERS_BYTES_MAX {
            return Err("it has too many headers");
        }
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            let name: HeaderName = name.parse().map_err(|_| "a header of it has no valid name")?;
            let mut value = HeaderValue::from_str(value).map_err(|_| "a header of it has no valid value")?;
            value.set_sensitive(true);
            if !OWN_HEADERS.contains(&name) {
                headers.insert(name, value);
            }
        }
        let needs_credential = !headers.contains_key(AUTHORIZATION) && !is_authenticated;
        Ok(Self { link, headers, needs_credential })
    }
}
