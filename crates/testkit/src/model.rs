//! The scripted model on a loopback port.

use model_script::{self, journal::Journal, script::Script};
use tokio::{net::TcpListener, sync::oneshot};

/// A scripted model that runs as long as this value lives.
#[derive(Debug)]
pub struct ScriptedModel {
    /// For example `http://127.0.0.1:41234`; its routes begin with `/v1`.
    pub url: String,
    /// The requests that it received.
    pub journal: Journal,
    _stop: oneshot::Sender<()>,
}

/// Starts a model in the background.
pub async fn start(script: Script) -> ScriptedModel {
    let journal = script.journal();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async move {
        // The sender is dropped with the model; nothing is ever sent.
        let _ = stopped.await;
    };
    tokio::spawn(async move { model_script::serve(listener, script, stopped).await });
    ScriptedModel { url, journal, _stop: stop }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test]
    async fn a_model_answers_by_its_script_and_records_its_requests() {
        let model = crate::model("[[rule]]\n[[rule.step]]\ntext = \"Forty-two.\"").await;
        let body =
            r#"{"model":"scripted","max_tokens":9,"messages":[{"role":"user","content":"How many?"}]}"#;
        let request = format!(
            "POST /v1/messages HTTP/1.1\r\nhost: model\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len(),
        );
        let mut stream =
            tokio::net::TcpStream::connect(model.url.trim_start_matches("http://")).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        crate::within("the model answers", stream.read_to_string(&mut answer)).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("Forty-two."), "{answer}");
        let requests = model.journal.requests();
        assert_eq!(
            requests.iter().map(|request| request.path.as_str()).collect::<Vec<_>>(),
            ["/v1/messages"]
        );
    }
}
