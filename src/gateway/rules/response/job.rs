//! The response job: a request for a response that passed every rule.

use std::fmt;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use http::HeaderMap;
use serde_json::Value;

use super::body_members::{JsonType, ValueSpan};
use super::{agent, request_text, tool};
use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::config::ImageModelSpec;
use crate::gateway::spool::SpooledBytes;
use crate::image::{ByteSource as _, Format, SizeRequest};

/// The image tool that is injected into the request of a coding agent that has none. Agents save images as PNG files.
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
    pub(super) tool_choice: Option<Value>,
    pub(super) headers: HeaderMap,
    pub(super) is_agent: bool,
    pub(super) has_stored_prompt: bool,
    pub(super) is_tool_injected: bool,
    /// The id of the response that this job continues.
    pub(super) previous_response_id: Option<String>,
    /// The most tokens that the text model may write, if the request limits them.
    pub(super) max_output_tokens: Option<u64>,
    /// The name of the account that must serve the job, because it made the response that this job continues.
    pub(super) only_account: Option<String>,
    pub(super) turn: Option<String>,
    /// The changes that were made to image tools.
    pub(super) adapted: Option<String>,
    /// The pieces of the body that is sent upstream: one piece, unless a tool was injected or changed.
    pub(super) body_pieces: Vec<SpooledBytes>,
    /// The body as the caller sent it.
    pub(super) body: SpooledBytes,
}

/// The positions of the parts of a body that are read again, or changed, after the check.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyLayout {
    /// The offset of the opening brace.
    pub(super) object_start: u64,
    pub(super) input: ValueSpan,
    pub(super) tools: Option<ValueSpan>,
}

/// A summary of the tools of a request. A request may list millions of tools, so the tools themselves are not kept.
#[derive(Clone, Debug, Default)]
pub(super) struct ToolSummary {
    /// The image tools that ask for different images, at most `IMAGE_TOOLS_MAX`.
    image_tools: Vec<ImageTool>,
    has_large_image: bool,
    count: usize,
    /// True if the request has the agent's own tool for images.
    has_own_image_tool: bool,
    /// The first tool of each type that the upstream runs, for at most `HOSTED_MAX` types.
    hosted_tools: Vec<HostedTool>,
    /// The changes of image tools, in their order in the body.
    changes: Vec<BodyChange>,
}

/// A value of the body that is replaced before the body is sent, and the pieces that replace it.
pub(super) type BodyChange = (ValueSpan, Vec<SpooledBytes>);

/// A tool that the upstream runs: it may cost extra, and read data that the account has stored at the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostedTool {
    /// The path of the tool's type in the request.
    pub(crate) path: String,
    /// The type of the tool.
    pub(crate) kind: String,
}

/// The most image tools that may be changed (our choice): each splits the body that is sent.
const CHANGES_MAX: usize = 16;
/// The most image tools that may ask for different images (our choice): each is checked against every limit.
const IMAGE_TOOLS_MAX: usize = 16;
/// The most types of hosted tools that are recorded: one more than a group can allow.
const HOSTED_MAX: usize = 65;

/// The options of one image tool.
#[derive(Clone, Debug, Default)]
pub(crate) struct ImageTool {
    /// The path of the tool in the request, such as `tools[0]`.
    pub(crate) path: String,
    /// The id of the image model that the tool names, or else of the default model.
    pub(crate) model: String,
    /// The requested size.
    pub(crate) size: SizeRequest,
    /// `low`, `medium`, `high` or `auto`, if the tool states it.
    pub(crate) quality: Option<String>,
    /// The file format.
    pub(crate) format: Format,
    /// The compression level, 0 to 100; at 100 the image has its best quality.
    pub(crate) compression: u8,
    /// The number of intermediate images.
    pub(crate) partial_images: u32,
}

// === impl ToolSummary ===

impl ToolSummary {
    /// Adds an image tool, unless another one asks for the same image. Rejects more than [`IMAGE_TOOLS_MAX`] of them.
    pub(super) fn add(&mut self, tool: ImageTool) -> Result<(), Rejection> {
        if self.image_tools.iter().any(|known| known.asks_for_same_image(&tool)) {
            return Ok(());
        }
        if self.image_tools.len() >= IMAGE_TOOLS_MAX {
            let message = format!(
                "Invalid 'tools': at most {IMAGE_TOOLS_MAX} image tools may differ in their model, size, quality or number \
                 of intermediate images."
            );
            return Err(Rejection::new("tools", RejectionReason::InvalidValue, message));
        }
        self.has_large_image |= tool.size.exact().is_some_and(crate::image::Size::is_large);
        self.image_tools.push(tool);
        Ok(())
    }

