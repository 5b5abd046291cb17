//! Answers that no method gives: messages that are no JSON-RPC messages, and answers of the library in plain text, become
//! errors of JSON-RPC (section 5.1 of JSON-RPC 2.0).

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The text is not JSON.
const PARSE_ERROR: i32 = -32700;
/// The JSON is not a message of the protocol.
const INVALID_REQUEST: i32 = -32600;

/// The body of an answer to a client.
pub(super) type McpBody = BoxBody<Bytes, std::convert::Infallible>;

/// The reason why a message cannot be served.
#[derive(Debug)]
pub(crate) struct MessageFault {
    status: StatusCode,
    code: i32,
    message: Cow<'static, str>,
    /// The id of the message; `null` if it has none that can be read.
    id: Value,
}

/// Checks that a text is one message of the protocol. The library checks its method and its parameters.
///
/// # Errors
///
/// Returns an error for a text that is not JSON, for a batch, and for an object that is no message.
pub(crate) fn check_message(text: &[u8]) -> Result<(), MessageFault> {
    let value: &RawValue = serde_json::from_slice(text).map_err(|error| {
        let message = format!("Parse error: the request body is not valid JSON: {error}.");
        MessageFault { code: PARSE_ERROR, ..MessageFault::invalid(message, Value::Null) }
    })?;
    match value.get().as_bytes().first() {
        Some(b'{') => {}
        Some(b'[') => {
            let message = "Invalid Request: batches are not supported; send each message by itself.";
            return Err(MessageFault::invalid(message, Value::Null));
        }
        _ => return Err(MessageFault::invalid("Invalid Request: a message is a JSON object.", Value::Null)),
    }
    let invalid = |message| MessageFault::invalid(message, Value::Null);
    let members: BTreeMap<Cow<'_, str>, &RawValue> =
        serde_json::from_str(value.get()).map_err(|_| invalid("Invalid Request: a member cannot be read."))?;
    let member = |name: &str| members.get(name).map(|value| value.get());
    let id = match member("id") {
        None => Value::Null,
        Some(text) => {
            let id = serde_json::from_str::<Value>(text).ok().filter(|id| id.is_string() || id.is_i64());
            id.ok_or_else(|| invalid("Invalid Request: 'id' must be a string or an integer."))?
        }
    };
    let invalid = |message| Err(MessageFault::invalid(message, id.clone()));
    if member("jsonrpc") != Some("\"2.0\"") {
        return invalid("Invalid Request: 'jsonrpc' must be \"2.0\".");
    }
    match member("method") {
        Some(method) if !method.starts_with('"') => return invalid("Invalid Request: 'method' must be a string."),
        None if member("result").is_none() && member("error").is_none() => {
            return invalid("Invalid Request: 'method' is missing.");
        }
        _ => {}
    }
    if member("params").is_some_and(|params| !params.starts_with('{') && params != "null") {
        return invalid("Invalid Request: 'params' must be an object.");
    }
    Ok(())
}

/// Turns an answer of the library in plain text into an error of JSON-RPC.
pub(super) async fn with_json_error(response: Response<McpBody>) -> Response<McpBody> {
    let is_json =
        response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if !response.status().is_client_error() || is_json {
        return response;
    }
    // The text that the library could not read is JSON with the right content type, so only the message can be wrong.
    let status = match response.status() {
        StatusCode::UNSUPPORTED_MEDIA_TYPE => StatusCode::BAD_REQUEST,
        status => status,
    };
    // The library writes the whole text at once.
    let text = response.into_body().frame().await.and_then(|Ok(frame)| frame.into_data().ok()).unwrap_or_default();
    let message = format!("Invalid Request: {}", String::from_utf8_lossy(&text));
    MessageFault { status, ..MessageFault::invalid(message, Value::Null) }.into_response()
}

// === impl MessageFault ===

impl MessageFault {
    fn invalid(message: impl Into<Cow<'static, str>>, id: Value) -> Self {
        Self { status: StatusCode::BAD_REQUEST, code: INVALID_REQUEST, message: message.into(), id }
    }

    /// A message with a member that is stated twice.
    pub(crate) fn ambiguous(message: &str) -> Self {
        Self::invalid(format!("Invalid Request: {message}"), Value::Null)
    }

    /// The client accepts neither JSON nor events.
    pub(crate) fn not_acceptable() -> Self {
        let message = "Not Acceptable: the header 'Accept' excludes both application/json and text/event-stream.";
        Self { status: StatusCode::NOT_ACCEPTABLE, ..Self::invalid(message, Value::Null) }
    }

    /// The answer with this error.
    pub(crate) fn into_response(self) -> Response<McpBody> {
        let Self { status, code, message, id } = self;
        let body = json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}).to_string();
        let mut response = Response::new(Full::new(Bytes::from(body)).boxed());
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_no_message_has_the_code_of_its_fault() {
        for (text, code, id) in [
            ("", PARSE_ERROR, json!(null)),
            ("not json", PARSE_ERROR, json!(null)),
            ("\u{feff}{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}", PARSE_ERROR, json!(null)),
            ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"", PARSE_ERROR, json!(null)),
            ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"} x", PARSE_ERROR, json!(null)),
            ("[]", INVALID_REQUEST, json!(null)),
            ("[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]", INVALID_REQUEST, json!(null)),
            ("7", INVALID_REQUEST, json!(null)),
            ("null", INVALID_REQUEST, json!(null)),
            ("{}", INVALID_REQUEST, json!(null)),
            ("{\"id\":1,\"method\":\"ping\"}", INVALID_REQUEST, json!(1)),
            ("{\"jsonrpc\":\"1.0\",\"id\":\"a\",\"method\":\"ping\"}", INVALID_REQUEST, json!("a")),
            ("{\"jsonrpc\":2.0,\"id\":1,\"method\":\"ping\"}", INVALID_REQUEST, json!(1)),
            ("{\"jsonrpc\":\"2.0\",\"id\":1}", INVALID_REQUEST, json!(1)),
            ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":7}", INVALID_REQUEST, json!(1)),
            ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":[]}", INVALID_REQUEST, json!(1)),
            ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":\"x\"}", INVALID_REQUEST, json!(1)),
        ] {
            let fault = check_message(text.as_bytes()).expect_err(text);
            assert_eq!((fault.status.as_u16(), fault.code, fault.id), (400, code, id), "{text}");
        }
        for id in ["1.5", "null", "true", "{}", "[1]", "1e3"] {
            let text = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}");
            let fault = check_message(text.as_bytes()).expect_err(id);
            assert_eq!((fault.code, fault.id), (INVALID_REQUEST, Value::Null), "{id}");
        }
    }

    #[test]
    fn every_kind_of_message_is_one() {
        for text in [
            r#"{"jsonrpc":"2.0","id":0,"method":"ping"}"#,
            r#" {"jsonrpc":"2.0","id":"","method":"ping","params":null} "#,
            r#"{"jsonrpc":"2.0","id":-1,"method":"tools/list","params":{}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}"#,
        ] {
            assert!(check_message(text.as_bytes()).is_ok(), "{text}");
        }
    }
}
