//! The answers of the program with the simulator: to each registered route without a key, to each content type of a
//! request, and to good requests.
//!
//! The requests are the same whatever the documents say, so a changed document is compared with unchanged answers.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// The token of operators.
const ADMIN_TOKEN: &str = "the-admin-token-of-the-drift-tests";
const JSON: &str = "application/json";
const FORM: &str = "multipart/form-data; boundary=part";
/// The content types that each operation with a body is tried with, and a body of each.
pub(crate) const REQUEST_TYPES: [(&str, &str, &str); 4] = [
    (JSON, JSON, "{}"),
    ("multipart/form-data", FORM, "--part--\r\n"),
    ("application/x-www-form-urlencoded", "application/x-www-form-urlencoded", "model=gpt-image-2"),
    ("text/plain", "text/plain", "gpt-image-2"),
];
/// The public operations with a body, by their paths.
const POSTS: [(&str, &str); 4] = [
    ("create_image", "/v1/images/generations"),
    ("estimate_image", "/v1/images/estimate"),
    ("edit_image", "/v1/images/edits"),
    ("create_response", "/v1/responses"),
];
/// The operations that need no body, and their paths.
const GETS: [(&str, &str); 17] = [
    ("list_image_models", "/v1/images/models"),
    ("list_models", "/v1/models"),
    ("retrieve_model", "/v1/models/gpt-image-2"),
    ("list_keys", "/admin/v1/keys"),
    ("list_users", "/admin/v1/users"),
    ("retrieve_me", "/admin/v1/me"),
    ("list_tokens", "/admin/v1/tokens"),
    ("list_groups", "/admin/v1/groups"),
    ("retrieve_group", "/admin/v1/groups/artists"),
    ("list_records", "/admin/v1/records"),
    ("retrieve_usage", "/admin/v1/usage"),
    ("list_audit", "/admin/v1/audit"),
    ("list_alerts", "/admin/v1/alerts"),
    ("list_limits", "/admin/v1/limits"),
    ("list_prices", "/admin/v1/prices"),
    ("list_accounts", "/admin/v1/accounts"),
    ("explain_accounts", "/admin/v1/account-order"),
];

/// An answer of the program.
pub(crate) struct RecordedAnswer {
    pub(crate) status: u16,
    /// With names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

/// The answers of one run of the program.
pub(crate) struct ServedAnswers {
    /// The status of each route, as `METHOD path`, for a request without a key.
    pub(crate) statuses_without_key: BTreeMap<String, u16>,
    /// The content types that each public operation with a body reads.
    pub(crate) request_types: BTreeMap<&'static str, BTreeSet<&'static str>>,
    /// Answers with status 200, each with its operation.
    pub(crate) answers: Vec<(&'static str, RecordedAnswer)>,
    /// The schema of the settings, as the program prints it.
    pub(crate) settings_schema: Value,
}

/// A running program, which the end of the value ends.
struct RecordedGateway {
    child: Child,
    address: String,
    key: String,
}

pub(crate) static SERVED_ANSWERS: LazyLock<ServedAnswers> = LazyLock::new(ServedAnswers::make);

/// The registered routes, as `METHOD path`.
pub(crate) fn registered_routes() -> impl Iterator<Item = String> {
    imagate::served_routes().into_iter().map(|[_, method, path]| format!("{method} {path}"))
}

// === impl ServedAnswers ===

impl ServedAnswers {
    fn make() -> Self {
        let home = tempfile::tempdir().expect("a folder");
        let program = RecordedGateway::start(home.path());
        let statuses = registered_routes().map(|route| {
            let status = program.status_without_key(&route);
            (route, status)
        });
        let types = POSTS.iter().map(|(operation, path)| {
            let accepted = REQUEST_TYPES.iter().filter(|(_, header, body)| {
                program.send("POST", path, &[("content-type", header)], body.as_bytes()).status != 415
            });
            (*operation, accepted.map(|(name, _, _)| *name).collect())
        });
        let printed = command(home.path()).args(["config", "schema"]).output().expect("the program runs");
        Self {
            statuses_without_key: statuses.collect(),
            request_types: types.collect(),
            answers: program.good_answers(),
            settings_schema: serde_json::from_slice(&printed.stdout).expect("the schema is JSON"),
        }
    }
}

// === impl RecordedGateway ===

impl RecordedGateway {
    fn start(home: &Path) -> Self {
        let mut command = command(home);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir", "data"]);
        let mut child = command.spawn().expect("the program starts");
        let (mut address, mut key) = (String::new(), String::new());
        let mut lines = BufReader::new(child.stdout.take().expect("stdout")).lines().map_while(Result::ok);
        while address.is_empty() || key.is_empty() {
            let line = lines.next().expect("the program prints its address and a key");
            if let Some((_, found)) = line.split_once("listening on http://") {
                found.trim_end_matches('/').clone_into(&mut address);
            }
            let words = line.split(|letter: char| !letter.is_ascii_alphanumeric() && !"-_".contains(letter));
            words.filter(|word| word.starts_with("sk-img-")).for_each(|word| word.clone_into(&mut key));
        }
        // Otherwise the program could wait for a reader of what it prints next.
        drop(std::thread::spawn(move || lines.for_each(drop)));
        Self { child, address, key }
    }

    /// Opens a connection, and sends a request of HTTP/1.0, whose answer is not chunked.
    fn open(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).expect("the program listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time limit");
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head =
            format!("{method} {path} HTTP/1.0\r\nhost: localhost\r\ncontent-length: {}\r\n{headers}\r\n", body.len());
        stream.write_all(&[head.as_bytes(), body].concat()).expect("the request is sent");
        stream
    }

