//! What a team adds to the sandboxes of its sessions: variables, and scripts that prepare them.

use serde::{Deserialize, Serialize};

/// Bytes of one script of an environment. Beyond it: `settings_invalid`, `config_invalid` or `argument_invalid`.
pub const ENVIRONMENT_SCRIPT_BYTES_MAX: usize = 32 * 1024;
/// Variables that the settings of one level give to sandboxes. Beyond it: `settings_invalid` or `config_invalid`.
pub const ENVIRONMENT_VARIABLES_MAX: usize = 64;
/// Bytes of the name and the value of one of them. Beyond it: `settings_invalid` or `config_invalid`.
pub const ENVIRONMENT_VARIABLE_BYTES_MAX: usize = 4 * 1024;

/// What the programs of a sandbox may do beyond what every sandbox may. Each makes the wall between a session and its machine thinner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SandboxOptions {
    /// They may trace each other: debuggers, `strace`, LeakSanitizer.
    pub allow_ptrace: bool,
    /// They may make user namespaces, and mounts and other namespaces in them: browsers, rootless builders.
    pub allow_user_namespaces: bool,
}

impl SandboxOptions {
    pub const NONE: Self = Self { allow_ptrace: false, allow_user_namespaces: false };
    pub const ALL: Self = Self { allow_ptrace: true, allow_user_namespaces: true };
}

/// What names the certificates of CAs: each ecosystem has a variable of its own.
pub const CA_VARIABLES: [&str; 8] = [
    "SSL_CERT_FILE",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "npm_config_cafile",
    "CARGO_HTTP_CAINFO",
    "GIT_SSL_CAINFO",
    "CURL_CA_BUNDLE",
];
/// The other variables that the sandbox sets itself: who the user is, and what leads programs to its network. They are the same in every session.
const OWN_VARIABLES: [&str; 19] = [
    "HOME",
    "TERM",
    "APT_CONFIG",
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "NO_PROXY",
    "no_proxy",
    "ALL_PROXY",
    "all_proxy",
    "NODE_USE_ENV_PROXY",
    "npm_config_fetch_retries",
    "PIP_RETRIES",
    "MAVEN_OPTS",
    "GRADLE_OPTS",
    "GIT_CONFIG_COUNT",
    "GIT_CONFIG_KEY_0",
    "GIT_CONFIG_VALUE_0",
];

/// Whether a text can be a script of an environment.
pub fn is_script(text: &str) -> bool {
    text.len() <= ENVIRONMENT_SCRIPT_BYTES_MAX && !text.trim().is_empty() && !text.contains('\0')
}

/// Whether the sandbox sets a variable itself.
pub fn is_own_variable(name: &str) -> bool {
    OWN_VARIABLES.contains(&name) || CA_VARIABLES.contains(&name)
}

/// Whether `name` can be the name of a variable of a shell.
pub fn is_variable_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    let begins = bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    begins && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The variables of an image with those of the settings, which win. Sorted by name; each is `NAME=value`.
pub fn merged_variables<'a>(
    image: &'a [String],
    settings: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> Vec<String> {
    let image = image.iter().filter_map(|variable| variable.split_once('='));
    let settings = settings.into_iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let merged: std::collections::BTreeMap<&str, &str> = image.chain(settings).collect();
    merged.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn names_are_those_of_a_shell_and_not_the_sandboxs_own() {
        for (name, is_name, is_own) in [
            ("CI", true, false),
            ("_x9", true, false),
            ("PATH", true, false),
            ("HOME", true, true),
            ("https_proxy", true, true),
            ("", false, false),
            ("9X", false, false),
            ("A=B", false, false),
            ("A B", false, false),
            ("É", false, false),
        ] {
            assert_eq!((is_variable_name(name), is_own_variable(name)), (is_name, is_own), "{name}");
        }
    }

    #[test]
    fn a_script_says_something_and_is_bounded() {
        assert!(is_script("npm ci") && is_script(&"x".repeat(ENVIRONMENT_SCRIPT_BYTES_MAX)));
        for text in ["", " \n", "a\0b", &"x".repeat(ENVIRONMENT_SCRIPT_BYTES_MAX + 1)] {
            assert!(!is_script(text), "{}", text.len());
        }
    }

    #[test]
    fn the_settings_come_before_the_image() {
        let image = ["PATH=/opt/bin".to_owned(), "CI=0".to_owned()];
        let settings =
            BTreeMap::from([("CI".to_owned(), "1".to_owned()), ("A".to_owned(), "x=y".to_owned())]);
        assert_eq!(merged_variables(&image, &settings), ["A=x=y", "CI=1", "PATH=/opt/bin"]);
    }
}
