//! Makes requests from a seed: each is a valid request with at most one kind of mutation.

use std::fmt::Write as _;

use crate::kit::Random;

/// Puts a fault into a request.
type Mutation = fn(&mut Random, &mut Draft);

/// The kinds of requests, each with its mutation.
const KINDS: [(&str, Mutation); 13] = [
    ("valid", |_, _| {}),
    ("head: bytes", head_bytes),
    ("head: fields", head_fields),
    ("head: key", change_key),
    ("framing: chunks", chunked),
    ("framing: both lengths", both_lengths),
    ("framing: short length", short_length),
    ("framing: long length", long_length),
    ("framing: odd", odd_framing),
    ("JSON: bytes", body_bytes),
    ("JSON: values", json_values),
    ("form: bytes", form_bytes),
    ("options of streams", stream_options),
];

/// JSON values for fields.
const VALUES: [&str; 26] = [
    "null",
    "true",
    "false",
    "0",
    "-1",
    "1",
    "2",
    "4",
    "10",
    "11",
    "1e400",
    "1.5",
    "-0.0",
    "18446744073709551616",
    "\"\"",
    "\"auto\"",
    "\"1024x1024\"",
    "\"1023x1024\"",
    "\"99999999x1\"",
    "\"\\ud800\"",
    "\"\\u0000\"",
    "[]",
    "{}",
    "[[[[]]]]",
    "{\"a\":{\"b\":null}}",
    "\"high\"",
];

/// Names of JSON fields; the last is no field.
const FIELDS: [&str; 18] = [
    "model",
    "prompt",
    "n",
    "size",
    "quality",
    "output_format",
    "output_compression",
    "background",
    "moderation",
    "stream",
    "partial_images",
    "user",
    "style",
    "response_format",
    "input_fidelity",
    "images",
    "mask",
    "",
];

pub(super) struct Request {
    pub(super) kind: &'static str,
    pub(super) bytes: Vec<u8>,
    /// True if nothing may follow the request on its connection.
    pub(super) ends_connection: bool,
    pub(super) is_head: bool,
    /// True if a status 200 answer to the request contains an image.
    pub(super) is_image: bool,
    /// True if the request has both a `Content-Length` and a `Transfer-Encoding`.
    pub(super) both_lengths: bool,
}

/// A request under construction.
struct Draft {
    method: &'static str,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// The framed body, if the framing is not a `Content-Length`.
    framed: Option<Vec<u8>>,
    /// True if the framing no longer shows the end of the request.
    last: bool,
    /// The positions and new values of changed bytes of the head.
    corrupted_head_bytes: Vec<(u64, u8)>,
}

// === impl Request ===

impl Request {
    pub(super) fn make(random: &mut Random, secret: &str) -> Self {
        let weight = random.between(0, 40);
        // Each valid request causes an upstream call, so only one request in forty is unchanged.
        let index = if weight == 0 { 0 } else { 1 + random_below(random, KINDS.len() - 1) };
        let (kind, change) = KINDS[index];
        let mut draft = match kind {
            "form: bytes" => Draft::edit(secret),
            "JSON: bytes" | "JSON: values" | "options of streams" => Draft::generation(secret),
            _ => Draft::any(random, secret),
        };
        let is_image = draft.path.starts_with("/v1/images/");
        change(random, &mut draft);
        let both_lengths = kind == "framing: both lengths";
        // A mutated head may be a HEAD request, whose answer has no body despite its length.
        let (is_head, is_last, bytes) = (draft.method == "HEAD", draft.last, draft.bytes());
        let ends_connection = is_last && !is_complete(&bytes);
        Self { kind, bytes, ends_connection, is_head, is_image, both_lengths }
    }
}

/// True if the head states exactly the length of the bytes after it.
fn is_complete(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let Some((head, _)) = text.split_once("\r\n\r\n") else { return false };
    let head = head.to_ascii_lowercase();
    let lengths: Vec<_> = head.lines().filter_map(|line| line.strip_prefix("content-length: ")).collect();
    let body_length = bytes.windows(4).position(|end| end == b"\r\n\r\n").map(|at| bytes.len() - at - 4);
    !head.contains("transfer-encoding") && lengths.len() == 1 && lengths[0].parse().ok() == body_length
}

fn random_below(random: &mut Random, below: usize) -> usize {
    usize::try_from(random.between(0, below as u64)).expect("a small number")
}

fn random_byte(random: &mut Random) -> u8 {
    u8::try_from(random.between(0, 256)).expect("a byte")
}

// === impl Draft ===

impl Draft {
    fn new(method: &'static str, path: &str, secret: &str) -> Self {
        let headers = [("Host", "gateway"), ("Authorization", &format!("Bearer {secret}"))];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let path = path.to_owned();
        Self { method, path, headers, body: Vec::new(), framed: None, last: false, corrupted_head_bytes: Vec::new() }
    }

