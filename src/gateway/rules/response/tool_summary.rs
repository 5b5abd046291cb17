//! A summary of the tools of a request, wherever it declares them.

use super::body_edits::{BodyEdit, BodyEdits};
use crate::error::{Rejection, RejectionReason};
use crate::image::{Format, Size, SizeRequest};

/// The most image tools that may be changed (our choice): each splits the body that is sent.
const CHANGES_MAX: usize = 16;
/// The most image tools that may ask for different images (our choice): each is checked against every limit.
const IMAGE_TOOLS_MAX: usize = 16;
/// The most types of hosted tools that are recorded: one more than a group can allow.
const HOSTED_MAX: usize = 65;

/// A summary of the tools of a request. A request may list millions of tools, so the tools themselves are not kept.
#[derive(Clone, Debug, Default)]
pub(super) struct ToolSummary {
    /// The image tools that ask for different images, at most `IMAGE_TOOLS_MAX`.
    image_tools: Vec<ImageTool>,
    has_large_image: bool,
    /// The number of tools in the member `tools` of the request itself.
    pub(super) listed: usize,
    /// True if the request has the agent's own tool for images.
    pub(super) has_own_image_tool: bool,
    /// The first tool of each type that the upstream runs, for at most `HOSTED_MAX` types.
    hosted_tools: Vec<HostedTool>,
    /// The changes of image tools.
    pub(super) edits: BodyEdits,
}

/// A tool that the upstream runs: it may cost extra, and read data that the account has stored at the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostedTool {
    /// The path of the tool's type in the request.
    pub(crate) path: String,
    /// The type of the tool.
    pub(crate) kind: String,
}

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
        self.has_large_image |= tool.size.exact().is_some_and(Size::is_large);
        self.image_tools.push(tool);
        Ok(())
    }

    /// Notes a change of the tool with this path. Rejects more than [`CHANGES_MAX`] of them.
    pub(super) fn change(&mut self, path: &str, edit: BodyEdit) -> Result<(), Rejection> {
        if self.edits.len() >= CHANGES_MAX {
            let message = format!(
                "Invalid '{path}': at most {CHANGES_MAX} image tools may have another name for a model, or values that a \
                 dialect changes."
            );
            return Err(Rejection::new(path, RejectionReason::InvalidValue, message));
        }
        self.edits.add(edit);
        Ok(())
    }

    /// Records a hosted tool, unless one of the same type or [`HOSTED_MAX`] others are recorded. `path` is the path of
    /// the type in the request.
    pub(super) fn record_hosted_tool(&mut self, path: &str, kind: &str) {
        if self.hosted_tools.len() < HOSTED_MAX && self.hosted_tools.iter().all(|tool| tool.kind != kind) {
            self.hosted_tools.push(HostedTool { path: path.to_owned(), kind: kind.to_owned() });
        }
    }

    /// Returns the image tools that ask for different images, in their order.
    pub(super) const fn image_tools(&self) -> &[ImageTool] {
        self.image_tools.as_slice()
    }

    /// Returns the first tool of each type that the upstream runs.
    pub(super) const fn hosted_tools(&self) -> &[HostedTool] {
        self.hosted_tools.as_slice()
    }

    /// True if an image tool asks for a large image.
    pub(super) const fn has_large_image(&self) -> bool {
        self.has_large_image
    }

    /// Adds the image tool that the gateway has added to a request without one.
    pub(super) fn inject(&mut self, tool: ImageTool) {
        self.image_tools = vec![tool];
    }

    /// Removes the image tool that the gateway has added.
    pub(super) fn remove_injected(&mut self) {
        self.image_tools.clear();
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
