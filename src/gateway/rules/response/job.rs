//! The response job: a request for a response that passed every rule.

use std::fmt;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use http::HeaderMap;

use super::body_members::{JsonType, ValueSpan};
use super::{agent, request_text, tool};
use crate::error::Error;
use crate::gateway::spool::SpooledBytes;
use crate::image::{ByteSource as _, Format, SizeRequest};

/// The tool that is injected if an agent brings none. Agents save its images as PNG files.
const INJECTED_TOOL: &str = r#"{"type":"image_generation","output_format":"png"}"#;

/// A request for a response that passed every rule. Only the module `rules` makes one.
#[derive(Clone)]
pub(crate) struct ResponseJob {
    pub(super) model: String,
    pub(super) is_stream: bool,
    pub(super) end_user: Option<String>,
    pub(super) received_at: DateTime<Utc>,
    pub(super) tools: ToolSummary,
    pub(super) layout: BodyLayout,
    /// The choice of tools as the body states it, unless it is large.
    pub(super) tool_choice: Option<Vec<u8>>,
    pub(super) headers: HeaderMap,
    pub(super) is_agent: bool,
    pub(super) has_stored_prompt: bool,
    pub(super) is_tool_injected: bool,
    /// The id of the response that this one continues.
    pub(super) previous_response_id: Option<String>,
    /// The only account that can serve the job, if no other can.
    pub(super) only_account: Option<String>,
    pub(super) turn: Option<String>,
    /// The pieces of the body that goes upstream; without an injected tool there is one.
    pub(super) body_pieces: Vec<SpooledBytes>,
    /// The body as it came.
    pub(super) body: SpooledBytes,
}

/// The positions of the parts of a body.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyLayout {
    /// The offset of the opening brace.
    pub(super) object_start: u64,
    pub(super) input: ValueSpan,
    pub(super) tools: Option<ValueSpan>,
}

/// A summary of the image tools of a request. A request may list millions of tools, so only a summary is kept.
#[derive(Clone, Debug, Default)]
pub(super) struct ToolSummary {
    first: Option<ImageTool>,
    has_large: bool,
    partial_images: u32,
    count: usize,
    /// True if the agent brings its own tool for images.
    has_own_image_tool: bool,
    /// The first tool of each type that the upstream runs.
    hosted: Vec<HostedTool>,
}

/// A tool that the upstream runs: it may cost extra, and reach data of the account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostedTool {
    /// The path of its type in the request.
    pub(crate) path: String,
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
    pub(crate) partial_images: u32,
}

// === impl ToolSummary ===

impl ToolSummary {
    pub(super) fn add(&mut self, tool: ImageTool) {
        self.has_large |= tool.size.exact().is_some_and(crate::image::Size::is_large);
        self.partial_images = self.partial_images.max(tool.partial_images);
        self.first.get_or_insert(tool);
    }

    /// Counts one more tool, of any kind.
    pub(super) const fn count(&mut self) {
        self.count += 1;
    }

    /// Notes that the upstream runs a tool of this type.
    pub(super) fn note_hosted(&mut self, place: &str, kind: &str) {
        if self.hosted.len() < HOSTED_MAX && self.hosted.iter().all(|tool| tool.kind != kind) {
            self.hosted.push(HostedTool { path: place.to_owned(), kind: kind.to_owned() });
        }
    }

    /// Notes that one of the tools is the agent's own tool for images.
    pub(super) const fn note_own(&mut self) {
        self.has_own_image_tool = true;
    }
}

// === impl ResponseJob ===

impl ResponseJob {
    /// Returns the text or agent model, verbatim.
    pub(crate) fn model(&self) -> &str {
        &self.model
    }

    /// True if the caller asked for events.
    pub(crate) const fn is_stream(&self) -> bool {
        self.is_stream
    }

    /// Returns the caller's own name for the end user of the request.
    pub(crate) fn end_user(&self) -> Option<&str> {
        self.end_user.as_deref()
    }

    /// Returns the time at which the request came.
    pub(crate) const fn received_at(&self) -> DateTime<Utc> {
        self.received_at
    }

    /// Returns the options of the first image tool, if there is one.
    pub(crate) const fn image_tool(&self) -> Option<&ImageTool> {
        self.tools.first.as_ref()
    }

    /// True if the job takes one of the few slots for large images.
    pub(crate) const fn is_large(&self) -> bool {
        self.tools.has_large
    }

    /// Returns the tools that the caller asks the upstream to run, from the list and from the choice; one of each type.
    pub(crate) fn hosted_tools(&self) -> Vec<HostedTool> {
        let chosen = self.tool_choice.as_deref().map(tool::hosted_tools_of_choice).unwrap_or_default();
        self.tools.hosted.iter().cloned().chain(chosen).collect()
    }