    fn generation(secret: &str) -> Self {
        let mut draft = Self::new("POST", "/v1/images/generations", secret);
        draft.headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
        draft.body =
            br#"{"model":"gpt-image-2","prompt":"a red cube","size":"1024x1024","n":1,"quality":"low"}"#.to_vec();
        draft
    }

    fn edit(secret: &str) -> Self {
        let mut draft = Self::new("POST", "/v1/images/edits", secret);
        draft.headers.push(("Content-Type".to_owned(), "multipart/form-data; boundary=xx".to_owned()));
        let image = crate::kit::image_specimen("png 96x64");
        let part = |head: &str, content: &[u8]| {
            [b"--xx\r\nContent-Disposition: form-data; ", head.as_bytes(), b"\r\n\r\n", content, b"\r\n"].concat()
        };
        draft.body = [
            part("name=\"prompt\"", b"a hat"),
            part("name=\"model\"", b"gpt-image-2"),
            part("name=\"image\"; filename=\"a.png\"\r\nContent-Type: image/png", &image),
            b"--xx--\r\n".to_vec(),
        ]
        .concat();
        draft
    }

    fn any(random: &mut Random, secret: &str) -> Self {
        match random.between(0, 6) {
            0 | 1 => Self::generation(secret),
            2 => Self::edit(secret),
            3 => Self::new("GET", "/v1/models", secret),
            4 => Self::new("GET", "/v1/models/gpt-image-2", secret),
            _ => Self::new("POST", "/v1/nothing", secret),
        }
    }

    fn set(&mut self, name: &str, value: &str) {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.to_owned()));
    }

    fn bytes(self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        let body = self.framed.as_ref().unwrap_or(&self.body);
        if self.framed.is_none() && self.method != "GET" {
            writeln!(head, "Content-Length: {}\r", body.len()).expect("writing to a string");
        }
        for (name, value) in &self.headers {
            writeln!(head, "{name}: {value}\r").expect("writing to a string");
        }
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(b"\r\n");
        for (position, byte) in &self.corrupted_head_bytes {
            let at = usize::try_from(*position).unwrap_or_default() % bytes.len();
            bytes[at] = *byte;
        }
        bytes.extend_from_slice(body);
        bytes
    }
}

fn head_bytes(random: &mut Random, draft: &mut Draft) {
    // The mutation may hit a length or a line end, so the end of the request is unknown.
    draft.last = true;
    for _ in 0..random.between(1, 5) {
        let position = random.between(0, 10_000);
        draft.corrupted_head_bytes.push((position, random_byte(random)));
    }
}

fn head_fields(random: &mut Random, draft: &mut Draft) {
    const NAMES: [&str; 12] = [
        "Content-Type",
        "Content-Encoding",
        "Accept",
        "Accept-Encoding",
        "Host",
        "Connection",
        "Upgrade",
        "Cookie",
        "X-Forwarded-For",
        "Origin",
        "x-imagate-fallback",
        "Range",
    ];
    const TEXTS: [&str; 16] = [
        "",
        "*/*",
        "application/json",
        "application/json; charset=utf-16",
        "text/plain",
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "gzip",
        "zstd",
        "br",
        "gzip, gzip",
        "close",
        "websocket",
        "bytes=0-1",
        "a\tb",
        "\u{e9}",
    ];
    for _ in 0..random.between(1, 4) {
        let (name, text) = (NAMES[random_below(random, NAMES.len())], TEXTS[random_below(random, TEXTS.len())]);
        draft.last |= matches!(name, "Connection" | "Upgrade");
        draft.set(name, text);
    }
    if random.between(0, 8) == 0 {
        let size = random.between(1, 40_000);
        draft.set("X-Padding", &"a".repeat(usize::try_from(size).expect("a size")));
        draft.last = true;
    }
}

fn change_key(random: &mut Random, draft: &mut Draft) {
    let valid = draft.headers.iter().find(|(name, _)| name == "Authorization").map(|(_, value)| value.clone());
    let valid = valid.unwrap_or_default();
    let truncated = valid.chars().take(random_below(random, valid.len())).collect::<String>();
    let values =
        ["", "Bearer", "Bearer ", "Basic YTpi", "Bearer sk-img-nonsense", "bearer  x", &truncated, "Bearer \u{fc}"];
    draft.set("Authorization", values[random_below(random, values.len())]);
}

