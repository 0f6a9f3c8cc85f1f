//! The configuration of an image: what its processes get, and the digests of its unpacked layers.

use super::{
    digest::Digest,
    manifest::{Platform, parse, unreadable},
};
use crate::images::error::ImageError;
use serde::Deserialize;

/// Bytes of all variables of an image together. Beyond it: `image_too_large`.
const ENVIRONMENT_BYTES_MAX: usize = 256 * 1024;
/// Bytes of the working directory or the user of an image. Beyond it: `image_too_large`.
const WORD_BYTES_MAX: usize = 4_096;

/// What a sandbox takes from it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Configuration {
    /// `NAME=value`, in the order of the image.
    pub environment: Vec<String>,
    /// Empty: the image does not say.
    pub working_directory: String,
    /// Empty: the image does not say.
    pub user: String,
    /// The digests of the unpacked layers, lowest first.
    pub diff_ids: Vec<Digest>,
}

/// Only the fields that count: builders of twelve years write the others in many ways.
#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
    config: Option<Process>,
    rootfs: RootFs,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Process {
    env: Option<Vec<String>>,
    working_dir: Option<String>,
    user: Option<String>,
}

#[derive(Deserialize)]
struct RootFs {
    diff_ids: Option<Vec<String>>,
}

impl Configuration {
    /// Parses the configuration of an image with this number of layers.
    ///
    /// # Errors
    /// `Unsupported`, `TooLarge`.
    pub fn parse(bytes: &[u8], platform: Platform, layers: usize) -> Result<Self, ImageError> {
        let Document { os, architecture, config, rootfs } = parse(bytes)?;
        platform.check(&os, &architecture)?;
        let diff_ids: Result<Vec<Digest>, _> =
            rootfs.diff_ids.unwrap_or_default().iter().map(|text| text.parse()).collect();
        let diff_ids = diff_ids.map_err(|_| unreadable("a layer has a digest that is none of SHA-256"))?;
        if diff_ids.len() != layers {
            let text = format!("the manifest has {layers} layers, and the configuration {}", diff_ids.len());
            return Err(unreadable(&text));
        }
        let Process { env, working_dir, user } = config.unwrap_or_default();
        let (environment, words) =
            (env.unwrap_or_default(), [working_dir, user].map(Option::unwrap_or_default));
        if environment.iter().map(String::len).sum::<usize>() > ENVIRONMENT_BYTES_MAX {
            let text = format!("the variables of the image have more than {ENVIRONMENT_BYTES_MAX} bytes");
            return Err(ImageError::TooLarge(text));
        }
        if words.iter().any(|word| word.len() > WORD_BYTES_MAX) {
            let text = format!(
                "the working directory or the user of the image has more than {WORD_BYTES_MAX} bytes"
            );
            return Err(ImageError::TooLarge(text));
        }
        let is_variable = |text: &String| text.find('=').is_some_and(|at| at > 0) && !text.contains('\0');
        if !environment.iter().all(is_variable) || words.iter().any(|word| word.contains('\0')) {
            return Err(unreadable("a variable has no name, or a text has a zero byte"));
        }
        let [working_directory, user] = words;
        Ok(Self { environment, working_directory, user, diff_ids })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    const OWN: Platform = Platform { architecture: "amd64" };

    fn read(document: &Value) -> Result<Configuration, &'static str> {
        Configuration::parse(document.to_string().as_bytes(), OWN, 1).map_err(|error| error.code().as_str())
    }

    fn with(config: &Value) -> Value {
        json!({
            "os": "linux", "architecture": "amd64", "config": config,
            "rootfs": {"type": "layers", "diff_ids": [Digest::of(b"x").as_str()]},
        })
    }

    #[test]
    fn what_the_processes_get_is_read_and_the_rest_is_not() {
        let config = json!({
            "Env": ["PATH=/bin", "EMPTY=", "A=b=c"], "WorkingDir": "/app", "User": "1000:1000",
            "ExposedPorts": 7, "Volumes": null, "Cmd": null,
        });
        let want = Configuration {
            environment: ["PATH=/bin", "EMPTY=", "A=b=c"].map(ToOwned::to_owned).to_vec(),
            working_directory: "/app".to_owned(),
            user: "1000:1000".to_owned(),
            diff_ids: vec![Digest::of(b"x")],
        };
        assert_eq!(read(&with(&config)), Ok(want));
        let empty = Configuration { diff_ids: vec![Digest::of(b"x")], ..Configuration::default() };
        for config in [json!(null), json!({}), json!({"Env": null, "User": null})] {
            assert_eq!(read(&with(&config)), Ok(empty.clone()));
        }
    }

    #[test]
    fn hostile_configurations_are_refused() {
        let long = |bytes: usize| format!("A={}", "x".repeat(bytes - 2));
        for (document, code) in [
            (json!([]), "image_unsupported"),
            (json!({}), "image_unsupported"),
            (json!({"rootfs": {"diff_ids": []}}), "image_unsupported"),
            (json!({"rootfs": {"diff_ids": ["x"]}}), "image_unsupported"),
            (
                json!({"rootfs": {"diff_ids": [Digest::of(b"").as_str(), Digest::of(b"").as_str()]}}),
                "image_unsupported",
            ),
            (
                json!({"os": "windows", "rootfs": {"diff_ids": [Digest::of(b"").as_str()]}}),
                "image_unsupported",
            ),
            (with(&json!({"Env": "A=b"})), "image_unsupported"),
            (with(&json!({"Env": ["=b"]})), "image_unsupported"),
            (with(&json!({"Env": ["A"]})), "image_unsupported"),
            (with(&json!({"Env": ["A=\0"]})), "image_unsupported"),
            (with(&json!({"User": "a\0"})), "image_unsupported"),
            (with(&json!({"Env": [long(ENVIRONMENT_BYTES_MAX + 1)]})), "image_too_large"),
            (with(&json!({"WorkingDir": long(WORD_BYTES_MAX + 1)})), "image_too_large"),
        ] {
            assert_eq!(read(&document), Err(code), "{}", domain::text::head(&document.to_string(), 200));
        }
        assert!(
            read(&with(&json!({"Env": [long(ENVIRONMENT_BYTES_MAX)], "User": long(WORD_BYTES_MAX)}))).is_ok()
        );
    }
}
