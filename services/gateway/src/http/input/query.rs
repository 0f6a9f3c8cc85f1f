//! Reads the query of a request. Refusals name the member and what is wrong with it, in other words than those of the library.

use crate::http::refusal::{Refusal, RequestPart};
use axum::{
    extract::{Query, rejection::QueryRejection},
    http::Uri,
};
use serde::de::DeserializeOwned;
use std::error::Error as _;

/// Bytes of a value that a refusal shows. A longer one is cut.
const SHOWN_BYTES: usize = 80;

/// Reads the members of a query.
///
/// # Errors
/// 400.
pub(in crate::http) fn read<T: DeserializeOwned>(uri: &Uri) -> Result<T, Refusal> {
    let query = Query::<T>::try_from_uri(uri);
    let unreadable = |rejection| {
        RequestPart::Query.unreadable(format!("cannot read the query: {}", reason(uri, &rejection)))
    };
    query.map(|query| query.0).map_err(unreadable)
}

/// What is wrong, after the name of the member.
fn reason(uri: &Uri, rejection: &QueryRejection) -> String {
    // The rejection itself begins with a sentence of the library.
    let cause = rejection.source().map_or_else(|| rejection.to_string(), |cause| cause.to_string());
    let Some((name, why)) = cause.split_once(": ") else { return cause };
    let Some(value) = find_value(uri, name) else { return cause };
    let expected = match why {
        "invalid digit found in string" if value.starts_with('-') => "a number that is not negative",
        "invalid digit found in string" | "cannot parse integer from empty string" => "a whole number",
        "number too large to fit in target type" => "a smaller number",
        "number too small to fit in target type" => "a larger number",
        "provided string was not `true` or `false`" => "true or false",
        _ => return cause,
    };
    format!("{name}: expected {expected}, found {:?}", domain::text::head(&value, SHOWN_BYTES))
}

/// The value of a member of the query.
fn find_value(uri: &Uri, name: &str) -> Option<String> {
    let members = Query::<Vec<(String, String)>>::try_from_uri(uri).ok()?.0;
    members.into_iter().find(|(member, _)| member == name).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Members {
        limit: Option<u32>,
        cursor: i64,
        all: bool,
    }

    #[test]
    fn a_refusal_names_the_member_and_its_value() {
        for (query, want) in [
            ("limit=many", "limit: expected a whole number, found \"many\""),
            ("limit=", "limit: expected a whole number, found \"\""),
            ("limit=-1", "limit: expected a number that is not negative, found \"-1\""),
            ("limit=99999999999", "limit: expected a smaller number, found \"99999999999\""),
            ("limit=5&cursor=%20x", "cursor: expected a whole number, found \" x\""),
            ("all=perhaps", "all: expected true or false, found \"perhaps\""),
        ] {
            let uri: Uri = format!("/session?{query}").parse().unwrap();
            match read::<Members>(&uri) {
                Err(Refusal::Unreadable { part: RequestPart::Query, message }) => {
                    assert_eq!(message, format!("cannot read the query: {want}"));
                }
                other => panic!("{query}: {other:?}"),
            }
        }
        let uri: Uri = "/session?limit=1&limit=2".parse().unwrap();
        let twice = read::<Members>(&uri).unwrap_err();
        let message = format!("{twice:?}");
        assert!(message.contains("duplicate field") && !message.contains("deserialize"), "{message}");
        let uri: Uri = "/session?limit=7&unknown=1".parse().unwrap();
        assert_eq!(read::<Members>(&uri).unwrap(), Members { limit: Some(7), ..Members::default() });
    }
}
