//! One trace from the prompt to the model call and the command, as an OpenTelemetry collector sees it.

use e2e::{Stack, turn::run};
use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::any_value::Value,
    trace::v1::Span,
};
use std::sync::{Arc, Mutex};
use tonic::{Request, Response, Status};

/// A collector that stores what it receives.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Span>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let spans =
            request.into_inner().resource_spans.into_iter().flat_map(|r| r.scope_spans).flat_map(|s| s.spans);
        self.0.lock().unwrap().extend(spans);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    async fn start() -> (Self, String) {
        let collector = Self::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let incoming = tonic::transport::server::TcpIncoming::from(listener);
        let service = TraceServiceServer::new(collector.clone());
        tokio::spawn(tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming));
        (collector, url)
    }

    fn spans_named(&self, name: &str) -> Vec<Span> {
        self.0.lock().unwrap().iter().filter(|span| span.name == name).cloned().collect()
    }
}

fn attribute(span: &Span, key: &str) -> Option<String> {
    let value = span.attributes.iter().find(|pair| pair.key == key)?.value.clone()?.value?;
    Some(match value {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    })
}

// The exporter is global in a process, so this file has one test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_trace_leads_from_the_prompt_to_the_command() {
    let (collector, url) = Collector::start().await;
    let config = chassis::telemetry::TelemetryConfig {
        log_format: chassis::telemetry::LogFormat::Json,
        log_filter: "info".to_owned(),
        otlp_endpoint: Some(url),
    };
    let telemetry = chassis::telemetry::start("e2e", &config).expect("telemetry");
    let mut stack = Stack::start().await;
    let session = stack.session().await;
    let (outcome, _) = run(&stack.api, &session, "@tool bash {\"command\":\"true\"}\n@text over").await;
    assert_eq!(outcome, "done");
    // The span of a turn ends a little after its last event.
    stack.drain_worker(0).await;
    drop(stack);
    telemetry.shutdown().await;

    let turn = collector.spans_named("turn").into_iter().next().expect("a turn");
    assert_eq!(attribute(&turn, "session.id").as_deref(), Some(session.as_str()));
    let prompts = collector.spans_named("rpc");
    let prompt = prompts
        .iter()
        .find(|span| attribute(span, "rpc.method").is_some_and(|method| method.ends_with("AcceptPrompt")));
    let prompt = prompt.expect("the prompt's call");
    assert_eq!(turn.trace_id, prompt.trace_id, "the turn belongs to the prompt's trace");
    assert_eq!(turn.parent_span_id, prompt.span_id);
    let chat = collector.spans_named("chat");
    assert_eq!(chat.len(), 2, "two model calls");
    for (key, want) in [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "chat"),
        ("gen_ai.request.model", "demo"),
    ] {
        assert_eq!(attribute(&chat[0], key).as_deref(), Some(want), "{key}");
    }
    assert!(attribute(&chat[0], "gen_ai.usage.output_tokens").is_some());
    let tool = collector.spans_named("execute_tool").into_iter().next().expect("a tool");
    let execs = collector
        .0
        .lock()
        .unwrap()
        .iter()
        .filter(|span| {
            attribute(span, "exec.id").is_some()
                && span.name != "execute_tool"
                && span.trace_id == turn.trace_id
        })
        .count();
    assert!(execs > 0, "the span of the sandbox belongs to the trace");
    for span in chat.iter().chain([&tool]) {
        assert_eq!(span.trace_id, turn.trace_id, "{}", span.name);
    }
}
