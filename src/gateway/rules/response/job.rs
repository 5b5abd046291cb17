//! The response job: a request for a response that passed every rule.

use std::fmt;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use http::HeaderMap;
use serde_json::Value;

use super::body_contents::{BodyContents, StoredKind};
use super::body_edits::{BodyEdit, BodyEdits};
use super::body_members::{self, JsonType, ValueSpan};
use super::request_text::{TextScope, TextWindows};
use super::serving_accounts::ServingAccounts;
use super::tool_summary::{HostedTool, ImageTool};
use super::{agent, request_text, tool};
use crate::error::Error;
use crate::gateway::config::ImageModelSpec;
use crate::gateway::spool::SpooledBytes;

/// The image tool that is injected into the request of a coding agent that has none. Agents save images as PNG files.
const INJECTED_TOOL: &str = r#"{"type":"image_generation","output_format":"png"}"#;

/// A request for a response that passed every rule. Only the module `rules` makes one.
#[derive(Clone)]
pub(crate) struct ResponseJob {
    pub(super) model: String,
    pub(super) is_stream: bool,
    pub(super) end_user: Option<String>,
    pub(super) prompt_cache_key: Option<String>,
    pub(super) received_at: DateTime<Utc>,
    pub(super) contents: BodyContents,
    pub(super) layout: BodyLayout,
    pub(super) tool_choice: Option<Value>,
    pub(super) headers: HeaderMap,
    pub(super) is_agent: bool,
    pub(super) has_stored_prompt: bool,
    /// The image tool that the gateway has added, if it has added one.
    pub(super) injection: Option<BodyEdit>,
    /// The most tokens that the text model may write, if the request limits them.
    pub(super) max_output_tokens: Option<u64>,
    /// The most calls of hosted tools, if the request limits them.
    pub(super) max_tool_calls: Option<u64>,
    /// The accounts to which the context of the job belongs.
    pub(super) accounts: ServingAccounts,
    pub(super) turn: Option<String>,
    /// The changes that were made to image tools.
    pub(super) adapted: Option<String>,
    /// The changes of the body, without an injected tool.
    pub(super) edits: BodyEdits,
    /// The pieces of the body that is sent upstream: one piece, unless something was injected or changed.
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
    pub(super) max_output_tokens: Option<ValueSpan>,
    pub(super) max_tool_calls: Option<ValueSpan>,
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

    /// Returns the most calls of hosted tools, if the request limits them.
    pub(crate) const fn max_tool_calls(&self) -> Option<u64> {
        self.max_tool_calls
    }

    /// Returns the key under which the upstream caches the beginning of the conversation, if the request has one.
    pub(crate) fn prompt_cache_key(&self) -> Option<&str> {
        self.prompt_cache_key.as_deref()
    }

    /// Returns everything in the body on which a judgement depends.
    pub(crate) const fn contents(&self) -> &BodyContents {
        &self.contents
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
        self.contents.tools.image_tools()
    }

    /// Returns every change that was made to image tools, as the answer and the record state them.
    pub(crate) fn adapted_text(&self) -> Option<String> {
        self.adapted.clone()
    }

    /// True if the job needs one of the slots for large images.
    pub(crate) const fn is_large(&self) -> bool {
        self.contents.tools.has_large_image()
    }

