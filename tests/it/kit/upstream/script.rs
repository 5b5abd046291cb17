//! The words of a script: blanks between them, `name` or `name=value`.
//!
//! | Word | What the upstream does |
//! |---|---|
//! | `status=N` | answers this status, with an error body unless `body=` says otherwise |
//! | `body=W` | `error`, `usage-limit`, `policy`, `policy-old`, `parameter`, `request`, `unpaid`, `tool`, `unknown-model`, `unknown-store`, `too-large`, `revoked`, `html`, `page` (2 MB of it), `text`, `none` instead of images |
//! | `models=a,b` | the ids of a list of models, or `huge` |
//! | `say=TEXT` | the message of the error, with `_` for a blank |
//! | `resets-in=S` `resets-at=T` | inside `body=usage-limit` |
//! | `resets-raw=JSON` | `resets_in_seconds` inside `body=usage-limit`, whatever it is |
//! | `retry-after=V` `location=V` `label=V` | the headers `retry-after`, `location`, `content-encoding` |
//! | `retry-ms=V` `retry-date=S` `ratelimit=V` | the headers `retry-after-ms`, `retry-after` as the date in S seconds, `x-ratelimit-reset-requests` with no requests remaining |
//! | `interim=N,N` | answers of these statuses before the real one |
//! | `flood=W` | N headers, or `wide` (one of 5 MB), or `bytes` (a `connection` that is no text) |
//! | `coding=W` | the body is really compressed, and labelled so: `gzip`, or `bomb` (a few MB that become more than a GB) |
//! | `type=V` | the header `content-type` |
//! | `size=WxH` `format=F` | delivers these instead of what was asked |
//! | `model=M` | names this model of its images instead of the one that was asked for |
//! | `b64=N` | the first image is N characters of base64, made as they are sent |
//! | `extra=N` `images=N` | N images more than asked, or N whatever was asked |
//! | `data=W` | `empty`, `null`, `blank`, `missing` (no `b64_json`), `words` (a text instead), `none` (no `data`) |
//! | `omit=a,b` `auto=a,b` `odd=a,b` | these fields are left out, are `auto`, or have an unexpected value |
//! | `endless=W` | the body never ends: `image` (its base64), `before` (a field before the image) |
//! | `revised=W` | `none`, or `escapes`: a text that needs every kind of JSON escape |
//! | `usage=W` | `none`, `null`, `zero`, `negative`, `float`, `text`, `huge`, `partial`, `list`, `cached` (5 text and 200 image tokens of the request), `cached-sum` (205 of them) |
//! | `tokens=N` | this many output tokens |
//! | `read=N` `written=N` | this many tokens of the text of a response |
//! | `shape=W` | `pretty`, `usage-first`, `spaced`, `nested` (strange keys of every JSON kind between the known ones) |
//! | `delay=MS` | waits before the head |
//! | `gate=NAME` `gate-middle=NAME` | waits for the test before the head, or half-way through the body |
//! | `stall=W` | goes silent until the peer leaves: `head` (before it), `body` (after the head), `middle` |
//! | `clip=N` | the body is only its first N bytes, and framed as if that were all |
//! | `lack=N` or `lack=P%` | the last N bytes, or P percent, of the body are missing, and it is framed as if it were whole |
//! | `cut=N` or `cut=P%` | the connection breaks after N bytes, or P percent, of the body |
//! | `how=W` | a cut is `close` (default) or `reset` |
//! | `surplus=TEXT` | after the body of the stated length come further bytes |
//! | `framing=W` | `length` (default), `chunked`, `close` |
//! | `still=N` | silent after N bytes of the body, until the peer leaves |
//! | `drip` | one byte per write |
//! | `pace=MS` | a pause after each write |
//! | `idle=MS` | after the answer, closes the connection if no request comes in this time |
//! | `sour` | the next request on this connection is read, and then the connection is reset |
//! | `hang-up` | reads the request and closes without an answer |
//! | `early` | answers before it has read the body, and closes; only in scripts of a token |
//! | `plain` `sse` | answers with JSON, or with events, whatever was asked |
//! | `events=a,b` | the events of a stream; see the next table |
//! | `partials=N` | N partial images instead of as many as were asked for |
//! | `partial-b64=N` | each partial image is N characters of base64, made as they are sent |
//! | `lines=W` | the line ends of the events: `lf` (default), `crlf`, `cr` |
//! | `frames=a,b` | `no-event`, `no-space` behind the colon, `bom`, `data-first`, `extra` (id, retry, comments), `no-end` (the last event lacks its empty line) |
//! | `reads=N` | N bytes per write |
//! | `tale=a,b` | the events of a response that is asked for one image, in the words of `/responses` |
//!
//! | Event | What the upstream sends |
//! |---|---|
//! | `p` `pN` | a partial image with the next index, or with index N |
//! | `c` | the final image; a second one has other tokens |
//! | `x` | an event of a type that nobody knows |
//! | `k` | a comment line |
//! | `murmur` | comment lines until the peer leaves |
//! | `e` `e-policy` `e-limit` `e-parameter` `e-flat` | an error event, `e-flat` without the inner object |
//! | `failed` `failed-policy` | an event that says that the whole response failed |
//! | `blank` `missing` `words` `junk` `twin` | a final event with an empty image, without one, with a text instead, one that is no JSON, or two objects in one event |
//! | `flood` | a line that never ends |
//! | `half` | the first half of a final event |
//! | `done` | `data: [DONE]` |
//! | `~MS` `@NAME` | a pause, or a gate for the test to open |
//! | `stall` | silent until the peer leaves |
//! | `eof` `cut` | the body ends here as if all were well, or the connection breaks |