    /// Notes a change of the tool with this path. Rejects more than [`CHANGES_MAX`] of them.
    pub(super) fn replace(&mut self, path: &str, span: ValueSpan, pieces: Vec<SpooledBytes>) -> Result<(), Rejection> {
        if self.changes.len() >= CHANGES_MAX {
            let path = path.trim_end_matches('.');
            let message = format!(
                "Invalid '{path}': at most {CHANGES_MAX} image tools may have another name for a model, or values that a \
                 dialect changes."
            );
            return Err(Rejection::new(path, RejectionReason::InvalidValue, message));
        }
        self.changes.push((span, pieces));
        Ok(())
    }

    /// Returns the pieces of the body with the changes.
    pub(super) fn upstream_pieces(&self, body: &SpooledBytes) -> Vec<SpooledBytes> {
        let (mut pieces, mut position) = (Vec::new(), 0);
        for (span, changed) in &self.changes {
            pieces.push(body.slice(position, span.start));
            pieces.extend(changed.iter().cloned());
            position = span.end;
        }
        if position == 0 {
            return vec![body.clone()];
        }
        pieces.push(body.slice(position, body.len()));
        pieces
    }

    /// Counts one more tool, of any kind, and returns its index.
    pub(super) const fn count_tool(&mut self) -> usize {
        self.count += 1;
        self.count - 1
    }

    /// Records a hosted tool, unless one of the same type or [`HOSTED_MAX`] others are recorded. `path` is the path of
    /// the type in the request.
    pub(super) fn record_hosted_tool(&mut self, path: &str, kind: &str) {
        if self.hosted_tools.len() < HOSTED_MAX && self.hosted_tools.iter().all(|tool| tool.kind != kind) {
            self.hosted_tools.push(HostedTool { path: path.to_owned(), kind: kind.to_owned() });
        }
    }

    /// Records that one of the tools is the agent's own tool for images.
    pub(super) const fn record_own_image_tool(&mut self) {
        self.has_own_image_tool = true;
    }
}

// === impl ImageTool ===

impl ImageTool {
    /// True if an image of the other tool has the same model and can cost as much.
    fn asks_for_same_image(&self, other: &Self) -> bool {
        let properties = |tool: &Self| (tool.size, tool.partial_images);
        properties(self) == properties(other) && self.model == other.model && self.quality == other.quality
    }
}

// === impl ResponseJob ===

impl ResponseJob {
    /// Returns the text or agent model, exactly as requested.
    pub(crate) fn model(&self) -> &str {
        &self.model
    }

    /// True if the caller asked for the answer as a stream of events.
    pub(crate) const fn is_stream(&self) -> bool {
        self.is_stream
    }

    /// Returns the caller's identifier of its end user, if the request has one.
    pub(crate) fn end_user(&self) -> Option<&str> {
        self.end_user.as_deref()
    }

    /// Returns the most tokens that the text model may write, if the request limits them.
    pub(crate) const fn max_output_tokens(&self) -> Option<u64> {
        self.max_output_tokens
    }

    /// Returns the time at which the request arrived.
    pub(crate) const fn received_at(&self) -> DateTime<Utc> {
        self.received_at
    }

    /// Returns the options of the first image tool, if there is one.
    pub(crate) const fn image_tool(&self) -> Option<&ImageTool> {
        self.image_tools().first()
    }

    /// Returns the image tools that ask for different images, in their order.
    pub(crate) const fn image_tools(&self) -> &[ImageTool] {
        self.tools.image_tools.as_slice()
    }

    /// Returns every change that was made to image tools, as the answer and the record state them.
    pub(crate) fn adapted_text(&self) -> Option<String> {
        self.adapted.clone()
    }

    /// True if the job needs one of the slots for large images.
    pub(crate) const fn is_large(&self) -> bool {
        self.tools.has_large_image
    }

    /// Returns the tools that the upstream runs: those listed in `tools`, one of each type, and those that
    /// `tool_choice` names.
    pub(crate) fn hosted_tools(&self) -> Vec<HostedTool> {
        let chosen = self.tool_choice.as_ref().map(tool::hosted_tools_of_choice).unwrap_or_default();
        self.tools.hosted_tools.iter().cloned().chain(chosen).collect()
    }

    /// True if the request names a prompt that the upstream stores. Such a prompt may have tools of its own.
    pub(crate) const fn has_stored_prompt(&self) -> bool {
        self.has_stored_prompt
    }

    /// True if the caller has forbidden every tool.
    pub(crate) fn forbids_tools(&self) -> bool {
        self.tool_choice.as_ref().is_some_and(|choice| choice == "none")
    }

    /// Returns the last text of the user, shortened if it is very long. It is never written to a log or a record.
    ///
    /// # Errors
    ///
    /// Returns an error if the body cannot be read back from disk.
    pub(crate) fn prompt(&self) -> Result<String, Error> {
        request_text::last_user_text(&self.body, self.layout.input)
    }