    /// True if the request names a prompt that is kept at the upstream and may bring tools of its own.
    pub(crate) const fn has_stored_prompt(&self) -> bool {
        self.has_stored_prompt
    }

    /// True if the caller has forbidden every tool.
    pub(crate) fn forbids_tools(&self) -> bool {
        self.tool_choice.as_deref() == Some(br#""none""#)
    }

    /// Returns the last text of the user. It never goes into a log or a record.
    ///
    /// # Errors
    ///
    /// Returns an error if the body cannot be read back from disk.
    pub(crate) fn prompt(&self) -> Result<String, Error> {
        request_text::last_user_text(&self.body, self.layout.input)
    }

    /// Passes every text of the request to `enough`, in windows that overlap, until it returns true. No text goes into
    /// a log or a record.
    ///
    /// # Errors
    ///
    /// Returns an error if the body cannot be read back from disk.
    pub(crate) fn visit_texts(&self, mut is_enough: impl FnMut(&str) -> bool) -> Result<(), Error> {
        request_text::visit_texts(&self.body, &mut is_enough)
    }

    /// Returns the tools as they stand in the body, unless they have more than `most` bytes.
    pub(crate) fn listed_tools(&self, most: usize) -> Option<Vec<u8>> {
        let part = self.layout.tools?;
        let length = usize::try_from(part.end - part.start).ok().filter(|length| *length <= most)?;
        let mut listed = vec![0; length];
        let read = self.body.read_at(part.start, &mut listed).ok()?;
        (read == length).then_some(listed)
    }

    /// Returns the choice of tools as it stands in the body, unless it is large.
    pub(crate) fn tool_choice(&self) -> Option<&[u8]> {
        self.tool_choice.as_deref()
    }

    /// True if a coding agent sends the request that could draw if it had the tool.
    pub(crate) fn may_inject_image_tool(&self) -> bool {
        self.is_agent && self.tools.first.is_none() && !self.tools.has_own_image_tool && !self.forbids_tools()
    }

    /// Returns the same job with an image tool added to its list, and with every other byte as it came.
    pub(crate) fn with_image_tool(mut self) -> Self {
        let (body, whole) = (&self.body, self.body.len());
        let (at, behind, inserted) = match self.layout.tools {
            // After the last tool, before the bracket.
            Some(part) if part.json_type == JsonType::Array => {
                let comma = if self.tools.count > 0 { "," } else { "" };
                (part.end - 1, part.end - 1, format!("{comma}{INJECTED_TOOL}"))
            }
            // In place of a `null`.
            Some(part) => (part.start, part.end, format!("[{INJECTED_TOOL}]")),
            // Before all other members: there are some, because some are required.
            None => {
                (self.layout.object_start + 1, self.layout.object_start + 1, format!(r#""tools":[{INJECTED_TOOL}],"#))
            }
        };
        self.body_pieces =
            vec![body.slice(0, at), SpooledBytes::from(Bytes::from(inserted)), body.slice(behind, whole)];
        self.tools.add(ImageTool::default());
        self.is_tool_injected = true;
        self
    }

    /// Returns the same job as it came, without the injected tool.
    pub(crate) fn without_injected_tool(&self) -> Self {
        let mut job = self.clone();
        if job.is_tool_injected {
            job.body_pieces = vec![job.body.clone()];
            job.tools.first = None;
            job.is_tool_injected = false;
        }
        job
    }

    /// Returns the same job as a part of this turn of an agent.
    pub(crate) fn with_turn(self, turn: Option<String>) -> Self {
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
    pub(crate) fn previous_response_id(&self) -> Option<&str> {
        self.previous_response_id.as_deref()
    }

    /// Returns the same job for this account alone.
    pub(crate) fn for_account(self, account: String) -> Self {
        Self { only_account: Some(account), ..self }
    }

    /// Returns the only account that can serve the job, if no other can.
    pub(crate) fn only_account(&self) -> Option<&str> {
        self.only_account.as_deref()
    }

    /// True if an image tool was injected.
    pub(crate) const fn is_tool_injected(&self) -> bool {
        self.is_tool_injected
    }

    /// Returns the headers that go upstream.
    pub(crate) const fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Returns the name of the conversation, if the agent states it.
    pub(crate) fn session(&self) -> Option<&[u8]> {
        agent::conversation(&self.headers)
    }

    /// Returns the body that goes upstream, in pieces: byte for byte as it came, except for an injected tool.
    pub(crate) fn body_pieces(&self) -> &[SpooledBytes] {
        &self.body_pieces
    }
}

impl fmt::Debug for ResponseJob {
    /// Omits the body, which is a conversation of megabytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseJob")
            .field("model", &self.model)
            .field("stream", &self.is_stream)
            .finish_non_exhaustive()
    }
}
