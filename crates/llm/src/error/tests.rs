#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::{Error, ErrorKind};
use crate::protocols::classify::{from_answer, from_event};
use crate::retry_after;
use domain::limits::{MODEL_ERROR_BODY_BYTES_MAX, MODEL_ERROR_MESSAGE_BYTES_MAX};
use serde_json::json;
use std::time::{Duration, SystemTime};

#[test]
fn refused_pictures_and_documents_are_recognized() {
    for (status, message, want) in [
        (400, "Could not process image", true),
        (
            400,
            "messages.3.content.1.image.source.base64: image exceeds 5 MB maximum: 6100000 bytes > 5242880 bytes",
            true,
        ),
        (400, "At least one of the image dimensions exceed max allowed size: 8000 pixels", true),
        (400, "The PDF specified was not valid.", true),
        (400, "Invalid base64 data", true),
        (400, "You uploaded an unsupported image. Please make sure your image is valid.", true),
        (404, "No endpoints found that support image input", true),
        (400, "Unable to process input image. Please retry.", true),
        (400, "The document has no pages.", true),
        (400, "content_policy_violation: the image was refused", true),
        (500, "image input is not supported - hint: provide the mmproj", true),
        (500, "the image service failed", false),
        (529, "the image service is overloaded", false),
        (401, "no vision for this key", false),
        (400, "messages: text content blocks must be non-empty", false),
        (400, "prompt is too long: 9 tokens, images included", false),
    ] {
        let error = from_answer(status, &json!({"error": {"message": message}}).to_string());
        assert_eq!(error.is_about_media(), want, "{status} {message}: {error:?}");
    }
}

