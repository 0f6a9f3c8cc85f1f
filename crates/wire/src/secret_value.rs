//! Requests with the value of a secret. `Debug` does not show the value, and it is wiped from memory when the request is dropped.

use crate::v1::{PutForgeAppRequest, PutSecretRequest, SetSecretRequest, SetupGithubRequest};
use std::fmt;
use zeroize::Zeroize as _;

impl fmt::Debug for SetSecretRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetSecretRequest").field("project_id", &self.project_id).finish_non_exhaustive()
    }
}

impl fmt::Debug for PutSecretRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("PutSecretRequest");
        text.field("tenant_id", &self.tenant_id).field("project_id", &self.project_id).finish_non_exhaustive()
    }
}

impl fmt::Debug for SetupGithubRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetupGithubRequest").field("app_id", &self.app_id).finish_non_exhaustive()
    }
}

impl fmt::Debug for PutForgeAppRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PutForgeAppRequest").field("app_id", &self.app_id).finish_non_exhaustive()
    }
}

impl Drop for SetupGithubRequest {
    fn drop(&mut self) {
        self.private_key.zeroize();
        self.webhook_secret.zeroize();
    }
}

impl Drop for PutForgeAppRequest {
    fn drop(&mut self) {
        self.private_key.zeroize();
        self.webhook_secret.zeroize();
    }
}

impl Drop for SetSecretRequest {
    fn drop(&mut self) {
        self.value.zeroize();
    }
}

impl Drop for PutSecretRequest {
    fn drop(&mut self) {
        self.value.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_with_a_value_do_not_print_it() {
        let (name, value) = ("NPM_TOKEN".to_owned(), b"hunter2".to_vec());
        let set = SetSecretRequest {
            name: name.clone(),
            project_id: "prj_1".to_owned(),
            value: value.clone(),
            urls: vec![],
        };
        let put = PutSecretRequest {
            tenant_id: "t".to_owned(),
            project_id: "prj_1".to_owned(),
            name,
            value,
            actor: "ann".to_owned(),
            actor_key: String::new(),
            urls: vec![],
        };
        let secret = b"hunter2".to_vec();
        let mut set_up = SetupGithubRequest::default();
        (set_up.private_key, set_up.webhook_secret) = (secret.clone(), secret.clone());
        let mut put_app = PutForgeAppRequest::default();
        (put_app.private_key, put_app.webhook_secret) = (secret.clone(), secret);
        for text in [format!("{set_up:?}"), format!("{put_app:?}")] {
            let bytes = format!("{:?}", b"hunter2");
            assert!(text.contains("app_id") && !text.contains(bytes.trim_matches(['[', ']'])), "{text}");
        }
        for text in [format!("{set:?}"), format!("{put:#?}")] {
            let bytes = format!("{:?}", b"hunter2");
            assert!(text.contains("prj_1") && !text.contains("hunter2"), "{text}");
            assert!(!text.contains(bytes.trim_matches(['[', ']'])), "{text}");
        }
    }
}