    /// Passes the texts of the request to `is_enough`, in windows that overlap, until `is_enough` returns true. No text
    /// is written to a log or a record.
    ///
    /// # Errors
    ///
    /// Returns an error if the body cannot be read back from disk.
    pub(crate) fn visit_texts(&self, mut is_enough: impl FnMut(&str) -> bool) -> Result<(), Error> {
        request_text::visit_texts(&self.body, &mut is_enough)
    }

    /// Returns the bytes of the value of `tools`; `None` if it is absent, longer than `max_bytes`, or cannot be read.
    pub(crate) fn listed_tools(&self, max_bytes: usize) -> Option<Vec<u8>> {
        let span = self.layout.tools?;
        let length = usize::try_from(span.end - span.start).ok().filter(|length| *length <= max_bytes)?;
        let mut bytes = vec![0; length];
        let count = self.body.read_at(span.start, &mut bytes).ok()?;
        (count == length).then_some(bytes)
    }

    /// Returns the value of `tool_choice`; `None` if it is absent.
    pub(crate) const fn tool_choice(&self) -> Option<&Value> {
        self.tool_choice.as_ref()
    }

    /// True if the request comes from a coding agent, has neither an image tool nor the agent's own tool for images,
    /// and does not forbid tools.
    pub(crate) fn may_inject_image_tool(&self) -> bool {
        self.is_agent && self.tools.image_tools.is_empty() && !self.tools.has_own_image_tool && !self.forbids_tools()
    }

    /// Adds an image tool to the tools of the body. Every other byte of the body stays the same.
    pub(crate) fn with_image_tool(mut self) -> Self {
        let (body, length) = (&self.body, self.body.len());
        let (start, end, inserted) = match self.layout.tools {
            // After the last tool, before the bracket.
            Some(span) if span.json_type == JsonType::Array => {
                let comma = if self.tools.count > 0 { "," } else { "" };
                (span.end - 1, span.end - 1, format!("{comma}{INJECTED_TOOL}"))
            }
            // Instead of `null`.
            Some(span) => (span.start, span.end, format!("[{INJECTED_TOOL}]")),
            // Before all other members. The comma is correct, because the body has required members.
            None => {
                (self.layout.object_start + 1, self.layout.object_start + 1, format!(r#""tools":[{INJECTED_TOOL}],"#))
            }
        };
        self.body_pieces =
            vec![body.slice(0, start), SpooledBytes::from(Bytes::from(inserted)), body.slice(end, length)];
        let (path, model) = (format!("tools[{}]", self.tools.count), ImageModelSpec::default_model().id);
        self.tools.image_tools = vec![ImageTool { path, model, ..ImageTool::default() }];
        self.is_tool_injected = true;
        self
    }

    /// Returns a copy of the job without the injected tool.
    pub(crate) fn without_injected_tool(&self) -> Self {
        let mut job = self.clone();
        if job.is_tool_injected {
            job.body_pieces = vec![job.body.clone()];
            job.tools.image_tools.clear();
            job.is_tool_injected = false;
        }
        job
    }

    /// Sets the turn of the agent's conversation that the job is part of.
    pub(crate) fn with_turn(self, turn: Option<String>) -> Self {
        Self { turn, ..self }
    }

    /// Returns the turn of the agent's conversation that the job is part of.
    pub(crate) fn turn(&self) -> Option<&str> {
        self.turn.as_deref()
    }

    /// Returns the body as the caller sent it.
    pub(crate) const fn body(&self) -> &SpooledBytes {
        &self.body
    }

    /// Returns the id of the response that this job continues.
    pub(crate) fn previous_response_id(&self) -> Option<&str> {
        self.previous_response_id.as_deref()
    }

    /// Restricts the job to the account with this name.
    pub(crate) fn for_account(self, account: String) -> Self {
        Self { only_account: Some(account), ..self }
    }

    /// Returns the name of the account that must serve the job, if only one can.
    pub(crate) fn only_account(&self) -> Option<&str> {
        self.only_account.as_deref()
    }

    /// True if an image tool was injected.
    pub(crate) const fn is_tool_injected(&self) -> bool {
        self.is_tool_injected
    }

    /// Returns the headers that are forwarded to the upstream.
    pub(crate) const fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Returns the id of the conversation, if a header states it.
    pub(crate) fn session(&self) -> Option<&[u8]> {
        agent::conversation(&self.headers)
    }

    /// Returns the pieces of the body that is sent upstream: the caller's bytes, and the injected tool, if there is
    /// one.
    pub(crate) fn body_pieces(&self) -> &[SpooledBytes] {
        &self.body_pieces
    }
}

impl fmt::Debug for ResponseJob {
    /// Omits the body, which may be large and contains the conversation.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseJob")
            .field("model", &self.model)
            .field("stream", &self.is_stream)
            .finish_non_exhaustive()
    }
}