#[test]
fn each_error_answer_gets_the_kind_that_fits_the_callers_options() {
    use ErrorKind as K;
    for (status, body, kind, retryable) in [
        (401, r#"{"error":{"code":"invalid_api_key","message":"wrong"}}"#, K::Auth, false),
        (403, "", K::Auth, false),
        (
            404,
            r#"{"type":"error","error":{"type":"not_found_error","message":"model: x"}}"#,
            K::NotFound,
            false,
        ),
        (400, r#"{"error":{"message":"prompt is too long: 9 tokens > 8 maximum"}}"#, K::Overflow, false),
        (400, r#"{"error":{"code":"context_length_exceeded","message":"no"}}"#, K::Overflow, false),
        (
            400,
            r#"{"error":{"type":"exceed_context_size_error","code":400,"message":"n"}}"#,
            K::Overflow,
            false,
        ),
        (413, "", K::Overflow, false),
        (429, r#"{"error":{"message":"maximum context length per minute"}}"#, K::RateLimited, true),
        (429, r#"{"error":{"code":"insufficient_quota","message":"pay"}}"#, K::Quota, false),
        (400, r#"{"error":{"message":"Your credit balance is too low"}}"#, K::Quota, false),
        (400, r#"{"error":{"code":"content_filter","message":"no"}}"#, K::ContentFilter, false),
        (400, r#"{"error":"odd shape"}"#, K::Invalid, false),
        (422, "nonsense", K::Invalid, false),
        (500, "", K::Server, true),
        (503, "<html>busy</html>", K::Overloaded, true),
        (529, r#"{"error":{"type":"overloaded_error","message":"busy"}}"#, K::Overloaded, true),
        (503, r#"{"error":{"type":"server_error","message":"busy"}}"#, K::Overloaded, true),
        (504, "", K::Timeout, true),
        (302, "", K::Protocol, false),
        (
            400,
            r#"{"error":{"code":400,"message":"API key not valid","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}"#,
            K::Auth,
            false,
        ),
        (
            400,
            r#"{"error":{"message":"The input token count (9) exceeds the maximum number of tokens allowed (8).","status":"INVALID_ARGUMENT"}}"#,
            K::Overflow,
            false,
        ),
        (403, r#"[{"error":{"code":403,"message":"no","status":"PERMISSION_DENIED"}}]"#, K::Auth, false),
        (
            429,
            r#"{"error":{"message":"You exceeded your current quota","status":"RESOURCE_EXHAUSTED"}}"#,
            K::Quota,
            false,
        ),
        (
            429,
            r#"{"error":{"message":"Resource has been exhausted","status":"RESOURCE_EXHAUSTED"}}"#,
            K::RateLimited,
            true,
        ),
        (503, r#"{"error":{"code":503,"message":"busy","status":"UNAVAILABLE"}}"#, K::Overloaded, true),
    ] {
        let error = from_answer(status, body);
        assert_eq!((error.kind, error.is_retryable()), (kind, retryable), "{status} {body}: {error}");
        assert_eq!(error.status, Some(status));
    }
}

#[test]
fn an_error_event_carries_its_status_and_a_refused_sample_is_retryable() {
    let overloaded =
        from_event(&json!({"type":"error","error":{"type":"overloaded_error","message":"busy"}}));
    assert_eq!((overloaded.kind, overloaded.status), (ErrorKind::Overloaded, None));
    let limited = from_event(&json!({"error":{"code":429,"message":"slow down"}}));
    assert_eq!((limited.kind, limited.status), (ErrorKind::RateLimited, Some(429)));
    let invalid = from_event(&json!({"error":{"type":"invalid_request_error","message":"no"}}));
    assert_eq!((invalid.kind, invalid.status), (ErrorKind::Invalid, None));
    let sample = from_event(&json!({"error":{"code":"tool_use_failed","message":"m","status_code":400}}));
    assert_eq!((sample.kind, sample.is_retryable()), (ErrorKind::Invalid, true));
}

#[test]
fn a_quota_error_with_a_short_delay_is_a_rate_limit() {
    let body = r#"{"error":{"code":429,"message":"You exceeded your current quota","status":"RESOURCE_EXHAUSTED",
        "details":[{"quotaId":"PerMinute"},{"retryDelay":"34.4s"}]}}"#;
    let error = from_answer(429, body);
    assert_eq!(
        (error.kind, error.retry_after_ms, error.is_retryable()),
        (ErrorKind::RateLimited, Some(34_400), true)
    );
}

#[test]
fn texts_are_cut_at_a_character_boundary() {
    let long = "ä".repeat(MODEL_ERROR_BODY_BYTES_MAX);
    let error = from_answer(500, &long).of("anthropic");
    assert!(error.message.len() <= MODEL_ERROR_MESSAGE_BYTES_MAX && error.message.ends_with('…'));
    assert!(error.body.unwrap().len() <= MODEL_ERROR_BODY_BYTES_MAX);
    assert_eq!(Error::new(ErrorKind::Server, "short").message, "short");
}

#[test]
fn retry_after_is_read_in_all_its_forms() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let in_a_minute = httpdate::fmt_http_date(now + Duration::from_secs(60));
    let a_minute_ago = httpdate::fmt_http_date(now - Duration::from_secs(60));
    for (ms, after, want) in [
        (Some("50"), Some("7"), Some(50)),
        (None, Some("7"), Some(7_000)),
        (None, Some("1.5"), Some(1_500)),
        (Some("x"), Some("2"), Some(2_000)),
        (None, Some(in_a_minute.as_str()), Some(60_000)),
        (None, Some(a_minute_ago.as_str()), Some(0)),
        (None, Some("-1"), None),
        (None, Some("soon"), None),
        (None, Some("inf"), None),
        (None, None, None),
    ] {
        let date = httpdate::fmt_http_date(now);
        assert_eq!(retry_after::parse(ms, after, Some(&date)), want, "{ms:?} {after:?}");
    }
    let in_an_hour = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(3_600));
    let wait_ms = retry_after::parse(None, Some(&in_an_hour), None).unwrap();
    assert!((3_500_000..=3_600_000).contains(&wait_ms), "without a date, by our own clock: {wait_ms}");
}
