//! Odd failures of upstreams: each has the right class, number of upstream calls, advice to the caller, record and state
//! of its account, and none is paid for twice.
//!
//! The rows were decided from the contract. Each row has two accounts of its own, which give the same answer; `limits`,
//! `rejections`, `texts` and `codes` have the rows, and `verdict` what follows from the word of a row.

mod codes;
mod limits;
mod rejections;
mod texts;
mod verdict;
mod windows;

use std::sync::atomic::{AtomicUsize, Ordering};

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use crate::kit::{Account, Answer, Call, Gateway, VerbatimUpstream, eventually, request};
use verdict::ExpectedOutcome;

const TOKEN: &str = "admin-token-canary-0123456789abcdef";
/// The number of threads that send the requests of the rows.
const THREADS: usize = 4;
/// An image of one pixel.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// The request of a row and the protocol of its accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestKind {
    /// An image, plain or as a stream, of accounts with the image endpoints.
    Image,
    ImageStream,
    /// An image of accounts with the Responses API, plain or as a stream.
    Tool,
    ToolStream,
    /// A response.
    Response,
}

/// An odd failure and what follows from it.
struct OddFailure {
    asked: RequestKind,
    status: u16,
    /// Header lines with `\r\n`; without a content type, it is that of the body.
    headers: String,
    body: String,
    /// The word of the verdict, and its parameter or seconds.
    expected: &'static str,
}

// === impl RequestKind ===

impl RequestKind {
    const fn is_image(self) -> bool {
        !matches!(self, Self::Response)
    }

    const fn is_native_image(self) -> bool {
        matches!(self, Self::Image | Self::ImageStream)
    }

    fn with_protocol(self, account: Account) -> Account {
        if self.is_native_image() { account } else { account.with_responses_protocol() }
    }

    fn call(self) -> Call {
        let stream = matches!(self, Self::ImageStream | Self::ToolStream);
        if self.is_image() {
            return Call::generation().json(&request(json!({"stream": stream, "size": "1024x1024", "quality": "low"})));
        }
        Call::post("/v1/responses").json(&json!({"model": "gpt-5.5", "input": "hi", "stream": stream}))
    }

    /// A good answer of the account.
    fn good_answer(self) -> (&'static str, String) {
        let item = json!({"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": PIXEL});
        match self {
            Self::Image => ("application/json", json!({"created": 1, "data": [{"b64_json": PIXEL}]}).to_string()),
            Self::Response => {
                let response = json!({"id": "resp_1", "status": "completed", "output": []});
                ("application/json", response.to_string())
            }
            _ => {
                let done = json!({"type": "response.output_item.done", "output_index": 0, "item": item});
                let response = json!({"id": "resp_1", "status": "completed", "output": [item]});
                let completed = json!({"type": "response.completed", "response": response});
                ("text/event-stream", event(&done) + &event(&completed))
            }
        }
    }
}

/// An event of a stream.
fn event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or("message"))
}

// === impl OddFailure ===

impl OddFailure {
    /// A row with a JSON body.
    fn json(asked: RequestKind, status: u16, body: &Value, expected: &'static str) -> Self {
        Self { asked, status, headers: String::new(), body: body.to_string(), expected }
    }

    /// A row with one event in a stream that is a success.
    fn event(asked: RequestKind, data: &Value, expected: &'static str) -> Self {
        let headers = "content-type: text/event-stream\r\n".to_owned();
        Self { asked, status: 200, headers, body: event(data), expected }
    }

    /// The same row with this header line.
    fn with_header(self, line: &str) -> Self {
        Self { headers: format!("{}{line}\r\n", self.headers), ..self }
    }

    fn describe(&self) -> String {
        format!("{:?} {} {:?} {:.300} ({})", self.asked, self.status, self.headers, self.body, self.expected)
    }

    fn header_lines(&self) -> String {
        let is_json = self.body.starts_with(['{', '[']);
        match self.headers.contains("content-type") {
            true => self.headers.clone(),
            false if is_json => format!("{}content-type: application/json\r\n", self.headers),
            false => format!("{}content-type: text/html\r\n", self.headers),
        }
    }
}

/// The bearer token of an account of a row. It is too short to be searched for in every output, which would take minutes
/// for hundreds of accounts.
fn token(index: usize, name: &str) -> String {
    format!("k{index}{name}")
}

/// The gateway with two accounts and a group for each row.
struct FailureFixture {
    gateway: Gateway,
    upstream: VerbatimUpstream,
}

// === impl FailureFixture ===

