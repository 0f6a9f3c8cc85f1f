//! Handwritten answers, the same one in each protocol.

use crate::provider::Protocol;
use serde_json::{Value, json};

/// Builds an answer in `protocol`, event by event.
pub(crate) struct Wire {
    protocol: Protocol,
    text: String,
    at: usize,
}

impl Wire {
    pub(crate) fn new(protocol: Protocol) -> Self {
        let mut wire = Self { protocol, text: String::new(), at: 0 };
        match protocol {
            Protocol::Anthropic => {
                wire.event(&json!({"type":"message_start","message":{"model":"m"}}));
            }
            Protocol::OpenAiResponses => {
                wire.event(&json!({"type":"response.created","response":{"model":"m"}}));
            }
            Protocol::OpenAiChat | Protocol::Gemini => {}
        }
        wire
    }

    pub(crate) fn event(&mut self, value: &Value) {
        self.raw(&value.to_string());
    }

    pub(crate) fn raw(&mut self, data: &str) {
        self.text.push_str(&format!("data: {data}\n\n"));
    }

    /// A text in `pieces`; each is JSON text, with its quotes.
    pub(crate) fn text(mut self, pieces: &[&str]) -> Self {
        let at = self.at;
        self.at += 1;
        self.begin(at, &json!({"type":"text","text":""}), &json!({"type":"message"}));
        for piece in pieces {
            let data = match self.protocol {
                Protocol::Anthropic => format!(
                    r#"{{"type":"content_block_delta","index":{at},"delta":{{"type":"text_delta","text":{piece}}}}}"#
                ),
                Protocol::OpenAiChat => format!(r#"{{"choices":[{{"delta":{{"content":{piece}}}}}]}}"#),
                Protocol::OpenAiResponses => {
                    format!(r#"{{"type":"response.output_text.delta","output_index":{at},"delta":{piece}}}"#)
                }
                Protocol::Gemini => {
                    format!(r#"{{"candidates":[{{"content":{{"parts":[{{"text":{piece}}}]}}}}]}}"#)
                }
            };
            self.raw(&data);
        }
        self.stop(at)
    }

    pub(crate) fn reasoning(mut self, pieces: &[&str]) -> Self {
        let at = self.at;
        self.at += 1;
        self.begin(at, &json!({"type":"thinking","thinking":""}), &json!({"type":"reasoning"}));
        for piece in pieces {
            let value = match self.protocol {
                Protocol::Anthropic => json!({"type":"content_block_delta","index":at,
                    "delta":{"type":"thinking_delta","thinking":piece}}),
                Protocol::OpenAiChat => json!({"choices":[{"delta":{"reasoning_content":piece}}]}),
                Protocol::OpenAiResponses => {
                    json!({"type":"response.reasoning_summary_text.delta","output_index":at,"delta":piece})
                }
                Protocol::Gemini => {
                    json!({"candidates":[{"content":{"parts":[{"text":piece,"thought":true}]}}]})
                }
            };
            self.event(&value);
        }
        self.stop(at)
    }

    /// A call of `bash`; `pieces` together are its arguments as JSON text.
    pub(crate) fn call(mut self, pieces: &[&str]) -> Self {
        let at = self.at;
        self.at += 1;
        self.begin(
            at,
            &json!({"type":"tool_use","id":"c1","name":"bash","input":{}}),
            &json!({"type":"function_call","call_id":"c1","name":"bash","arguments":""}),
        );
        if self.protocol == Protocol::OpenAiChat {
            self.event(&json!({"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"bash"}}]}}]}));
        }
        if self.protocol == Protocol::Gemini {
            // Gemini sends arguments whole, never in pieces of text.
            let args = pieces.concat();
            self.raw(&format!(
                r#"{{"candidates":[{{"content":{{"parts":[{{"functionCall":{{"id":"c1","name":"bash","args":{args}}}}}]}}}}]}}"#
            ));
            return self;
        }
        for piece in pieces {
            let value = match self.protocol {
                Protocol::Anthropic => json!({"type":"content_block_delta","index":at,
                    "delta":{"type":"input_json_delta","partial_json":piece}}),
                Protocol::OpenAiChat | Protocol::Gemini => {
                    json!({"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":piece}}]}}]})
                }
                Protocol::OpenAiResponses => {
                    json!({"type":"response.function_call_arguments.delta","output_index":at,"delta":piece})
                }
            };
            self.event(&value);
        }
        self.stop(at)
    }

    /// The usage of the answer: `[prompt, answer]`, in the protocol's own fields.
    pub(crate) fn usage(mut self, [input, output]: [Value; 2]) -> Self {
        let value = match self.protocol {
            Protocol::Anthropic => json!({"type":"message_delta","delta":{},
                "usage":{"input_tokens":input,"output_tokens":output}}),
            Protocol::OpenAiChat => {
                json!({"choices":[],"usage":{"prompt_tokens":input,"completion_tokens":output}})
            }
            // Sent with the end.
            Protocol::OpenAiResponses => return self,
            Protocol::Gemini => json!({"candidates":[],
                "usageMetadata":{"promptTokenCount":input,"candidatesTokenCount":output}}),
        };
        self.event(&value);
        self
    }

    /// Ends the answer with `reason`, in the protocol's own word.
    pub(crate) fn end(self, reason: &str) -> Vec<u8> {
        self.end_with(reason, &Value::Null)
    }

    pub(crate) fn end_with(mut self, reason: &str, usage: &Value) -> Vec<u8> {
        match self.protocol {
            Protocol::Anthropic => {
                self.event(&json!({"type":"message_delta","delta":{"stop_reason":reason}}));
                self.event(&json!({"type":"message_stop"}));
            }
            Protocol::OpenAiChat => {
                self.event(&json!({"choices":[{"delta":{},"finish_reason":reason}]}));
                self.raw("[DONE]");
            }
            Protocol::OpenAiResponses if reason == "completed" => {
                self.event(&json!({"type":"response.completed","response":{"usage":usage}}));
            }
            Protocol::OpenAiResponses => self.event(
                &json!({"type":"response.incomplete","response":{"incomplete_details":{"reason":reason}}}),
            ),
            Protocol::Gemini => {
                self.event(&json!({"candidates":[{"content":{},"finishReason":reason}]}));
            }
        }
        self.text.into_bytes()
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        self.text.into_bytes()
    }

    fn begin(&mut self, at: usize, block: &Value, item: &Value) {
        match self.protocol {
            Protocol::Anthropic => {
                self.event(&json!({"type":"content_block_start","index":at,"content_block":block}));
            }
            Protocol::OpenAiResponses => {
                self.event(&json!({"type":"response.output_item.added","output_index":at,"item":item}));
            }
            Protocol::OpenAiChat | Protocol::Gemini => {}
        }
    }

    fn stop(mut self, at: usize) -> Self {
        if self.protocol == Protocol::Anthropic {
            self.event(&json!({"type":"content_block_stop","index":at}));
        }
        self
    }
}

/// The protocol's word for a complete answer.
pub(crate) fn stop(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Anthropic => "end_turn",
        Protocol::OpenAiChat => "stop",
        Protocol::OpenAiResponses => "completed",
        Protocol::Gemini => "STOP",
    }
}
