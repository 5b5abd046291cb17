//! The settings with a fixed set of values, and the words for them; `model_choice` has those of added image models.
//!
//! The document of the operators' API has the words of groups and limits, which the API and the settings share.

use schemars::JsonSchema;
use schemars::r#gen::SchemaGenerator;
use schemars::schema::Schema;
use serde::{Deserialize, Serialize};

use super::document_schema::{table, words};
pub(crate) use crate::wire::admin::types::{
    AccountImageUrls, AccountKind, AccountProtocol, AccountTier, BudgetMode, BudgetPeriod, DeliveryPolicy, Dialect,
    FallbackPolicy, FilterFilePolicy, ModerationErrorPolicy, OauthClientAuth, OauthGrant, QualityLimit, RequestLimits,
    StoredContextPolicy,
};

/// Describes types in the schema of the settings as the document does.
macro_rules! described_by_document {
    ($describe:ident: $($name:ident),+) => {$(
        impl JsonSchema for $name {
            fn schema_name() -> String {
                stringify!($name).to_owned()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $describe(stringify!($name))
            }
        }
    )+};
}

described_by_document!(table: RequestLimits);
described_by_document!(words:
    BudgetMode,
    BudgetPeriod,
    DeliveryPolicy,
    Dialect,
    FallbackPolicy,
    FilterFilePolicy,
    ModerationErrorPolicy,
    QualityLimit,
    StoredContextPolicy,
    AccountImageUrls,
    AccountKind,
    AccountProtocol,
    AccountTier,
    OauthClientAuth,
    OauthGrant
);

/// The failures after which a record that was committed still exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Durability {
    /// A power failure, or a crash of the system: each commit waits for the disk.
    #[default]
    Power,
    /// The end of the process, even if it is killed. After a power failure, records, usage counts and idempotency keys
    /// can be missing that the system had not written to the disk yet, on Linux usually those of the last half minute; a
    /// request that is sent again then can be paid for again.
    Process,
}

/// The users who must have a second factor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SecondFactorPolicy {
    /// Nobody: each user decides.
    #[default]
    Off,
    /// Admins.
    Admins,
    /// All users.
    Everyone,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogFormat {
    /// Plain text for people.
    #[default]
    Text,
    /// One JSON object per line, for programs.
    Json,
}

// === impl Dialect ===

impl Dialect {
    /// Returns the dialect of a word.
    ///
    /// # Errors
    ///
    /// Returns an error with all words if there is no such dialect.
    pub(crate) fn from_word(word: &str) -> Result<Self, String> {
        word.parse().map_err(|_| {
            let words: Vec<_> = Self::ALL.into_iter().map(Self::as_str).collect();
            format!("expected one of {}", words.join(", "))
        })
    }
}
