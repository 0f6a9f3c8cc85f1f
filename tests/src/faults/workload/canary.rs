//! Canaries: unique words. Each names its tenant, its session and the one call or prompt that may contain it, so that the
//! checker knows where it may occur.

const PREFIX: &str = "cn.t";

/// Makes the canaries of one session: `cn.t<tenant>.s<session>.<number>`.
#[derive(Debug, Clone)]
pub struct Canaries {
    tenant: usize,
    session: usize,
    count: usize,
}

impl Canaries {
    /// Creates the canaries of a session. Sessions are numbered over all tenants.
    pub fn new(tenant: usize, session: usize) -> Self {
        Self { tenant, session, count: 0 }
    }

    pub fn make(&mut self) -> String {
        self.count += 1;
        format!("{PREFIX}{}.s{}.{}", self.tenant, self.session, self.count)
    }
}

/// Finds the canaries in a text, in order.
pub fn find(text: &str) -> Vec<&str> {
    let word = |(at, _)| {
        let rest = &text[at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '.').unwrap_or(rest.len());
        rest[..end].trim_end_matches('.')
    };
    text.match_indices(PREFIX).map(word).filter(|word| tenant(word).is_some()).collect()
}

/// Returns the tenant that may see a canary; `None` for other words.
pub fn tenant(canary: &str) -> Option<usize> {
    canary.strip_prefix(PREFIX)?.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canaries_are_found_in_any_text() {
        let mut canaries = Canaries::new(3, 17);
        let (first, second) = (canaries.make(), canaries.make());
        assert_eq!((first.as_str(), second.as_str()), ("cn.t3.s17.1", "cn.t3.s17.2"));
        let text = format!("say \\\"{first}\\\" and {second}. cn.t cn.tx.s1");
        assert_eq!(find(&text), [first.as_str(), second.as_str()]);
        assert_eq!((tenant(&first), tenant("cn.tx.1"), tenant("other")), (Some(3), None, None));
    }
}
