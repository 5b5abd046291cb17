//! The settings of alerts as written.

use schemars::JsonSchema;
use serde::Deserialize;

use super::SecretSource;

/// The channels by which alerts are sent, for example if most of a budget is spent.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::gateway::config) struct RawAlerts {
    /// A service that alerts are posted to, in the form of Standard Webhooks. Default: none.
    pub(in crate::gateway::config) webhook: Option<RawWebhook>,
    /// A mail server, and the recipients of alerts. Default: none.
    pub(in crate::gateway::config) email: Option<RawEmail>,
}

/// A service that alerts are posted to.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::gateway::config) struct RawWebhook {
    /// The address that alerts are posted to, such as `https://hooks.example.com/imagate`.
    #[schemars(required)]
    pub(in crate::gateway::config) url: Option<String>,
    /// The secret that alerts are signed with: `whsec_` and 24 to 64 bytes in base64.
    #[schemars(required)]
    pub(in crate::gateway::config) secret: Option<SecretSource>,
    /// Allows a plain `http` `url` on another machine: alerts are then sent unencrypted.
    pub(in crate::gateway::config) allow_http: Option<bool>,
    /// Allows link-local addresses, at which clouds offer the credentials of a machine. Default: `false`.
    pub(in crate::gateway::config) allow_link_local: Option<bool>,
}

/// A mail server, and the recipients of alerts.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::gateway::config) struct RawEmail {
    /// The name of the mail server.
    #[schemars(required)]
    pub(in crate::gateway::config) host: Option<String>,
    /// The port. Default: 587, with `tls = "implicit"` 465, and with `tls = "none"` 25.
    #[schemars(range(min = 1, max = 65535))]
    pub(in crate::gateway::config) port: Option<u16>,
    /// The encryption of the connection. Default: `starttls`.
    pub(in crate::gateway::config) tls: Option<SmtpTls>,
    /// The user to sign in as. Default: none; the gateway does not sign in.
    pub(in crate::gateway::config) user: Option<String>,
    /// The password of `user`.
    pub(in crate::gateway::config) password: Option<SecretSource>,
    /// The sender, such as `imagate <imagate@example.com>`.
    #[schemars(required)]
    pub(in crate::gateway::config) from: Option<String>,
    /// The recipients.
    #[schemars(required)]
    pub(in crate::gateway::config) to: Option<Vec<String>>,
}

/// The encryption of a connection to a mail server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
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
    /// Returns the word for it in settings.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Starttls => "starttls",
            Self::Implicit => "implicit",
            Self::None => "none",
        }
    }

    /// The port that servers usually have for it.
    pub(in crate::gateway::config) const fn default_port(self) -> u16 {
        match self {
            Self::Starttls => 587,
            Self::Implicit => 465,
            Self::None => 25,
        }
    }
}
