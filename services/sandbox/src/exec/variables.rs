//! The variables of programs in a sandbox.

use domain::egress::push::AGENT_EMAIL;
use std::collections::{BTreeMap, HashMap};

/// The home of every command.
const HOME: &str = "/home/agent";
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The terminal type of a program without a terminal.
pub const NO_TERMINAL: &str = "dumb";

/// The environment of a command: the variables of the caller; those of the network; those of the image, except what says who the user is; and those
/// that every command needs.
pub fn environment(
    requested: HashMap<String, String>,
    term: &str,
    network: &[(&str, &str)],
    image: &[String],
) -> Vec<String> {
    // Git commits with this address in repositories that name no author, such as those that tests make.
    let fixed = [("HOME", HOME), ("TERM", term), ("PATH", PATH), ("LANG", "C.UTF-8"), ("EMAIL", AGENT_EMAIL)];
    let image = image.iter().filter_map(|variable| variable.split_once('='));
    let image = image.filter(|(name, _)| !["HOME", "TERM"].contains(name));
    let mut env: BTreeMap<&str, &str> =
        fixed.into_iter().chain(image).chain(network.iter().copied()).collect();
    env.extend(requested.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    env.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn the_caller_comes_before_the_image_and_the_image_before_the_rest() {
        let requested =
            HashMap::from([("CI".to_owned(), "1".to_owned()), ("TERM".to_owned(), "xterm".to_owned())]);
        let image = ["PATH=/opt/go/bin", "HOME=/root", "TERM=vt100", "CI=0", "EMPTY=", "no_proxy=*"]
            .map(ToOwned::to_owned);
        let env = environment(requested, "dumb", &[("no_proxy", "localhost")], &image);
        assert_eq!(
            env,
            [
                "CI=1",
                "EMAIL=agent@flotilla.invalid",
                "EMPTY=",
                "HOME=/home/agent",
                "LANG=C.UTF-8",
                "PATH=/opt/go/bin",
                "TERM=xterm",
                "no_proxy=localhost"
            ]
        );
    }
}
