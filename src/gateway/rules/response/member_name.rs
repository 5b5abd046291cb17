//! The names of the members that the gateway reads, wherever they stand in a body. None may occur twice in an object:
//! parsers differ in the one that counts, so what is checked might not be what the upstream reads.

macro_rules! member_names {
    ($($name:ident = $text:literal),+ $(,)?) => {
        /// The name of a member that is read.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum MemberName {
            $($name),+
        }

        impl MemberName {
            /// Returns the name that a key spells exactly.
            pub(super) fn find(key: &str) -> Option<Self> {
                match key {
                    $($text => Some(Self::$name),)+
                    _ => None,
                }
            }

            pub(super) const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text),+
                }
            }
        }
    };
}

member_names! {
    Action = "action",
    AllowedTools = "allowed_tools",
    Annotations = "annotations",
    Arguments = "arguments",
    Background = "background",
    ComparisonResponseId = "comparison_response_id",
    Container = "container",
    ContainerId = "container_id",
    Content = "content",
    Conversation = "conversation",
    EncryptedContent = "encrypted_content",
    FileData = "file_data",
    FileId = "file_id",
    FileIds = "file_ids",
    FileUrl = "file_url",
    Format = "format",
    Id = "id",
    ImageUrl = "image_url",
    Input = "input",
    InputFidelity = "input_fidelity",
    InputImageMask = "input_image_mask",
    InputSchema = "input_schema",
    Instructions = "instructions",
    MaxOutputTokens = "max_output_tokens",
    MaxToolCalls = "max_tool_calls",
    Metadata = "metadata",
    Model = "model",
    Moderation = "moderation",
    Name = "name",
    Output = "output",
    OutputCompression = "output_compression",
    OutputFormat = "output_format",
    ParallelToolCalls = "parallel_tool_calls",
    Parameters = "parameters",
    PartialImages = "partial_images",
    PreviousResponseId = "previous_response_id",
    Prompt = "prompt",
    PromptCacheKey = "prompt_cache_key",
    Quality = "quality",
    Result = "result",
    Results = "results",
    RevisedPrompt = "revised_prompt",
    Role = "role",
    SafetyIdentifier = "safety_identifier",
    Schema = "schema",
    ServiceTier = "service_tier",
    Size = "size",
    SkillId = "skill_id",
    Store = "store",
    Stream = "stream",
    Style = "style",
    Summary = "summary",
    Text = "text",
    ToolChoice = "tool_choice",
    Tools = "tools",
    Type = "type",
    Url = "url",
    User = "user",
    VectorStoreId = "vector_store_id",
    VectorStoreIds = "vector_store_ids",
}

const _: () = assert!((MemberName::VectorStoreIds as u32) < u64::BITS, "one bit for each name");

/// The names of one object that have occurred.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SeenNames(u64);

// === impl SeenNames ===

impl SeenNames {
    /// Notes a name. Returns false if it has occurred before.
    pub(super) const fn note(&mut self, name: MemberName) -> bool {
        let bit = 1_u64 << name as u32;
        let is_new = self.0 & bit == 0;
        self.0 |= bit;
        is_new
    }
}

/// True if a member with this key is a list of tools if it is an array. Some parsers do not distinguish case.
pub(super) fn lists_tools(key: &str) -> bool {
    const NAME: &[u8] = b"tools";
    let key = key.as_bytes();
    let Some((before, name)) = key.len().checked_sub(NAME.len()).and_then(|at| key.split_at_checked(at)) else {
        return false;
    };
    name.eq_ignore_ascii_case(NAME) && matches!(before, [] | [.., b'_'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::IMAGE_TOOL_FIELDS;

    #[test]
    fn every_field_of_an_image_tool_is_a_known_name() {
        for field in IMAGE_TOOL_FIELDS {
            assert_eq!(MemberName::find(field.name).map(MemberName::as_str), Some(field.name));
        }
    }

    #[test]
    fn a_list_of_tools_is_known_by_its_name() {
        for key in ["tools", "Tools", "additional_tools", "allowed_tools", "X_TOOLS"] {
            assert!(lists_tools(key), "{key}");
        }
        for key in ["", "tool", "pretools", "toolset", "tools_", "ätools"] {
            assert!(!lists_tools(key), "{key}");
        }
    }
}
