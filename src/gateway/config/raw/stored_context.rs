//! The words of the setting about what upstreams store.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The ids of stored context that callers may name if the gateway does not know who made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StoredContextPolicy {
    /// All ids, except those that are known as another user's.
    Any,
    /// Only ids that answers of this gateway have given to the same user.
    Own,
}

// === impl StoredContextPolicy ===

impl StoredContextPolicy {
    /// Returns the word for the value in the configuration file.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Own => "own",
        }
    }
}
