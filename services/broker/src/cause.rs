//! Why a call to a server of the outside failed.

use std::error::Error as StdError;

pub(crate) type Cause<'a> = &'a (dyn StdError + 'static);

/// An error and its causes, outermost first.
pub(crate) fn causes<'a>(error: Cause<'a>) -> impl Iterator<Item = Cause<'a>> {
    let next = |error: &Cause<'a>| -> Option<Cause<'a>> { (*error).source() };
    std::iter::successors(Some(error), next)
}

/// The innermost cause, which is a sentence of the system or of TLS. The outer ones have the URL.
pub(crate) fn innermost(error: &reqwest::Error) -> String {
    causes(error).skip(1).last().map_or_else(|| "the connection broke".to_owned(), ToString::to_string)
}
