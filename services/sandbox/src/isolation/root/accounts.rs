//! The users and groups that a program in a sandbox finds by name. Every process inside runs as the agent, whatever the image says.

/// The agent's line of /etc/passwd. Git takes the name of an author from it where a repository has none.
const AGENT_USER: &str = "agent:x:1000:1000:Flotilla Agent:/home/agent:/bin/bash";
/// The agent's line of /etc/group.
const AGENT_GROUP: &str = "agent:x:1000:";
/// The users of a root without any, among them the one that owns everything foreign.
const USERS: &str =
    "root:x:0:0:root:/:/usr/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
const GROUPS: &str = "root:x:0:\nnogroup:x:65534:\n";

/// The two files of accounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accounts {
    pub passwd: String,
    pub group: String,
}

impl Accounts {
    /// Adds the agent to the files of an image, or to ours where the image has none. The agent replaces the user with its name or its id: a
    /// program that looks up its own id must find its own home.
    pub fn with_agent(passwd: Option<&str>, group: Option<&str>) -> Self {
        Self {
            passwd: merge(passwd.unwrap_or(USERS), AGENT_USER),
            group: merge(group.unwrap_or(GROUPS), AGENT_GROUP),
        }
    }
}

/// Replaces the lines with the name or the id of `agent` by it.
fn merge(text: &str, agent: &str) -> String {
    let key = |line: &str| {
        let mut fields = line.split(':');
        (fields.next().map(str::to_owned), fields.nth(1).map(str::to_owned))
    };
    let (name, id) = key(agent);
    let others = text.lines().filter(|line| {
        let (other_name, other_id) = key(line);
        !line.trim().is_empty() && other_name != name && other_id != id
    });
    others.chain([agent]).map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_replaces_who_has_its_name_or_its_id() {
        let passwd = "root:x:0:0::/root:/bin/sh\nnode:x:1000:1000::/home/node:/bin/sh\n\nagent:x:7:7:::\n_apt:x:42:65534:::";
        let accounts = Accounts::with_agent(Some(passwd), None);
        let want = format!("root:x:0:0::/root:/bin/sh\n_apt:x:42:65534:::\n{AGENT_USER}\n");
        assert_eq!(accounts, Accounts { passwd: want, group: format!("{GROUPS}{AGENT_GROUP}\n") });
    }
}
