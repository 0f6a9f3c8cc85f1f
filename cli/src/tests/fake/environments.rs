//! The environments of the fake gateway: one that is ready, one whose build failed, two that a session makes, and some that a repository proposes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::{Answer, Fake};
use rpc::v1::{environment_service_server::EnvironmentService, *};
use serde_json::json;
use tonic::{Request, Response};

fn environment(key: &str, state: EnvironmentState) -> Environment {
    let project_id = "prj_1".to_owned();
    Environment {
        key: key.to_owned(),
        project_id,
        state: state.into(),
        started_at_ms: 1,
        stage: EnvironmentStage::Setup.into(),
        ..Environment::default()
    }
}

fn failed() -> Environment {
    Environment {
        code: "setup_failed".to_owned(),
        message: "the setup failed with exit code 3".to_owned(),
        ..environment("b", EnvironmentState::Failed)
    }
}

/// The setup and the install of a session, newest first.
fn built() -> [Environment; 2] {
    let setup =
        Environment { started_at_ms: 3_000, ended_at_ms: 4_000, ..environment("c", EnvironmentState::Ready) };
    let install = Environment {
        stage: EnvironmentStage::Install.into(),
        started_at_ms: 4_500,
        ended_at_ms: 7_000,
        ..environment("d", EnvironmentState::Ready)
    };
    [install, setup]
}

fn proposed(digest: &str) -> ProposedEnvironment {
    let document = json!({"environment": {"install": "one\n\u{1b}[2Jtwo\n"}});
    ProposedEnvironment {
        digest: digest.to_owned(),
        file: ".devcontainer.json".to_owned(),
        document: document.to_string(),
        unused: vec!["features: Flotilla builds no images".to_owned()],
        push_secrets: vec!["PUSH_TOKEN".to_owned()],
        ..ProposedEnvironment::default()
    }
}

#[tonic::async_trait]
impl EnvironmentService for Fake {
    async fn list_environments(
        &self,
        request: Request<ListEnvironmentsRequest>,
    ) -> Answer<ListEnvironmentsResponse> {
        let project_id = request.into_inner().project_id;
        self.0.lock().unwrap().orders.push(format!("list environments of {project_id:?}"));
        let mut environments = vec![environment("a", EnvironmentState::Ready), failed()];
        environments.iter_mut().for_each(|environment| environment.ended_at_ms = 2);
        // The builds of a session that asked for them are newer.
        let state = self.0.lock().unwrap();
        if state.begins_build && !state.prompt.parts.is_empty() {
            let mut built = built();
            if !state.orders.iter().any(|order| order == "log of c") {
                // An earlier attempt, which failed. The setup begins again before a client reads its log.
                built[1].started_at_ms = 2_000;
            }
            environments = built.into_iter().chain(environments).collect();
        }
        drop(state);
        Ok(Response::new(ListEnvironmentsResponse { environments }))
    }

    async fn get_environment_log(
        &self,
        request: Request<GetEnvironmentLogRequest>,
    ) -> Answer<GetEnvironmentLogResponse> {
        let key = request.into_inner().key;
        self.0.lock().unwrap().orders.push(format!("log of {key}"));
        let found = built().into_iter().find(|environment| environment.key == key);
        let log = match &found {
            Some(_) => format!("log of {key}").into_bytes(),
            None => b"one\n\x1b[2Jtwo\n".to_vec(),
        };
        let environment = found.or_else(|| Some(failed()));
        Ok(Response::new(GetEnvironmentLogResponse { environment, log }))
    }

    async fn remove_environment(
        &self,
        request: Request<RemoveEnvironmentRequest>,
    ) -> Answer<RemoveEnvironmentResponse> {
        let key = request.into_inner().key;
        self.0.lock().unwrap().orders.push(format!("remove environment {key}"));
        Ok(Response::new(RemoveEnvironmentResponse {}))
    }

    async fn list_proposed_environments(
        &self,
        request: Request<ListProposedEnvironmentsRequest>,
    ) -> Answer<ListProposedEnvironmentsResponse> {
        let environments = [["a"; 64], ["b"; 64]].map(|digits| proposed(&digits.concat())).to_vec();
        let longer = proposed(&format!("{}c", "b".repeat(63)));
        let more = self.0.lock().unwrap().proposed.clone();
        let mut environments: Vec<_> = environments.into_iter().chain([longer]).chain(more).collect();
        environments.retain(|environment| environment.digest.starts_with(&request.get_ref().digest));
        Ok(Response::new(ListProposedEnvironmentsResponse { environments }))
    }

    async fn get_session_environment(
        &self,
        _: Request<GetSessionEnvironmentRequest>,
    ) -> Answer<GetSessionEnvironmentResponse> {
        let environment = self.0.lock().unwrap().of_session.clone();
        Ok(Response::new(GetSessionEnvironmentResponse { environment }))
    }

    async fn decide_environment(
        &self,
        request: Request<DecideEnvironmentRequest>,
    ) -> Answer<DecideEnvironmentResponse> {
        let request = request.into_inner();
        let order = format!("decide {:?} {}", request.verdict(), request.digest);
        self.0.lock().unwrap().orders.push(order);
        let environment = ProposedEnvironment { verdict: request.verdict, ..proposed(&request.digest) };
        Ok(Response::new(DecideEnvironmentResponse { environment: Some(environment) }))
    }
}
