//! The ticket: a request for a response that passed every rule.

use std::fmt;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use http::HeaderMap;

use super::json::{Part, Shape};
use super::{agent, tool, words};
use crate::error::Error;
use crate::gateway::spool::Kept;
use crate::image::{Format, SizeRequest, Source as _};

/// The tool that is put in where an agent brings none. Agents save what it makes as a PNG file.
const INJECTED: &str = r#"{"type":"image_generation","output_format":"png"}"#;

/// A request for a response that passed every rule. Only this room makes one.
#[derive(Clone)]
pub(crate) struct ResponseJob {
    pub(super) model: String,
    pub(super) stream: bool,
    pub(super) end_user: Option<String>,
    pub(super) received: DateTime<Utc>,
    pub(super) tools: Tools,
    pub(super) places: Places,
    /// As it stands in the body, unless it is large.
    pub(super) choice: Option<Vec<u8>>,
    pub(super) headers: HeaderMap,
    pub(super) agent: bool,
    pub(super) kept_prompt: bool,
    pub(super) injected: bool,
    /// The id of the response that it continues.
    pub(super) previous: Option<String>,
    /// The only account that can serve it, if no other can.
    pub(super) account: Option<String>,
    pub(super) turn: Option<String>,
    /// The pieces of the body that goes upstream; without an injected tool there is one.
    pub(super) pieces: Vec<Kept>,
    /// The body as it came.
    pub(super) body: Kept,
}

/// Where things stand in a body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    /// The brace that opens it.
    pub(super) begin: u64,
    pub(super) input: Part,
    pub(super) tools: Option<Part>,
}

/// What the image tools of a request ask for. A request may list millions of tools, so only a summary is kept.
#[derive(Clone, Debug, Default)]
pub(super) struct Tools {
    first: Option<ImageTool>,
    large: bool,
    partials: u32,
    count: usize,
    /// The agent brings its own tool for images.
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

/// What one image tool asks for.
#[derive(Clone, Debug, Default)]
pub(crate) struct ImageTool {
    /// Pixels.
    pub(crate) size: SizeRequest,
    /// `low`, `medium`, `high` or `auto`, where it says.
    pub(crate) quality: Option<String>,
    /// The file format.
    pub(crate) format: Format,
    /// 0 to 100; 100 leaves the most of the picture.
    pub(crate) compression: u8,
    /// Intermediate images.
    pub(crate) partials: u32,
}

// === impl Tools ===

impl Tools {
    pub(super) fn add(&mut self, tool: ImageTool) {
        self.large |= tool.size.exact().is_some_and(crate::image::Size::is_large);
        self.partials = self.partials.max(tool.partials);
        self.first.get_or_insert(tool);
    }

    /// One more tool, of whatever kind.
    pub(super) const fn count(&mut self) {
        self.count += 1;
    }

    /// Notes that the upstream runs a tool of this type.
    pub(super) fn note_hosted(&mut self, place: &str, kind: &str) {
        if self.hosted.len() < HOSTED_MAX && self.hosted.iter().all(|tool| tool.kind != kind) {
            self.hosted.push(HostedTool { place: place.to_owned(), kind: kind.to_owned() });
        }
    }

    /// One of them is the agent's own tool for images.
    pub(super) const fn note_own(&mut self) {
        self.own = true;
    }
}

// === impl ResponseJob ===

impl ResponseJob {
    /// The text or agent model, verbatim.
    pub(crate) fn model(&self) -> &str {
        &self.model
    }

    /// Whether events were asked for.
    pub(crate) const fn stream(&self) -> bool {
        self.stream
    }

    /// The caller's own word for whom this is.
    pub(crate) fn end_user(&self) -> Option<&str> {
        self.end_user.as_deref()
    }

    /// When the request came.
    pub(crate) const fn received(&self) -> DateTime<Utc> {
        self.received
    }

    /// What the first image tool asks for, where there is one.
    pub(crate) const fn tool(&self) -> Option<&ImageTool> {
        self.tools.first.as_ref()
    }

    /// Whether it takes one of the few places for large images.
    pub(crate) const fn is_large(&self) -> bool {
        self.tools.large
    }

    /// The tools that the caller wants the upstream to run, from the list and from the choice; one of each type.
    pub(crate) fn hosted_tools(&self) -> Vec<HostedTool> {
        let chosen = self.choice.as_deref().map(tool::chosen).unwrap_or_default();
        self.tools.hosted.iter().cloned().chain(chosen).collect()
    }

