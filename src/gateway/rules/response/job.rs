//! The response job: a request for a response that passed every rule.

use std::fmt;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use http::HeaderMap;

use super::json::{JsonType, ValueSpan};
use super::{agent, tool, words};
use crate::error::Error;
use crate::gateway::spool::SpooledBytes;
use crate::image::{ByteSource as _, Format, SizeRequest};

/// The tool that is injected if an agent brings none. Agents save its images as PNG files.
const INJECTED: &str = r#"{"type":"image_generation","output_format":"png"}"#;

/// A request for a response that passed every rule. Only the module `rules` makes one.
#[derive(Clone)]
pub(crate) struct ResponseJob {
    pub(super) model: String,
    pub(super) stream: bool,
    pub(super) end_user: Option<String>,
    pub(super) received: DateTime<Utc>,
    pub(super) tools: ToolSummary,
    pub(super) places: BodyLayout,
    /// The choice of tools as the body states it, unless it is large.
    pub(super) choice: Option<Vec<u8>>,
    pub(super) headers: HeaderMap,
    pub(super) agent: bool,
    pub(super) kept_prompt: bool,
    pub(super) injected: bool,
    /// The id of the response that this one continues.
    pub(super) previous: Option<String>,
    /// The only account that can serve the job, if no other can.
    pub(super) account: Option<String>,
    pub(super) turn: Option<String>,
    /// The pieces of the body that goes upstream; without an injected tool there is one.
    pub(super) pieces: Vec<SpooledBytes>,
    /// The body as it came.
    pub(super) body: SpooledBytes,
}

/// The positions of the parts of a body.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyLayout {
    /// The offset of the opening brace.
    pub(super) begin: u64,
    pub(super) input: ValueSpan,
    pub(super) tools: Option<ValueSpan>,
}

/// A summary of the image tools of a request. A request may list millions of tools, so only a summary is kept.
#[derive(Clone, Debug, Default)]
pub(super) struct ToolSummary {
    first: Option<ImageTool>,
    large: bool,
    partials: u32,
    count: usize,
    /// True if the agent brings its own tool for images.
    own: bool,
    /// The first tool of each type that the upstream runs.
    hosted: Vec<HostedTool>,
}

/// A tool that the upstream runs: it may cost extra, and reach data of the account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostedTool {
    /// The path of its type in the request.
    pub(crate) place: String,
    /// Its type.
    pub(crate) kind: String,
}

/// The most types that are noted: one more than a group can allow.
const HOSTED_MAX: usize = 65;

/// The options of one image tool.
#[derive(Clone, Debug, Default)]
pub(crate) struct ImageTool {
    /// The size in pixels.
    pub(crate) size: SizeRequest,
    /// `low`, `medium`, `high` or `auto`, if the tool states it.
    pub(crate) quality: Option<String>,
    /// The file format.
    pub(crate) format: Format,
    /// The quality of the compression, 0 to 100; 100 keeps the most of the picture.
    pub(crate) compression: u8,
    /// The number of intermediate images.
    pub(crate) partials: u32,
}

// === impl ToolSummary ===

impl ToolSummary {
    pub(super) fn add(&mut self, tool: ImageTool) {
        self.large |= tool.size.exact().is_some_and(crate::image::Size::is_large);
        self.partials = self.partials.max(tool.partials);
        self.first.get_or_insert(tool);
    }

    /// Counts one more tool, of any kind.
    pub(super) const fn count(&mut self) {
        self.count += 1;
    }

    /// Notes that the upstream runs a tool of this type.
    pub(super) fn note_hosted(&mut self, place: &str, kind: &str) {
        if self.hosted.len() < HOSTED_MAX && self.hosted.iter().all(|tool| tool.kind != kind) {
            self.hosted.push(HostedTool { place: place.to_owned(), kind: kind.to_owned() });
        }
    }

    /// Notes that one of the tools is the agent's own tool for images.
    pub(super) const fn note_own(&mut self) {
        self.own = true;
    }
}

// === impl ResponseJob ===

impl ResponseJob {
    /// Returns the text or agent model, verbatim.
    pub(crate) fn model(&self) -> &str {
        &self.model
    }

    /// True if the caller asked for events.
    pub(crate) const fn stream(&self) -> bool {
        self.stream
    }

    /// Returns the caller's own name for the end user of the request.
    pub(crate) fn end_user(&self) -> Option<&str> {
        self.end_user.as_deref()
    }

    /// Returns the time at which the request came.
    pub(crate) const fn received(&self) -> DateTime<Utc> {
        self.received
    }

    /// Returns the options of the first image tool, if there is one.
    pub(crate) const fn tool(&self) -> Option<&ImageTool> {
        self.tools.first.as_ref()
    }

    /// True if the job takes one of the few slots for large images.
    pub(crate) const fn is_large(&self) -> bool {
        self.tools.large
    }

