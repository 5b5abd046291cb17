//! Everything in a body on which a judgement depends: its tools, what it names of the upstream's stores, the inputs
//! whose cost the body does not show, and what could not be judged. The visitor of the body fills it in one pass.

use std::collections::VecDeque;

use super::item_kind::ItemKind;
use super::tool_summary::ToolSummary;

/// The most ids of stored things that are kept (our choice): a client that continues a long conversation by references
/// names one for each item. A request with more cannot be judged.
const STORED_MAX: usize = 1_000;
/// The most bytes of an id (our choice). No such id is longer.
const ID_BYTES_MAX: usize = 256;
/// The most ids of reasoning and compaction that are kept (our choice), the last ones: they tell which account made
/// them, and every one of them does.
const MAKER_IDS_MAX: usize = 64;

/// The contents of a body, as far as limits, permissions, filters, prices and the choice of an account depend on it.
#[derive(Clone, Debug, Default)]
pub(crate) struct BodyContents {
    pub(super) tools: ToolSummary,
    stored: Vec<StoredId>,
    maker_ids: VecDeque<StoredId>,
    pub(super) inputs: InputFacts,
    pub(super) tool_conflicts: ToolConflicts,
    unjudged: Option<UnjudgedPart>,
}

/// The id of something that an upstream made or stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredId {
    /// The kind of the thing.
    pub(crate) kind: StoredKind,
    /// The path of the id in the request.
    pub(crate) path: String,
    /// The id as the request states it. For [`StoredKind::Ciphertext`], the SHA-256 of the decoded text in Base64 for
    /// URLs, without padding.
    pub(crate) id: String,
}

/// A kind of thing that an upstream makes or stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum StoredKind {
    /// The response in `previous_response_id`, or one that the request is compared with.
    Response,
    /// The conversation in `conversation`.
    Conversation,
    /// An item of a stored response, which the request names instead of repeating it.
    Item,
    /// A file.
    File,
    /// The container of a code interpreter or shell.
    Container,
    /// A store of files that can be searched.
    VectorStore,
    /// A skill that a container gets.
    Skill,
    /// A prompt with its instructions and tools.
    Prompt,
    /// A reasoning item, which the request repeats.
    Reasoning,
    /// A compaction item, which the request repeats.
    Compaction,
    /// An `encrypted_content`, which the request repeats.
    Ciphertext,
}

/// The inputs whose tokens do not follow from the length of the body, or whose text is not in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct InputFacts {
    /// The path of the first image or file that the request gives by an address.
    pub(crate) first_address: Option<String>,
    /// The path of the first file whose content the request has, or gives by an address or id.
    pub(crate) first_file: Option<String>,
    /// The number of images whose data the request has, masks included.
    pub(crate) inline_images: u64,
}

/// The properties of a request with which a tool that the gateway adds would conflict.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ToolConflicts {
    /// True if an item is a compaction, or demands one.
    has_compaction: bool,
    /// True if the text of the answer must follow a schema.
    pub(super) has_text_format: bool,
}

/// A part of a request that could not be judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnjudgedPart {
    /// The path of the part.
    pub(crate) path: String,
    /// The reason, as a clause whose subject is the part.
    pub(crate) reason: &'static str,
}

// === impl BodyContents ===

impl BodyContents {
    /// Returns what the request names of the upstream's stores, in its order. If there is more than can be kept, the
    /// rest is an unjudged part.
    pub(crate) fn stored(&self) -> &[StoredId] {
        &self.stored
    }

    /// Returns a part that could not be judged if the request names more of the upstream's stores than is kept.
    pub(crate) fn unlisted_stored(&self) -> Option<&UnjudgedPart> {
        self.unjudged.as_ref().filter(|_| self.stored.len() == STORED_MAX)
    }

    /// Returns the ids of reasoning and compaction items, and the digests of ciphertexts, the last ones of the request.
    /// Only the account that made one can read it.
    pub(crate) const fn maker_ids(&self) -> &VecDeque<StoredId> {
        &self.maker_ids
    }

    /// Returns the inputs that bounds and filters cannot see.
    pub(crate) const fn inputs(&self) -> &InputFacts {
        &self.inputs
    }

    /// Returns the first part that could not be judged. It passes unless a filter, a list of tools or a strict budget
    /// depends on the judgement.
    pub(crate) const fn unjudged(&self) -> Option<&UnjudgedPart> {
        self.unjudged.as_ref()
    }

    /// Adds the id of a stored thing; `None` if it is longer than any id.
    pub(super) fn add_stored(&mut self, kind: StoredKind, path: String, id: Option<String>) {
        match id.filter(|id| id.len() <= ID_BYTES_MAX) {
            None => self.note_unjudged(path, "is too long for an id"),
            Some(_) if self.stored.len() == STORED_MAX => {
                self.note_unjudged(path, "is one of more than 1000 ids of stored context");
            }
            Some(id) => self.stored.push(StoredId { kind, path, id }),
        }
    }

    /// Adds the id of something that its maker can read.
    pub(super) fn add_maker_id(&mut self, kind: StoredKind, path: String, id: String) {
        if self.maker_ids.len() == MAKER_IDS_MAX {
            self.maker_ids.pop_front();
        }
        self.maker_ids.push_back(StoredId { kind, path, id });
    }

    /// Notes a part that cannot be judged, unless there is one.
    pub(super) fn note_unjudged(&mut self, path: String, reason: &'static str) {
        self.unjudged.get_or_insert(UnjudgedPart { path, reason });
    }
}

// === impl ToolConflicts ===

impl ToolConflicts {
    /// Notes the next item of the input.
    pub(super) fn note_item(&mut self, kind: ItemKind) {
        self.has_compaction |= matches!(kind, ItemKind::CompactionTrigger | ItemKind::Compaction);
    }

    /// True if a tool that the caller does not expect would conflict with the request.
    pub(super) const fn excludes_new_tools(self) -> bool {
        self.has_compaction || self.has_text_format
    }
}
