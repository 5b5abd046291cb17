//! The ticket: a request for a response that passed every rule.

use std::fmt;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use http::HeaderMap;

use super::words;
use crate::image::{Format, SizeRequest};

/// A request for a response that passed every rule. Only this room makes one.
#[derive(Clone)]
pub(crate) struct ResponseJob {
    pub(super) model: String,
    pub(super) stream: bool,
    pub(super) end_user: Option<String>,
    pub(super) received: DateTime<Utc>,
    pub(super) tools: Tools,
    /// Parts of the body, as they stand in it.
    pub(super) input: Bytes,
    pub(super) listed: Option<Bytes>,
    pub(super) choice: Option<Bytes>,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// What the image tools of a request ask for. A request may list millions of tools, so only a summary is kept.
#[derive(Clone, Debug, Default)]
pub(super) struct Tools {
    first: Option<ImageTool>,
    large: bool,
    partials: u32,
}

/// What one image tool asks for.
#[derive(Clone, Debug)]
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

    /// Whether the caller has forbidden every tool.
    pub(crate) fn forbids_tools(&self) -> bool {
        self.choice.as_deref() == Some(br#""none""#)
    }

    /// What the user said last. It never goes into a log or a record.
    pub(crate) fn prompt(&self) -> String {
        words::last(&self.input)
    }

    /// Everything that is said in the request, whoever says it. It never goes into a log or a record.
    pub(crate) fn texts(&self) -> String {
        words::all(&self.body)
    }

    /// The tools as they stand in the body.
    pub(crate) fn listed_tools(&self) -> Option<&[u8]> {
        self.listed.as_deref()
    }

    /// The choice of tools as it stands in the body.
    pub(crate) fn tool_choice(&self) -> Option<&[u8]> {
        self.choice.as_deref()
    }

    /// The headers that go upstream.
    pub(crate) const fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The body as it came, to the byte.
    pub(crate) const fn body(&self) -> &Bytes {
        &self.body
    }
}

impl fmt::Debug for ResponseJob {
    /// Without the body: it is a conversation, and megabytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseJob").field("model", &self.model).field("stream", &self.stream).finish_non_exhaustive()
    }
}