use std::collections::BTreeMap;

const WORDS: [&str; 60] = [
    "models",
    "status",
    "body",
    "resets-in",
    "resets-at",
    "retry-after",
    "location",
    "label",
    "type",
    "size",
    "format",
    "model",
    "b64",
    "extra",
    "data",
    "omit",
    "auto",
    "revised",
    "usage",
    "tokens",
    "shape",
    "delay",
    "gate",
    "gate-middle",
    "stall",
    "clip",
    "cut",
    "lack",
    "how",
    "surplus",
    "framing",
    "drip",
    "hang-up",
    "early",
    "plain",
    "sse",
    "events",
    "partials",
    "partial-b64",
    "lines",
    "frames",
    "reads",
    "resets-raw",
    "retry-ms",
    "retry-date",
    "ratelimit",
    "interim",
    "flood",
    "coding",
    "images",
    "odd",
    "endless",
    "still",
    "pace",
    "idle",
    "sour",
    "say",
    "tale",
    "read",
    "written",
];

/// The behaviour of the upstream for one attempt.
#[derive(Clone, Debug, Default)]
pub(super) struct Script(BTreeMap<String, String>);

// === impl Script ===

impl Script {
    /// Panics at an unknown word, which is a mistake in the test.
    pub(super) fn parse(text: &str) -> Self {
        let words = text.split_whitespace().map(|word| {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            assert!(WORDS.contains(&name), "no such word in a script: {word}");
            (name.to_owned(), value.to_owned())
        });
        Self(words.collect())
    }

    /// The part between `[[` and `]]`; without one, the good answer.
    pub(super) fn in_prompt(prompt: &str) -> Self {
        let inside = prompt.split_once("[[").and_then(|(_, rest)| rest.split_once("]]")).map(|(inside, _)| inside);
        Self::parse(inside.unwrap_or_default())
    }

    /// True if it is empty, so that the answer is good.
    pub(super) fn is_good(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The value, or an empty word.
    pub(super) fn word(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.get(name).map(|value| value.parse().expect("a number in a script"))
    }

    /// True if a list such as `omit=model,size` names this field.
    pub(super) fn lists(&self, name: &str, field: &str) -> bool {
        self.word(name).split(',').any(|item| item == field)
    }
}

impl std::fmt::Display for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, (name, value)) in self.0.iter().enumerate() {
            let (blank, sign) = (if at > 0 { " " } else { "" }, if value.is_empty() { "" } else { "=" });
            write!(f, "{blank}{name}{sign}{value}")?;
        }
        Ok(())
    }
}
