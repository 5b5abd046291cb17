//! The lines of the ledger: what arrived, and what became of it.

use std::time::Instant;

use serde_json::Value;

use super::super::http::find_header;
use super::form_parts::Part;

/// One line of the ledger: an attempt, in the order in which the attempts arrived.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    /// When its head had arrived.
    pub(crate) came: Instant,
    /// The number of the connection that it came on.
    pub(crate) connection: usize,
    /// The bearer token, which says which account called.
    pub(crate) token: String,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    /// The body; empty for a form, which has `parts` instead, and for a large body of which only the digest is kept.
    pub(crate) body: Vec<u8>,
    /// The SHA-256 of the body; meaningless for a form.
    pub(crate) digest: Vec<u8>,
    pub(crate) parts: Vec<Part>,
    /// The words of the script that it got, in alphabetical order; empty for the good answer.
    pub(crate) script: String,
    /// When each event of a stream was written.
    pub(crate) sent: Vec<Instant>,
    /// How many bytes of the answer's body were written.
    pub(crate) written: u64,
    /// True if everything that the script says was written.
    pub(crate) completed: bool,
    /// True if the peer went away before that.
    pub(crate) peer_left: bool,
    /// The `usage` that the answer carries.
    pub(crate) usage: Option<Value>,
    /// The `b64_json` of each image of the answer, of a stream the partial ones first; the filler of a huge image is
    /// left out.
    pub(crate) images: Vec<String>,
}

// === impl Attempt ===

impl Attempt {
    /// The request body as JSON; `null` when it is none.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The fields of the request; those of a form are converted to JSON, with numbers and truth values as such.
    pub(crate) fn fields(&self) -> Value {
        if self.parts.is_empty() {
            return self.json();
        }
        let texts = self.parts.iter().filter(|part| !part.is_file());
        texts.map(|part| (part.name.clone(), typed(&part.name, part.text()))).collect::<serde_json::Map<_, _>>().into()
    }

    /// The prompt of an image request, or the input text of a response request.
    pub(crate) fn prompt(&self) -> String {
        let fields = self.fields();
        prompt(&fields).as_str().unwrap_or_default().to_owned()
    }

    /// The files of a form in their order, the mask left out.
    pub(crate) fn files(&self) -> Vec<&Part> {
        self.parts.iter().filter(|part| part.is_file() && part.name != "mask").collect()
    }

    pub(crate) fn mask(&self) -> Option<&Part> {
        self.parts.iter().find(|part| part.name == "mask")
    }

    pub(super) fn is_edit(&self) -> bool {
        self.path.ends_with("/edits")
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        find_header(&self.headers, name)
    }

    /// The `user` of the request, by which tests tell requests apart.
    pub(crate) fn user(&self) -> String {
        self.fields()["user"].as_str().unwrap_or_default().to_owned()
    }
}

/// The value in a request of any kind that holds the prompt.
pub(super) fn prompt(request: &Value) -> &Value {
    let input = &request["input"];
    match (&request["prompt"], input) {
        (prompt @ Value::String(_), _) => prompt,
        (_, Value::Array(_)) => &input[0]["content"][0]["text"],
        _ => input,
    }
}

/// A text field of a form as the JSON it stands for.
fn typed(name: &str, text: String) -> Value {
    match name {
        "n" | "partial_images" | "output_compression" => text.parse::<u64>().map_or(Value::Null, Value::from),
        "stream" => Value::Bool(text == "true"),
        _ => Value::String(text),
    }
}