    /// True if it names a prompt that is kept at the upstream and may bring tools of its own.
    pub(crate) const fn has_kept_prompt(&self) -> bool {
        self.kept_prompt
    }

    /// Whether the caller has forbidden every tool.
    pub(crate) fn forbids_tools(&self) -> bool {
        self.choice.as_deref() == Some(br#""none""#)
    }

    /// What the user said last. It never goes into a log or a record.
    ///
    /// # Errors
    ///
    /// Where the disk does not give the body back.
    pub(crate) fn prompt(&self) -> Result<String, Error> {
        words::last(&self.body, self.places.input)
    }

    /// Hears everything that is said in the request, whoever says it, in windows that overlap, until one of them is
    /// enough. It never goes into a log or a record.
    ///
    /// # Errors
    ///
    /// Where the disk does not give the body back.
    pub(crate) fn hear(&self, mut enough: impl FnMut(&str) -> bool) -> Result<(), Error> {
        words::all(&self.body, &mut enough)
    }

    /// The tools as they stand in the body, unless they are longer than this.
    pub(crate) fn listed_tools(&self, most: usize) -> Option<Vec<u8>> {
        let part = self.places.tools?;
        let length = usize::try_from(part.to - part.from).ok().filter(|length| *length <= most)?;
        let mut listed = vec![0; length];
        let read = self.body.read_at(part.from, &mut listed).ok()?;
        (read == length).then_some(listed)
    }

    /// The choice of tools as it stands in the body, unless it is large.
    pub(crate) fn tool_choice(&self) -> Option<&[u8]> {
        self.choice.as_deref()
    }

    /// Whether a coding agent sends it that could draw, if only it had the tool.
    pub(crate) fn lacks_tool(&self) -> bool {
        self.agent && self.tools.first.is_none() && !self.tools.own && !self.forbids_tools()
    }

    /// The same with an image tool put into its list, everything else to the byte as it came.
    pub(crate) fn with_tool(mut self) -> Self {
        let (body, whole) = (&self.body, self.body.len());
        let (at, behind, inserted) = match self.places.tools {
            // Behind the last of them, before the bracket.
            Some(part) if part.shape == Shape::Array => {
                let comma = if self.tools.count > 0 { "," } else { "" };
                (part.to - 1, part.to - 1, format!("{comma}{INJECTED}"))
            }
            // In the place of a `null`.
            Some(part) => (part.from, part.to, format!("[{INJECTED}]")),
            // First of all members: there are others, because some are required.
            None => (self.places.begin + 1, self.places.begin + 1, format!(r#""tools":[{INJECTED}],"#)),
        };
        self.pieces = vec![body.part(0, at), Kept::from(Bytes::from(inserted)), body.part(behind, whole)];
        self.tools.add(ImageTool::default());
        self.injected = true;
        self
    }

    /// The same as it came, without the tool that was put in.
    pub(crate) fn without_tool(&self) -> Self {
        let mut job = self.clone();
        if job.injected {
            job.pieces = vec![job.body.clone()];
            job.tools.first = None;
            job.injected = false;
        }
        job
    }

    /// The same job as a part of this turn of an agent.
    pub(crate) fn within(self, turn: Option<String>) -> Self {
        Self { turn, ..self }
    }

    /// The turn of an agent that this job is a part of.
    pub(crate) fn turn(&self) -> Option<&str> {
        self.turn.as_deref()
    }

    /// The body as the caller sent it.
    pub(crate) const fn body(&self) -> &Kept {
        &self.body
    }

    /// The id of the response that it continues.
    pub(crate) fn previous(&self) -> Option<&str> {
        self.previous.as_deref()
    }

    /// The same job for this account alone.
    pub(crate) fn only_at(self, account: String) -> Self {
        Self { account: Some(account), ..self }
    }

    /// The only account that can serve it, if no other can.
    pub(crate) fn account(&self) -> Option<&str> {
        self.account.as_deref()
    }

    /// Whether an image tool was put in.
    pub(crate) const fn injected(&self) -> bool {
        self.injected
    }

    /// The headers that go upstream.
    pub(crate) const fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// What names the conversation, where the agent says so.
    pub(crate) fn session(&self) -> Option<&[u8]> {
        agent::session(&self.headers)
    }

    /// The body that goes upstream, in pieces one behind the other: as it came, to the byte, but for an injected tool.
    pub(crate) fn pieces(&self) -> &[Kept] {
        &self.pieces
    }
}

impl fmt::Debug for ResponseJob {
    /// Without the body: it is a conversation, and megabytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseJob").field("model", &self.model).field("stream", &self.stream).finish_non_exhaustive()
    }
}
