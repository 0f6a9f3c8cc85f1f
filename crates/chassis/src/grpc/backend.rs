//! Reports why a service of ours does not answer: a mistake of the operator, or silence.

use super::tls::{explain, find_problem};
use tonic::Status;

/// A service that gateways and workers call with a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    Sandbox,
    Broker,
}

impl Backend {
    /// Logs why a call failed: as an error if only the operator can mend it, because the service is not trusted or `refuses_token` of this process. No tenant must
    /// read that as a mistake of its own.
    pub fn report(self, status: &Status, refuses_token: fn(&Status) -> bool) {
        let mistake =
            if refuses_token(status) { Some(self.refused_token()) } else { self.find_mistake(status) };
        match mistake {
            Some(mistake) => tracing::error!("{mistake}"),
            None => tracing::warn!("the {} does not answer: {}", self.name(), explain(status)),
        }
    }

    fn refused_token(self) -> String {
        let (name, variable) = (self.name(), self.variable());
        format!(
            "the {name} refuses the token of this process: check that {variable}_TOKEN here is the one that the {name} has for this kind of caller, in {variable}_TOKENS or \
             {variable}_TOKEN"
        )
    }

    /// What is wrong with the check of its certificate; `None`: nothing.
    fn find_mistake(self, status: &Status) -> Option<String> {
        let (name, variable) = (self.name(), self.variable());
        let problem = find_problem(status)?;
        Some(format!(
            "the {name} is not trusted: {problem}; check {variable}_URL, {variable}_CA and {variable}_SERVER_NAME"
        ))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox service",
            Self::Broker => "broker",
        }
    }

    /// The beginning of its variables.
    fn variable(self) -> &'static str {
        match self {
            Self::Sandbox => "FLOTILLA_SANDBOX",
            Self::Broker => "FLOTILLA_BROKER",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_token_is_told_with_the_variable_of_its_service() {
        for (backend, variable) in
            [(Backend::Sandbox, "FLOTILLA_SANDBOX_TOKEN"), (Backend::Broker, "FLOTILLA_BROKER_TOKEN")]
        {
            let told = backend.refused_token();
            assert!(told.contains(&format!("check that {variable} here")), "{told}");
        }
        assert_eq!(Backend::Sandbox.find_mistake(&Status::unavailable("connection refused")), None);
    }
}