    /// Sends a request with the key, or with the token of operators.
    fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> RecordedAnswer {
        let secret = if path.starts_with("/admin/") { ADMIN_TOKEN } else { &self.key };
        let secret = format!("Bearer {secret}");
        let headers = [headers, &[("authorization", secret.as_str())]].concat();
        let mut bytes = Vec::new();
        self.open(method, path, &headers, body).read_to_end(&mut bytes).expect("an answer");
        RecordedAnswer::parse(&String::from_utf8_lossy(&bytes))
    }

    /// The status of a route for a request without a key. Each parameter of the path is `x`.
    fn status_without_key(&self, route: &str) -> u16 {
        let (method, path) = route.split_once(' ').expect("a method and a path");
        let segments: Vec<&str> =
            path.split('/').map(|part| if part.starts_with(['{', '*']) { "x" } else { part }).collect();
        let stream = self.open(method, &segments.join("/"), &[("content-type", JSON)], b"");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).expect("a status line");
        line.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
    }

    fn good_answers(&self) -> Vec<(&'static str, RecordedAnswer)> {
        let image = json!({
            "model": "gpt-image-2", "prompt": "a fox", "size": "1024x640", "quality": "low", "output_format": "png",
        });
        let tool = json!({ "type": "image_generation", "size": "1024x640", "quality": "low" });
        let response = json!({ "model": "gpt-5.5", "input": "draw a fox", "tools": [tool] });
        let first = self.post("create_image", &image);
        let drawn: Value = serde_json::from_str(&first.body).expect("an answer with an image");
        let base64 = drawn["data"][0]["b64_json"].as_str().expect("an image").to_owned();
        let url = format!("data:image/png;base64,{base64}");
        let edit = json!({
            "model": "gpt-image-2", "prompt": "a scarf", "size": "1024x640", "images": [{ "image_url": url }],
        });
        let mut answers = vec![("create_image", first), ("estimate_image", self.post("estimate_image", &image))];
        for (operation, body, with) in [
            ("create_image", &image, json!({ "partial_images": 1 })),
            ("edit_image", &edit, json!({})),
            ("create_response", &response, json!({})),
        ] {
            let mut stream = body.clone();
            stream["stream"] = true.into();
            stream.as_object_mut().expect("an object").extend(with.as_object().cloned().unwrap_or_default());
            answers.extend([(operation, self.post(operation, body)), (operation, self.post(operation, &stream))]);
        }
        answers.push(("edit_image", self.post_form(&STANDARD.decode(base64).expect("base64"))));
        answers.push(("create_group", self.change("POST", "/admin/v1/groups", &json!({ "name": "artists" }))));
        answers.push(("create_user", self.change("POST", "/admin/v1/users", &json!({ "name": "kim" }))));
        let price = json!({ "model": "gpt-image-2", "from": "2026-04-21", "text_input": 5.0, "image_output": 30.0 });
        answers.push(("set_price", self.change("PUT", "/admin/v1/prices", &price)));
        answers.extend(GETS.map(|(operation, path)| (operation, self.send("GET", path, &[], b""))));
        for (operation, answer) in &answers {
            assert!(answer.status < 300, "{operation}: {} {:.300}", answer.status, answer.body);
        }
        answers
    }

    fn post(&self, operation: &str, body: &Value) -> RecordedAnswer {
        let (_, path) = POSTS.iter().find(|(name, _)| *name == operation).expect("an operation");
        self.change("POST", path, body)
    }

    fn change(&self, method: &str, path: &str, body: &Value) -> RecordedAnswer {
        self.send(method, path, &[("content-type", JSON)], body.to_string().as_bytes())
    }

    fn post_form(&self, image: &[u8]) -> RecordedAnswer {
        let head = "--part\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\ngpt-image-2\r\n\
            --part\r\ncontent-disposition: form-data; name=\"prompt\"\r\n\r\na scarf\r\n\
            --part\r\ncontent-disposition: form-data; name=\"image[]\"; filename=\"a.png\"\r\n\
            content-type: image/png\r\n\r\n";
        let body = [head.as_bytes(), image, b"\r\n--part--\r\n"].concat();
        self.send("POST", "/v1/images/edits", &[("content-type", FORM)], &body)
    }
}

impl Drop for RecordedGateway {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

// === impl RecordedAnswer ===

impl RecordedAnswer {
    fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).expect("a status");
        let header =
            |line: &str| line.split_once(':').map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()));
        Self { status, headers: lines.filter_map(header).collect(), body: body.to_owned() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    /// The content type without its parameters.
    pub(crate) fn content_type(&self) -> &str {
        self.header("content-type").and_then(|value| value.split(';').next()).unwrap_or_default()
    }

    /// The JSON of the body: of each event, or of the body as a whole.
    pub(crate) fn values(&self) -> Vec<Value> {
        if self.content_type() == JSON {
            return vec![serde_json::from_str(&self.body).expect("JSON")];
        }
        let events = self.body.lines().filter_map(|line| line.strip_prefix("data: "));
        events.map(|data| serde_json::from_str(data).expect("JSON")).collect()
    }
}

/// The program with this home and without the environment of the tests.
fn command(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_imagate"));
    command.env_clear().env("HOME", home).env("XDG_DATA_HOME", home).env("TMPDIR", home).current_dir(home);
    command.env("IMAGATE_ADMIN_TOKEN", ADMIN_TOKEN);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}
