//! The settings of alerts as written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SecretSource;

/// The channels by which alerts are sent, for example if most of a budget is spent.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawAlerts {
    /// A service that alerts are posted to, in the form of Standard Webhooks. Default: none.
    pub(crate) webhook: Option<RawWebhook>,
    /// A mail server, and the recipients of alerts. Default: none.
    pub(crate) email: Option<RawEmail>,
}

/// A service that alerts are posted to.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawWebhook {
    /// The address that alerts are posted to, such as `https://hooks.example.com/imagate`.
    #[schemars(required)]
    pub(crate) url: Option<String>,
    /// The secret that alerts are signed with: `whsec_` and 24 to 64 bytes in base64.
    #[schemars(required)]
    pub(crate) secret: Option<SecretSource>,
    /// Allows a plain `http` `url` on another machine: alerts are then sent unencrypted.
    pub(crate) allow_http: Option<bool>,
    /// Allows link-local addresses, at which clouds offer the credentials of a machine. Default: `false`.
    pub(crate) allow_link_local: Option<bool>,
}

/// A mail server, and the recipients of alerts.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawEmail {
    /// The name of the mail server.
    #[schemars(required)]
    pub(crate) host: Option<String>,
    /// The port. Default: 587, with `tls = "implicit"` 465, and with `tls = "none"` 25.
    #[schemars(range(min = 1, max = 65535))]
    pub(crate) port: Option<u16>,
    /// The encryption of the connection. Default: `starttls`.
    pub(crate) tls: Option<SmtpTls>,
    /// The user to sign in as. Default: none; the gateway does not sign in.
    pub(crate) user: Option<String>,
    /// The password of `user`.
    pub(crate) password: Option<SecretSource>,
    /// The sender, such as `imagate <imagate@example.com>`.
    #[schemars(required)]
    pub(crate) from: Option<String>,
    /// The recipients.
    #[schemars(required)]
    pub(crate) to: Option<Vec<String>>,
}

/// The encryption of a connection to a mail server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SmtpTls {
    /// The connection is encrypted with STARTTLS before anything else is sent. A server without STARTTLS is refused.
    #[default]
    Starttls,
    /// The connection is encrypted from its beginning.
    Implicit,
    /// Nothing is encrypted. A password is refused, unless the server is on this machine.
    None,
}

// === impl SmtpTls ===

impl SmtpTls {
    /// The port that servers usually have for it.
    pub(crate) const fn default_port(self) -> u16 {
        match self {
            Self::Starttls => 587,
            Self::Implicit => 465,
            Self::None => 25,
        }
    }
}
