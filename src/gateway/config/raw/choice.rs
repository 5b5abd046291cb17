//! The settings with a fixed set of values, and the words for them.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What kind of credentials an account has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CredentialKind {
    ApiKey,
    Oauth,
    Simulator,
}

/// Which API an upstream speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UpstreamProtocol {
    /// The image endpoints.
    Images,
    /// The Responses API with its image tool.
    Responses,
}

/// What an account exchanges for an access token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GrantKind {
    /// A refresh token.
    RefreshToken,
    /// The client's own id and secret.
    ClientCredentials,
}

/// Where a client proves to a token endpoint who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ClientAuth {
    /// In the header `Authorization`.
    Basic,
    /// Among the fields of the form.
    Body,
}

/// Whether an account is paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BillingTier {
    Paid,
    Free,
}

/// What happens when the upstream made another size or format than was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DeliveryPolicy {
    /// The answer goes out and says what was made.
    Report,
    /// The request fails.
    Fail,
}

/// What happens when an image of 3840x2160 or 2160x3840 in high or medium quality fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FallbackPolicy {
    /// The request fails.
    Never,
    /// The next smaller image is made if nothing can have been paid for: medium quality, then 1536x1024 in medium quality.
    Unpaid,
    /// The next smaller image is made after any failure but a refusal, even if the larger one may have been paid for.
    Always,
}

/// What happens to a prompt that a moderation service did not judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ModerationErrorPolicy {
    /// It passes.
    Open,
    /// It is refused.
    Closed,
}

/// The format of a line of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogFormat {
    /// Plain text for people.
    #[default]
    Text,
    /// One JSON object per line, for programs.
    Json,
}

/// The file format of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OutputFormatOption {
    Png,
    Jpeg,
    Webp,
}

/// What is behind the subject of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BackgroundOption {
    Auto,
    Opaque,
    Transparent,
}

// === impl CredentialKind ===

impl CredentialKind {
    /// The word for it in the file.
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
    /// The word for it in the file.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Images => "images",
            Self::Responses => "responses",
        }
    }
}

// === impl GrantKind ===

impl GrantKind {
    /// The word for it in the file.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::RefreshToken => "refresh_token",
            Self::ClientCredentials => "client_credentials",
        }
    }
}

// === impl ClientAuth ===

impl ClientAuth {
    /// The word for it in the file.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Basic => "basic",
            Self::Body => "body",
        }
    }
}

// === impl BillingTier ===

impl BillingTier {
    /// The word for it in the file.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Paid => "paid",
            Self::Free => "free",
        }
    }
}

// === impl DeliveryPolicy ===

impl DeliveryPolicy {
    /// The word for it in the file.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::Fail => "fail",
        }
    }
}

// === impl FallbackPolicy ===

impl FallbackPolicy {
    /// The word for it in the file.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Unpaid => "unpaid",
            Self::Always => "always",
        }
    }
}

// === impl ModerationErrorPolicy ===

impl ModerationErrorPolicy {
    /// The word for it in the file.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }
}

// === impl LogFormat ===

impl LogFormat {
    /// The spelling in the file.
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

// === impl OutputFormatOption ===

impl OutputFormatOption {
    /// The word for it in the file.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Png => "png",
            Self::Jpeg => "jpeg",
            Self::Webp => "webp",
        }
    }
}

// === impl BackgroundOption ===

impl BackgroundOption {
    /// The word for it in the file.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Opaque => "opaque",
            Self::Transparent => "transparent",
        }
    }
}
