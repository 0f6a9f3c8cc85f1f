//! What a session may reach of the network: names of hosts, the lists of settings that allow them, and the git repositories for which settings name a
//! credential, with their objects of Git LFS. And where people may push what a session has made, how a setup gets its secrets, which servers get others, and how programs say that they have no network.

pub mod allow;
pub mod git;
pub mod host;
pub mod lfs;
pub mod no_network;
pub mod push;
pub mod secret_servers;
pub mod secrets;

use crate::ids::Timestamp;
use serde::Serialize;

/// Connections of a session to one host with one result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressAccess {
    /// When the first of them began.
    pub began_at: Timestamp,
    /// Empty: the requests named none.
    pub host: String,
    /// The code of the refusal; empty: they went through.
    pub code: String,
    pub connections: u64,
    /// Bytes to the host and from it.
    pub bytes: u64,
}

/// What a push brought to a repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PushReceipt {
    /// The address of the repository, without a user or a password.
    pub url: String,
    pub branch: String,
    /// Its newest commit.
    pub commit: String,
    /// New commits on the branch; 0: it had this commit already.
    pub commits: u32,
    /// Files that the new commits change.
    pub files: u32,
}

impl PushReceipt {
    pub fn sentence(&self) -> String {
        let Self { url, branch, commit, commits, files } = self;
        if *commits == 0 {
            return format!("{branch} of {url} is already at {commit}");
        }
        format!("pushed {} to {branch} of {url}: {commit}", content(*commits, *files))
    }

    /// What a push would do, in a sentence.
    pub fn intention(&self) -> String {
        let Self { url, branch, commits, files, .. } = self;
        format!("would push {} to {branch} of {url}", content(*commits, *files))
    }
}

fn content(commits: u32, files: u32) -> String {
    format!("{} with {}", count(commits, "commit"), count(files, "file"))
}

fn count(number: u32, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_says_what_went_where() {
        let receipt = |commits, files| PushReceipt {
            url: "https://h/r".to_owned(),
            branch: "agent/x".to_owned(),
            commit: "c0ffee".to_owned(),
            commits,
            files,
        };
        for (receipt, want) in [
            (receipt(1, 2), "pushed 1 commit with 2 files to agent/x of https://h/r: c0ffee"),
            (receipt(2, 1), "pushed 2 commits with 1 file to agent/x of https://h/r: c0ffee"),
            (receipt(0, 0), "agent/x of https://h/r is already at c0ffee"),
        ] {
            assert_eq!(receipt.sentence(), want);
        }
    }
}
