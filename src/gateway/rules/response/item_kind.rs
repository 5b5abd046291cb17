//! The types of items and parts that are treated apart.

use super::body_contents::StoredKind;

/// The type of an object of the input, or of any other object with a type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ItemKind {
    /// The object has no type, or one that is no text.
    #[default]
    Unstated,
    /// The thoughts of a text model, which their maker can read.
    Reasoning,
    /// A summary of the conversation, which its maker can read.
    Compaction,
    /// The demand for such a summary.
    CompactionTrigger,
    /// The id of a stored item.
    Reference,
    /// A call of the image tool. Without its result, it refers to a stored call.
    ImageCall,
    /// The list of the tools of a server.
    ServerTools,
    /// A file.
    InputFile,
    /// Any other.
    Other,
}

// === impl ItemKind ===

impl ItemKind {
    /// Returns the kind of an object whose member `type` is this text.
    pub(super) fn of(type_text: &str) -> Self {
        match type_text {
            "reasoning" => Self::Reasoning,
            "compaction" | "compaction_summary" => Self::Compaction,
            "compaction_trigger" => Self::CompactionTrigger,
            "item_reference" => Self::Reference,
            "image_generation_call" => Self::ImageCall,
            "mcp_list_tools" => Self::ServerTools,
            "input_file" => Self::InputFile,
            _ => Self::Other,
        }
    }

    /// Returns the kind of the ids of such items, if only the account that made them can read them.
    pub(super) const fn maker_id_kind(self) -> Option<StoredKind> {
        match self {
            Self::Reasoning => Some(StoredKind::Reasoning),
            Self::Compaction => Some(StoredKind::Compaction),
            _ => None,
        }
    }
}
