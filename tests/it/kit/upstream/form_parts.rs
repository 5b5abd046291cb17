//! Parses a form while it arrives at the upstream, so that a form of gigabytes is never held in memory.

use aws_lc_rs::digest;
use memchr::memmem;

/// How many bytes of a part are kept as they are.
const KEPT: usize = 256 << 10;

/// One part of a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) filename: Option<String>,
    pub(crate) content_type: Option<String>,
    pub(crate) length: u64,
    /// SHA-256 of the bytes.
    pub(crate) digest: Vec<u8>,
    /// The first bytes; all of them in a short part.
    pub(crate) head: Vec<u8>,
}

/// The parser of one form.
pub(super) struct FormParser {
    delimiter: Vec<u8>,
    pending: Vec<u8>,
    state: State,
    done: Vec<Part>,
}

enum State {
    /// Before the first boundary.
    Preamble,
    /// Right after a boundary.
    Boundary,
    Headers,
    Bytes(Box<(Part, digest::Context)>),
    End,
}

/// SHA-256, as the ledger has it.
pub(crate) fn sha256(bytes: &[u8]) -> Vec<u8> {
    digest::digest(&digest::SHA256, bytes).as_ref().to_vec()
}

// === impl FormParser ===

impl FormParser {
    /// A parser for this content type; `None` when it is no form.
    pub(super) fn for_content_type(content_type: &str) -> Option<Self> {
        let rest = content_type.strip_prefix("multipart/form-data")?;
        let boundary = rest.split_once("boundary=")?.1.split(';').next()?.trim().trim_matches('"');
        Some(Self {
            delimiter: format!("\r\n--{boundary}").into_bytes(),
            // The first boundary may stand at the very beginning.
            pending: b"\r\n".to_vec(),
            state: State::Preamble,
            done: Vec::new(),
        })
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        while self.step() {}
    }

    /// The parts, once the body has ended; panics when the form had no proper end.
    pub(super) fn finish(self) -> Vec<Part> {
        assert!(matches!(self.state, State::End), "the gateway sent a form without an end");
        self.done
    }

    /// Parses one more piece of the pending bytes; `false` if that needs more of them.
    fn step(&mut self) -> bool {
        match self.state {
            State::Preamble | State::Bytes(_) => self.bytes(),
            State::Boundary if self.pending.len() < 2 => false,
            State::Boundary => {
                self.state = if self.pending.starts_with(b"--") { State::End } else { State::Headers };
                true
            }
            State::Headers => match memmem::find(&self.pending, b"\r\n\r\n") {
                None => false,
                Some(end) => {
                    let part = Part::with_headers(&String::from_utf8_lossy(&self.pending[..end]));
                    self.pending.drain(..end + 4);
                    self.state = State::Bytes(Box::new((part, digest::Context::new(&digest::SHA256))));
                    true
                }
            },
            State::End => {
                self.pending.clear();
                false
            }
        }
    }

    fn bytes(&mut self) -> bool {
        let found = memmem::find(&self.pending, &self.delimiter);
        let sure = found.unwrap_or_else(|| self.pending.len().saturating_sub(self.delimiter.len()));
        if let State::Bytes(open) = &mut self.state {
            let (part, context) = &mut **open;
            part.take(context, &self.pending[..sure]);
        }
        self.pending.drain(..sure);
        if found.is_none() {
            return false;
        }
        self.pending.drain(..self.delimiter.len());
        if let State::Bytes(open) = std::mem::replace(&mut self.state, State::Boundary) {
            let (mut part, context) = *open;
            part.digest = context.finish().as_ref().to_vec();
            self.done.push(part);
        }
        true
    }
}

// === impl Part ===

impl Part {
    /// Reads `name="…"` as the gateway writes it; everything else in the headers is ignored.
    fn with_headers(headers: &str) -> Self {
        let line = |name: &str| {
            let mut lines = headers.lines().filter_map(|line| line.split_once(':'));
            lines.find(|(key, _)| key.trim().eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
        };
        let disposition = line("content-disposition").unwrap_or_default();
        let quoted = |key: &str| {
            let rest = disposition.split_once(&format!("; {key}=\""))?.1;
            rest.split_once('"').map(|(value, _)| value.to_owned())
        };
        Self {
            name: quoted("name").unwrap_or_default(),
            filename: quoted("filename"),
            content_type: line("content-type").map(str::to_owned),
            length: 0,
            digest: Vec::new(),
            head: Vec::new(),
        }
    }

    fn take(&mut self, context: &mut digest::Context, bytes: &[u8]) {
        context.update(bytes);
        self.length += bytes.len() as u64;
        let room = KEPT - self.head.len();
        self.head.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// The text of a short part.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.head).into_owned()
    }

    /// True if its name is that of an image or a mask.
    pub(crate) fn is_file(&self) -> bool {
        self.name == "mask" || self.name.starts_with("image")
    }
}