    /// Returns the tools that the caller asks the upstream to run, from the list and from the choice; one of each type.
    pub(crate) fn hosted_tools(&self) -> Vec<HostedTool> {
        let chosen = self.choice.as_deref().map(tool::chosen).unwrap_or_default();
        self.tools.hosted.iter().cloned().chain(chosen).collect()
    }

    /// True if the request names a prompt that is kept at the upstream and may bring tools of its own.
    pub(crate) const fn has_kept_prompt(&self) -> bool {
        self.kept_prompt
    }

    /// True if the caller has forbidden every tool.
    pub(crate) fn forbids_tools(&self) -> bool {
        self.choice.as_deref() == Some(br#""none""#)
    }

    /// Returns the last text of the user. It never goes into a log or a record.
    ///
    /// # Errors
    ///
    /// Returns an error if the body cannot be read back from disk.
    pub(crate) fn prompt(&self) -> Result<String, Error> {
        words::last(&self.body, self.places.input)
    }

    /// Passes every text of the request to `enough`, in windows that overlap, until it returns true. No text goes into
    /// a log or a record.
    ///
    /// # Errors
    ///
    /// Returns an error if the body cannot be read back from disk.
    pub(crate) fn hear(&self, mut enough: impl FnMut(&str) -> bool) -> Result<(), Error> {
        words::all(&self.body, &mut enough)
    }

    /// Returns the tools as they stand in the body, unless they have more than `most` bytes.
    pub(crate) fn listed_tools(&self, most: usize) -> Option<Vec<u8>> {
        let part = self.places.tools?;
        let length = usize::try_from(part.to - part.from).ok().filter(|length| *length <= most)?;
        let mut listed = vec![0; length];
        let read = self.body.read_at(part.from, &mut listed).ok()?;
        (read == length).then_some(listed)
    }

    /// Returns the choice of tools as it stands in the body, unless it is large.
    pub(crate) fn tool_choice(&self) -> Option<&[u8]> {
        self.choice.as_deref()
    }

    /// True if a coding agent sends the request that could draw if it had the tool.
    pub(crate) fn lacks_tool(&self) -> bool {
        self.agent && self.tools.first.is_none() && !self.tools.own && !self.forbids_tools()
    }

    /// Returns the same job with an image tool added to its list, and with every other byte as it came.
    pub(crate) fn with_tool(mut self) -> Self {
        let (body, whole) = (&self.body, self.body.len());
        let (at, behind, inserted) = match self.places.tools {
            // After the last tool, before the bracket.
            Some(part) if part.shape == JsonType::Array => {
                let comma = if self.tools.count > 0 { "," } else { "" };
                (part.to - 1, part.to - 1, format!("{comma}{INJECTED}"))
            }
            // In place of a `null`.
            Some(part) => (part.from, part.to, format!("[{INJECTED}]")),
            // Before all other members: there are some, because some are required.
            None => (self.places.begin + 1, self.places.begin + 1, format!(r#""tools":[{INJECTED}],"#)),
        };
        self.pieces = vec![body.part(0, at), SpooledBytes::from(Bytes::from(inserted)), body.part(behind, whole)];
        self.tools.add(ImageTool::default());
        self.injected = true;
        self
    }

    /// Returns the same job as it came, without the injected tool.
    pub(crate) fn without_tool(&self) -> Self {
        let mut job = self.clone();
        if job.injected {
            job.pieces = vec![job.body.clone()];
            job.tools.first = None;
            job.injected = false;
        }
        job
    }

    /// Returns the same job as a part of this turn of an agent.
    pub(crate) fn within(self, turn: Option<String>) -> Self {
        Self { turn, ..self }
    }

    /// Returns the turn of an agent that this job is a part of.
    pub(crate) fn turn(&self) -> Option<&str> {
        self.turn.as_deref()
    }

    /// Returns the body as the caller sent it.
    pub(crate) const fn body(&self) -> &SpooledBytes {
        &self.body
    }

    /// Returns the id of the response that this one continues.
    pub(crate) fn previous(&self) -> Option<&str> {
        self.previous.as_deref()
    }

    /// Returns the same job for this account alone.
    pub(crate) fn only_at(self, account: String) -> Self {
        Self { account: Some(account), ..self }
    }

    /// Returns the only account that can serve the job, if no other can.
    pub(crate) fn account(&self) -> Option<&str> {
        self.account.as_deref()
    }

    /// True if an image tool was injected.
    pub(crate) const fn injected(&self) -> bool {
        self.injected
    }

    /// Returns the headers that go upstream.
    pub(crate) const fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Returns the name of the conversation, if the agent states it.
    pub(crate) fn session(&self) -> Option<&[u8]> {
        agent::session(&self.headers)
    }

    /// Returns the body that goes upstream, in pieces: byte for byte as it came, except for an injected tool.
    pub(crate) fn pieces(&self) -> &[SpooledBytes] {
        &self.pieces
    }
}

impl fmt::Debug for ResponseJob {
    /// Omits the body, which is a conversation of megabytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseJob").field("model", &self.model).field("stream", &self.stream).finish_non_exhaustive()
    }
}