impl FailureFixture {
    fn start(rows: &[OddFailure]) -> Self {
        let upstream = VerbatimUpstream::start();
        let (mut accounts, mut groups) = (Vec::new(), String::new());
        for (index, row) in rows.iter().enumerate() {
            groups.push_str(&format!("[[groups]]\nname = \"g{index}\"\nstored_context = \"any\"\n"));
            for (name, priority) in [("a", 1), ("b", 0)] {
                let account = Account::with_base_url(&format!("r{index}{name}"), upstream.base_url())
                    .with_line(&format!("groups = [\"g{index}\"]\npriority = {priority}"));
                let account = account.with_token(&token(index, name));
                let account = row
                    .asked
                    .with_protocol(account)
                    .with_line("refusal_phrases = [\"nope not that\"]\nlimit_phrases = [\"come back tomorrow\"]");
                upstream.set_for_token(&account.token, row.status, &row.header_lines(), &row.body);
                accounts.push(account);
            }
        }
        let top = format!("admin_token = {{ env = \"IT_ADMIN\" }}\ndurability = \"process\"\n{groups}");
        Self { gateway: Gateway::with_secrets(&top, &accounts, &[("IT_ADMIN", TOKEN)]), upstream }
    }

    fn admin(&self, call: Call) -> Answer {
        call.key(TOKEN).send(self.gateway.address())
    }

    fn calls_of(&self, index: usize) -> (usize, usize) {
        let count = |name: &str| self.upstream.attempts_of(&token(index, name));
        (count("a"), count("b"))
    }

    /// The account of a row, as the console shows it.
    fn account(&self, index: usize, name: &str) -> Value {
        self.admin(Call::get(&format!("/admin/v1/accounts/r{index}{name}"))).ok_json()
    }

    /// The closed record of a request.
    fn record_of(&self, answer: &Answer) -> Value {
        let id = answer.header("x-request-id").expect("an id");
        eventually("the record is closed", || {
            let record = self.admin(Call::get(&format!("/admin/v1/records/{id}")));
            (record.status == 200 && record.json()["state"] != "running").then(|| record.json())
        })
    }

    /// Sends the request of a row and names every fault.
    fn faults_of(&self, index: usize, row: &OddFailure) -> Vec<String> {
        let new = json!({"name": "row", "user": "admin", "group": format!("g{index}")});
        let key = self.admin(Call::post("/admin/v1/keys").json(&new)).ok_json();
        let secret = key["secret"].as_str().expect("a secret");
        let verdict = ExpectedOutcome::parse(row.expected);
        let send = || row.asked.call().key(secret).send(self.gateway.address());
        let answer = send();
        let mut faults = verdict.faults_of_answer(&answer);
        let account = self.account(index, "a");
        if self.calls_of(index) != verdict.calls() {
            faults.push(format!("calls {:?} instead of {:?}", self.calls_of(index), verdict.calls()));
        }
        faults.extend(verdict.faults_of_record(&self.record_of(&answer), row.asked));
        faults.extend(verdict.faults_of_account(&account, Utc::now()));
        if verdict.is_remembered() && matches!(row.asked, RequestKind::Image | RequestKind::Tool) {
            faults.extend(self.faults_of_memory(index, row, &send));
        }
        faults
    }

    /// Lets the second account make the image: it does, and then the first one is not asked again.
    fn faults_of_memory(&self, index: usize, row: &OddFailure, send: &dyn Fn() -> Answer) -> Vec<String> {
        let (content_type, body) = row.asked.good_answer();
        let headers = format!("content-type: {content_type}\r\n");
        self.upstream.set_for_token(&token(index, "b"), 200, &headers, &body);
        let statuses = [send().status, send().status];
        let found = (statuses, self.calls_of(index));
        let expected = ([200, 200], (2, 3));
        (found != expected).then(|| format!("memory {found:?} instead of {expected:?}")).into_iter().collect()
    }
}

fn rows() -> Vec<OddFailure> {
    [codes::rows(), limits::rows(), rejections::rows(), texts::rows()].into_iter().flatten().collect()
}

#[test]
fn each_odd_failure_has_its_class_calls_advice_record_and_account() {
    let rows = rows();
    assert!(rows.len() >= 150, "{} rows", rows.len());
    let fixture = FailureFixture::start(&rows);
    let next = AtomicUsize::new(0);
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let next_row = || {
                    let index = next.fetch_add(1, Ordering::SeqCst);
                    rows.get(index).map(|row| (index, row))
                };
                let describe = |(index, row): (usize, &OddFailure)| {
                    let faults = fixture.faults_of(index, row);
                    (!faults.is_empty()).then(|| format!("{}\n  {}", row.describe(), faults.join("\n  ")))
                };
                scope.spawn(move || std::iter::from_fn(next_row).filter_map(describe).collect::<Vec<_>>())
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("the rows of a thread")).collect()
    });
    assert!(wrong.is_empty(), "{} of {} rows are wrong:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}

/// The seconds from now to a moment of the console.
fn seconds_until(moment: &Value, now: DateTime<Utc>) -> Option<i64> {
    let moment = DateTime::parse_from_rfc3339(moment.as_str()?).ok()?;
    Some((moment.with_timezone(&Utc) - now).num_seconds())
}
