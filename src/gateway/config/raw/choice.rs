//! The settings with a fixed set of values, and the words for them; `model_choice` has those of added image models.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The kind of credentials that an account has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CredentialKind {
    ApiKey,
    Oauth,
    Simulator,
}

/// The API that an upstream implements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UpstreamProtocol {
    /// The image endpoints.
    Images,
    /// The Responses API with its image tool.
    Responses,
}

/// The treatment of an answer that has the address of an image in place of the image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ImageUrlPolicy {
    /// The request fails with a reason of its own.
    #[default]
    Refuse,
    /// The image is fetched from there.
    Fetch,
}

/// The grant that an account exchanges for an access token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GrantKind {
    /// A refresh token.
    RefreshToken,
    /// The client's own id and secret.
    ClientCredentials,
}

/// The place of the client credentials in a token request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ClientAuth {
    /// In the header `Authorization`.
    Basic,
    /// In the fields of the form.
    Body,
}

/// The billing tier of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BillingTier {
    Paid,
    Free,
}

/// The highest quality that a limit allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum QualityLimit {
    Low,
    Medium,
    High,
}

/// The period of a budget, in UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BudgetPeriod {
    /// A day.
    Day,
    /// From Monday to Sunday.
    Week,
    /// A month of the calendar.
    #[default]
    Month,
}

/// The treatment of an image whose size or format differs from the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DeliveryPolicy {
    /// The answer is sent and states the actual size and format.
    Report,
    /// The request fails.
    Fail,
    /// The images of a plain answer of the image operations are encoded again if they came in another format, which the
    /// header `x-imagate-delivery` states. What an image states of its provenance is lost. Everything else is as with
    /// `report`.
    Convert,
}

/// The treatment of files and of stored content if there is a content filter, which cannot see their texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FilterFilePolicy {
    /// The request is refused.
    Refuse,
    /// They are sent without a check.
    Pass,
}

/// The rule by which responses, whose cost their text model decides, keep within budgets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BudgetMode {
    /// A response reserves what it can cost at most by the limits of its model, or runs alone if that does not fit or is
    /// not known. A budget is passed by at most one request.
    #[default]
    Paced,
    /// The gateway limits the tokens and the tool calls of a response, and refuses what it cannot limit. A budget is never
    /// passed.
    Strict,
}

/// The fallback for an image of 3840x2160 or 2160x3840 in high or medium quality that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FallbackPolicy {
    /// The request fails.
    Never,
    /// If nothing can have been charged, a smaller image is made: medium quality, then 1536x1024 in medium quality.
    Unpaid,
    /// A smaller image is made after any failure except a refusal, even if the larger one may have been charged.
    Always,
}

/// A way of speaking to the gateway that the API document does not have. A group or key declares it; each change that it
/// makes to a request is stated in the answer and in the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Dialect {
    /// A size that is not available, or an aspect ratio such as `16:9`, becomes the nearest available size.
    Sizes,
    /// Fields and words of earlier image models: `quality` `standard` and `hd`, `style`, `input_fidelity`, `mask[]`, and a
    /// request without `model`.
    LegacyFields,
    /// `response_format` `url`: the answer has links to the images.
    Url,
    /// The key in the header `api-key`, and the paths `/openai/…` of Azure.
    Azure,
    /// The names of earlier image models stand for the default model.
    Models,
    /// The images of an edit may be GIF files: the first image of each is converted to PNG.
    Gif,
}

/// The treatment of a prompt that a moderation service did not check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ModerationErrorPolicy {
    /// The prompt passes.
    Open,
    /// The prompt is refused.
    Closed,
}

/// The failures after which a record that was committed still exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogFormat {
    /// Plain text for people.
    #[default]
    Text,
    /// One JSON object per line, for programs.
    Json,
}

// === impl CredentialKind ===

impl CredentialKind {
    /// Returns the word for the value in the configuration file.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::ApiKey => "api_key",
            Self::Oauth => "oauth",
            Self::Simulator => "simulator",
        }
    }
}

// === impl UpstreamProtocol ===

impl UpstreamProtocol {
    /// Returns the word for the value in the configuration file.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Images => "images",
            Self::Responses => "responses",
        }
    }
}

// === impl ImageUrlPolicy ===

impl ImageUrlPolicy {
    /// Returns the word for the value in the configuration file.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Fetch => "fetch",
        }
    }
}

// === impl GrantKind ===

impl GrantKind {
    /// Returns the word for the value in the configuration file.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::RefreshToken => "refresh_token",
            Self::ClientCredentials => "client_credentials",
        }
    }
}

// === impl ClientAuth ===

impl ClientAuth {
    /// Returns the word for the value in the configuration file.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Basic => "basic",
            Self::Body => "body",
        }
    }
}

// === impl BillingTier ===

impl BillingTier {
    /// Returns the word for the value in the configuration file.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Paid => "paid",
            Self::Free => "free",
        }
    }
}

// === impl DeliveryPolicy ===

impl DeliveryPolicy {
    /// Returns the word for the value in the configuration file.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::Fail => "fail",
            Self::Convert => "convert",
        }
    }
}

// === impl FilterFilePolicy ===

impl FilterFilePolicy {
    /// Returns the word for the value in the configuration file.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Pass => "pass",
        }
    }
}

// === impl BudgetMode ===

impl BudgetMode {
    /// Returns the word for the value in the configuration file.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Paced => "paced",
            Self::Strict => "strict",
        }
    }
}

// === impl FallbackPolicy ===

impl FallbackPolicy {
    /// Returns the word for the value in the configuration file.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Unpaid => "unpaid",
            Self::Always => "always",
        }
    }
}

// === impl Dialect ===

impl Dialect {
    /// Every dialect, in the order in which lists have them.
    pub(crate) const ALL: [Self; 6] =
        [Self::Sizes, Self::LegacyFields, Self::Url, Self::Azure, Self::Models, Self::Gif];

    /// Returns the word for the value in the configuration file.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Sizes => "sizes",
            Self::LegacyFields => "legacy-fields",
            Self::Url => "url",
            Self::Azure => "azure",
            Self::Models => "models",
            Self::Gif => "gif",
        }
    }

    /// Returns the dialect of a word.
    ///
    /// # Errors
    ///
    /// Returns an error with all words if there is no such dialect.
    pub(crate) fn from_word(word: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|dialect| dialect.as_str() == word).ok_or_else(|| {
            let words: Vec<_> = Self::ALL.into_iter().map(Self::as_str).collect();
            format!("expected one of {}", words.join(", "))
        })
    }
}

// === impl ModerationErrorPolicy ===

impl ModerationErrorPolicy {
    /// Returns the word for the value in the configuration file.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }
}

// === impl Durability ===

impl Durability {
    /// Returns the word for the value in the configuration file.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Power => "power",
            Self::Process => "process",
        }
    }
}

// === impl SecondFactorPolicy ===

impl SecondFactorPolicy {
    /// Returns the word for the value in the configuration file.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Admins => "admins",
            Self::Everyone => "everyone",
        }
    }
}

// === impl LogFormat ===

impl LogFormat {
    /// Returns the word for the value in the configuration file.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

impl FromStr for LogFormat {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let known = [Self::Text, Self::Json].into_iter().find(|format| format.as_str() == word);
        known.ok_or("`log_format` must be \"text\" or \"json\"")
    }
}
