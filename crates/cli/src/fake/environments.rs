//! The environments of the fake gateway: one that is ready, and one whose build failed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use super::{Answer, Fake};
use rpc::v1::{environment_service_server::EnvironmentService, *};
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
        // The build of a session that asked for it is a newer one.
        let state = self.0.lock().unwrap();
        if state.begins_build && !state.prompt.parts.is_empty() {
            environments.insert(0, Environment { started_at_ms: 3, ..failed() });
        }
        drop(state);
        Ok(Response::new(ListEnvironmentsResponse { environments }))
    }

    async fn get_environment_log(
        &self,
        _: Request<GetEnvironmentLogRequest>,
    ) -> Answer<GetEnvironmentLogResponse> {
        let log = b"one\n\x1b[2Jtwo\n".to_vec();
        Ok(Response::new(GetEnvironmentLogResponse { environment: Some(failed()), log }))
    }

    async fn remove_environment(
        &self,
        request: Request<RemoveEnvironmentRequest>,
    ) -> Answer<RemoveEnvironmentResponse> {
        let key = request.into_inner().key;
        self.0.lock().unwrap().orders.push(format!("remove environment {key}"));
        Ok(Response::new(RemoveEnvironmentResponse {}))
    }
}