fn chunked(random: &mut Random, draft: &mut Draft) {
    draft.method = "POST";
    draft.set("Transfer-Encoding", "chunked");
    let mut framed = Vec::new();
    let size = random_below(random, 100) + 1;
    for chunk in draft.body.chunks(size) {
        framed.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        framed.extend_from_slice(chunk);
        framed.extend_from_slice(b"\r\n");
    }
    framed.extend_from_slice(b"0\r\n\r\n");
    if random.between(0, 2) == 0 {
        draft.last = true;
        for _ in 0..random.between(1, 4) {
            let at = random_below(random, framed.len());
            framed[at] = random_byte(random);
        }
    }
    draft.framed = Some(framed);
}

fn both_lengths(random: &mut Random, draft: &mut Draft) {
    draft.method = "POST";
    let length = random.between(0, 2 * draft.body.len() as u64 + 2);
    draft.set("Content-Length", &length.to_string());
    draft.set("Transfer-Encoding", "chunked");
    let mut framed = format!("{:x}\r\n", draft.body.len()).into_bytes();
    if draft.body.is_empty() {
        framed.clear();
    } else {
        framed.extend_from_slice(&draft.body);
        framed.extend_from_slice(b"\r\n");
    }
    framed.extend_from_slice(b"0\r\n\r\n");
    draft.framed = Some(framed);
    draft.last = true;
}

fn short_length(random: &mut Random, draft: &mut Draft) {
    draft.method = "POST";
    // At least the last byte is missing, so the body is never complete.
    let length = random.between(0, (draft.body.len() as u64).max(1));
    draft.set("Content-Length", &length.to_string());
    draft.framed = Some(draft.body.clone());
    draft.last = true;
}

fn long_length(random: &mut Random, draft: &mut Draft) {
    draft.method = "POST";
    let surplus = [1, 100, 1 << 20, 1 << 40][random_below(random, 4)];
    draft.set("Content-Length", &(draft.body.len() as u64 + surplus).to_string());
    draft.framed = Some(draft.body.clone());
    draft.last = true;
}

fn odd_framing(random: &mut Random, draft: &mut Draft) {
    const ODD: [(&str, &str); 9] = [
        ("Content-Length", "-1"),
        ("Content-Length", "+5"),
        ("Content-Length", "5, 5"),
        ("Content-Length", "99999999999999999999999"),
        ("Content-Length", "0x5"),
        ("Transfer-Encoding", "gzip"),
        ("Transfer-Encoding", "gzip, chunked"),
        ("Transfer-Encoding", "chunked, chunked"),
        ("Transfer-Encoding", "\u{b}chunked"),
    ];
    let (name, value) = ODD[random_below(random, ODD.len())];
    draft.method = "POST";
    draft.set(name, value);
    draft.framed = Some(draft.body.clone());
    draft.last = true;
}

fn corrupt(random: &mut Random, body: &mut Vec<u8>) {
    for _ in 0..random.between(1, 6) {
        let at = random_below(random, body.len().max(1));
        match random.between(0, 4) {
            0 if at < body.len() => drop(body.remove(at)),
            1 => body.insert(at, random_byte(random)),
            2 => body.truncate(at),
            _ if at < body.len() => body[at] = random_byte(random),
            _ => {}
        }
    }
}

fn body_bytes(random: &mut Random, draft: &mut Draft) {
    corrupt(random, &mut draft.body);
}

fn form_bytes(random: &mut Random, draft: &mut Draft) {
    corrupt(random, &mut draft.body);
    if random.between(0, 10) == 0 {
        draft.set("Content-Type", "multipart/form-data; boundary=xy");
    }
}

fn json_values(random: &mut Random, draft: &mut Draft) {
    let mut text = String::from("{\"model\":\"gpt-image-2\",\"prompt\":\"a red cube\"");
    for _ in 0..random.between(1, 5) {
        let (field, value) = (FIELDS[random_below(random, FIELDS.len())], VALUES[random_below(random, VALUES.len())]);
        write!(text, ",\"{field}\":{value}").expect("writing to a string");
    }
    text.push('}');
    draft.body = text.into_bytes();
    if random.between(0, 4) == 0 {
        draft.path = "/v1/images/edits".to_owned();
    }
}

fn stream_options(random: &mut Random, draft: &mut Draft) {
    const ACCEPT: [&str; 4] = ["text/event-stream", "application/json", "image/png", "*/*;q=0"];
    let value = |random: &mut Random| VALUES[random_below(random, VALUES.len())];
    // Only refused values are chosen, because a valid stream costs an image.
    let (partial, stream) = (value(random), ["true", "false", "\"true\"", "1", "null"][random_below(random, 5)]);
    draft.body = format!(
        "{{\"model\":\"gpt-image-2\",\"prompt\":\"a red cube\",\"stream\":{stream},\"partial_images\":{partial},\"n\":{}}}",
        value(random)
    )
    .into_bytes();
    draft.set("Accept", ACCEPT[random_below(random, ACCEPT.len())]);
}
