//! An upstream of the Responses API whose accounts cannot read what others have made: neither encrypted content nor
//! earlier responses. Its answers have a reasoning item with encrypted content, and a message.

use std::collections::HashMap;
use std::io::{BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::LoopbackPort;
use super::http::{find_header, read_headers, read_line};

/// The server. Dropping it closes the port.
pub(crate) struct CiphertextUpstream {
    port: LoopbackPort,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    faults: HashMap<String, AccountFault>,
    /// The accounts of the requests that arrived.
    asked: Vec<String>,
    /// The number of answers, which every id carries.
    answers: usize,
    omits_codes: bool,
}

/// The reason why an account does not work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccountFault {
    /// Every request is one too many. The wait is one second.
    Throttled,
    /// The connection ends without an answer.
    Dead,
}

// === impl CiphertextUpstream ===

impl CiphertextUpstream {
    pub(crate) fn start() -> Self {
        let state = Arc::<Mutex<State>>::default();
        let serving = Arc::clone(&state);
        Self { port: LoopbackPort::serve(move |stream| serve(stream, &serving)), state }
    }

    pub(crate) fn base_url(&self) -> String {
        self.port.base_url()
    }

    /// From now on, the account has this fault, or none.
    pub(crate) fn set_fault(&self, account: &str, fault: Option<AccountFault>) {
        let mut state = lock(&self.state);
        match fault {
            Some(fault) => drop(state.faults.insert(account.to_owned(), fault)),
            None => drop(state.faults.remove(account)),
        }
    }

    /// From now on, refusals state no code.
    pub(crate) fn omit_codes(&self) {
        lock(&self.state).omits_codes = true;
    }

    /// Returns the accounts of the requests since the last call of this function.
    pub(crate) fn take_asked(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.state).asked)
    }

    /// Encrypted content that this account can read.
    pub(crate) fn ciphertext_of(account: &str, number: usize) -> String {
        format!("gAAAAAB{account}={number:016x}")
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves the requests of one connection.
fn serve(stream: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    loop {
        let line = read_line(&mut reader)?;
        let headers = read_headers(&mut reader)?;
        let body = read_body(&mut reader, &headers)?;
        let (status, content_type, answer) = if line.starts_with("POST ") {
            let token = find_header(&headers, "authorization").unwrap_or_default();
            let account = token.trim_start_matches("Bearer ").trim_start_matches("sk-upstream-").to_owned();
            match answer_turn(&account, &body, &mut lock(state)) {
                Some(answer) => answer,
                None => return Ok(()),
            }
        } else {
            (200, "application/json", json!({"object": "list", "data": []}).to_string())
        };
        let wait = if status == 429 { "retry-after: 1\r\n" } else { "" };
        let length = answer.len();
        let head =
            format!("HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\n{wait}content-length: {length}\r\n\r\n");
        reader.get_mut().write_all((head + &answer).as_bytes())?;
    }
}

fn read_body(reader: &mut BufReader<TcpStream>, headers: &[(String, String)]) -> std::io::Result<Value> {
    let mut bytes = Vec::new();
    if find_header(headers, "transfer-encoding").is_none() {
        let length = find_header(headers, "content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
        reader.by_ref().take(length).read_to_end(&mut bytes)?;
    } else {
        loop {
            let size = u64::from_str_radix(read_line(reader)?.trim(), 16).unwrap_or(0);
            reader.by_ref().take(size).read_to_end(&mut bytes)?;
            read_line(reader)?;
            if size == 0 {
                break;
            }
        }
    }
    Ok(serde_json::from_slice(&bytes).unwrap_or_default())
}

/// Returns the status, the content type and the body of the answer; `None` if the connection ends.
fn answer_turn(account: &str, request: &Value, state: &mut State) -> Option<(u16, &'static str, String)> {
    let answer = match state.faults.get(account) {
        Some(AccountFault::Dead) => None,
        Some(AccountFault::Throttled) => {
            let error = json!({"message": "Slow down.", "type": "rate_limit_error", "code": "rate_limit_exceeded"});
            Some((429, json!({ "error": error })))
        }
        None => {
            state.answers += 1;
            Some(answer_healthy(account, request, state.answers, state.omits_codes))
        }
    };
    state.asked.push(account.to_owned());
    let (status, body) = answer?;
    if status == 200 && request["stream"] == true {
        return Some((status, "text/event-stream", to_events(&body)));
    }
    Some((status, "application/json", body.to_string()))
}

fn answer_healthy(account: &str, request: &Value, number: usize, omits_codes: bool) -> (u16, Value) {
    let items = request["input"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut ciphertexts = items.iter().filter_map(|item| item["encrypted_content"].as_str());
    let own = format!("gAAAAAB{account}=");
    let is_foreign_response =
        request["previous_response_id"].as_str().is_some_and(|id| id.contains("_of_") && !id.ends_with(account));
    let refusal = if ciphertexts.any(|text| !text.starts_with(&own)) {
        let message = "The encrypted content gAAA... could not be verified. Reason: Encrypted content could not be decrypted or parsed.";
        Some((message, "invalid_encrypted_content", Value::Null))
    } else if is_foreign_response {
        Some((
            "Previous response with id 'resp_1' not found.",
            "previous_response_not_found",
            json!("previous_response_id"),
        ))
    } else {
        None
    };
    if let Some((message, code, param)) = refusal {
        let code = if omits_codes { Value::Null } else { json!(code) };
        let error = json!({"message": message, "type": "invalid_request_error", "param": param, "code": code});
        return (400, json!({ "error": error }));
    }
    let reasoning = json!({
        "type": "reasoning", "id": format!("rs_{number}_of_{account}"), "summary": [],
        "encrypted_content": CiphertextUpstream::ciphertext_of(account, number),
    });
    let message = json!({
        "type": "message", "id": format!("msg_{number}_of_{account}"), "status": "completed", "role": "assistant",
        "content": [{"type": "output_text", "text": "yes", "annotations": [], "logprobs": []}],
    });
    let response = json!({
        "id": format!("resp_{number}_of_{account}"), "object": "response", "created_at": 1_790_000_000,
        "status": "completed", "error": null, "model": request["model"], "output": [reasoning, message],
        "parallel_tool_calls": true, "tool_choice": "auto", "tools": [],
        "usage": {
            "input_tokens": 10, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}, "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 15,
        },
    });
    (200, response)
}

/// Returns the response as the events of a stream.
fn to_events(response: &Value) -> String {
    let mut begun = response.clone();
    (begun["status"], begun["output"], begun["usage"]) = (json!("in_progress"), json!([]), Value::Null);
    let mut events = vec![("response.created", json!({ "response": begun }))];
    let output = response["output"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (index, item) in output.iter().enumerate() {
        events.push(("response.output_item.done", json!({"output_index": index, "item": item})));
    }
    events.push(("response.completed", json!({ "response": response })));
    let numbered = events.into_iter().enumerate().map(|(number, (kind, mut data))| {
        (data["type"], data["sequence_number"]) = (json!(kind), json!(number));
        format!("event: {kind}\ndata: {data}\n\n")
    });
    numbered.collect()
}