    /// Returns the tools that the upstream runs, wherever the request names them, one of each type. Unknown types count as
    /// such.
    pub(crate) const fn hosted_tools(&self) -> &[HostedTool] {
        self.contents.tools.hosted_tools()
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

    /// Passes the texts of the request to `is_enough`, in windows that overlap, until `is_enough` returns true. Base64 data
    /// is no text. No text is written to a log or a record.
    ///
    /// # Errors
    ///
    /// Returns an error if the body cannot be read back from disk.
    pub(crate) fn visit_texts(
        &self,
        scope: TextScope,
        windows: TextWindows,
        mut is_enough: impl FnMut(&str) -> bool,
    ) -> Result<(), Error> {
        request_text::visit_texts(&self.body, scope, windows, &mut is_enough)
    }

    /// Returns the bytes of the value of `tools`; `None` if it is absent, longer than `max_bytes`, or cannot be read.
    pub(crate) fn listed_tools(&self, max_bytes: usize) -> Option<Vec<u8>> {
        body_members::read_span(&self.body, self.layout.tools?, max_bytes)
    }

    /// Returns the value of `tool_choice`; `None` if it is absent.
    pub(crate) const fn tool_choice(&self) -> Option<&Value> {
        self.tool_choice.as_ref()
    }

    /// True if the request comes from a coding agent, has neither an image tool nor the agent's own tool for images, and an
    /// image tool could be used and would not conflict with the turn.
    pub(crate) fn may_inject_image_tool(&self) -> bool {
        let tools = &self.contents.tools;
        self.is_agent
            && tools.image_tools().is_empty()
            && !tools.has_own_image_tool
            && !self.contents.tool_conflicts.excludes_new_tools()
            && self.tool_choice.as_ref().is_none_or(tool::allows_image_tool)
    }

    /// Adds an image tool to the tools of the body. Every other byte of the body stays the same.
    pub(crate) fn with_image_tool(mut self) -> Self {
        let listed = self.contents.tools.listed;
        let (start, end, inserted) = match self.layout.tools {
            // After the last tool, before the bracket.
            Some(span) if span.json_type == JsonType::Array => {
                let comma = if listed > 0 { "," } else { "" };
                (span.end - 1, span.end - 1, format!("{comma}{INJECTED_TOOL}"))
            }
            // Instead of `null`.
            Some(span) => (span.start, span.end, format!("[{INJECTED_TOOL}]")),
            // Before all other members. The comma is correct, because the body has required members.
            None => {
                (self.layout.object_start + 1, self.layout.object_start + 1, format!(r#""tools":[{INJECTED_TOOL}],"#))
            }
        };
        self.injection = Some(BodyEdit { start, end, pieces: vec![Bytes::from(inserted).into()] });
        let (path, model) = (format!("tools[{listed}]"), ImageModelSpec::default_model().id);
        self.contents.tools.inject(ImageTool { path, model, ..ImageTool::default() });
        self.join_pieces();
        self
    }

    /// Returns a copy of the job without the injected tool.
    pub(crate) fn without_injected_tool(&self) -> Self {
        let mut job = self.clone();
        if job.injection.take().is_some() {
            job.contents.tools.remove_injected();
            job.join_pieces();
        }
        job
    }

    /// Sets the most tokens that the text model may write, in the body that is sent too.
    pub(crate) fn with_max_output_tokens(mut self, most: u64) -> Self {
        self.max_output_tokens = Some(most);
        let span = self.layout.max_output_tokens;
        self.set_count("max_output_tokens", span, most)
    }

    /// Sets the most calls of hosted tools, in the body that is sent too.
    pub(crate) fn with_max_tool_calls(mut self, most: u64) -> Self {
        self.max_tool_calls = Some(most);
        let span = self.layout.max_tool_calls;
        self.set_count("max_tool_calls", span, most)
    }

    /// Sets a member of the request, which has this position if the request has it. At most once for each member.
    fn set_count(mut self, name: &str, span: Option<ValueSpan>, value: u64) -> Self {
        let (start, end, text) = match span {
            Some(span) => (span.start, span.end, value.to_string()),
            None => (self.layout.object_start + 1, self.layout.object_start + 1, format!(r#""{name}":{value},"#)),
        };
        self.edits.add(BodyEdit { start, end, pieces: vec![Bytes::from(text).into()] });
        self.join_pieces();
        let change = format!("{name} unset->{value}");
        self.adapted = Some(self.adapted.map_or_else(|| change.clone(), |adapted| format!("{adapted}, {change}")));
        self
    }

    /// Joins the body and its changes to the pieces that are sent.
    pub(super) fn join_pieces(&mut self) {
        let mut edits = self.edits.clone();
        if let Some(edit) = &self.injection {
            edits.add(edit.clone());
        }
        self.body_pieces = edits.pieces(&self.body);
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

    /// Sets the accounts to which the context of the job belongs.
    pub(crate) fn for_accounts(self, accounts: ServingAccounts) -> Self {
        Self { accounts, ..self }
    }

    /// Returns the accounts to which the context of the job belongs.
    pub(crate) const fn serving_accounts(&self) -> &ServingAccounts {
        &self.accounts
    }

    /// True if an image tool was injected.
    pub(crate) const fn is_tool_injected(&self) -> bool {
        self.injection.is_some()
    }

    /// Returns the headers that are forwarded to the upstream.
    pub(crate) const fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Returns the id of the conversation: that of a header, or else the key of its cache, or else that of a conversation
    /// which the upstream stores.
    pub(crate) fn session(&self) -> Option<&[u8]> {
        let stored = || self.contents.stored().iter().find(|stored| stored.kind == StoredKind::Conversation);
        let cache_key = self.prompt_cache_key().filter(|key| !key.is_empty());
        let in_body = || cache_key.or_else(|| stored().map(|stored| stored.id.as_str())).map(str::as_bytes);
        agent::conversation(&self.headers).or_else(in_body)
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
