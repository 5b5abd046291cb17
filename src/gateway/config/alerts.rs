//! The usable settings of alerts.

use http::Uri;
use lettre::message::Mailbox;

use super::raw::SmtpTls;
use super::secret::ConfigSecret;

/// The channels by which alerts are sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AlertConfig {
    /// The service that alerts are posted to.
    pub(crate) webhook: Option<WebhookConfig>,
    /// The mail server and the recipients.
    pub(crate) email: Option<EmailConfig>,
}

/// A service that alerts are posted to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WebhookConfig {
    /// Its address.
    pub(crate) url: Uri,
    /// The secret for signatures, in the form `whsec_…`.
    pub(crate) secret: ConfigSecret,
    /// True if link-local addresses are allowed.
    pub(crate) allow_link_local: bool,
}

/// A mail server, and the recipients of alerts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EmailConfig {
    /// The name of the server.
    pub(crate) host: String,
    /// Its port.
    pub(crate) port: u16,
    /// The encryption of the connection.
    pub(crate) tls: SmtpTls,
    /// The user and the password.
    pub(crate) login: Option<(String, ConfigSecret)>,
    /// The sender.
    pub(crate) from: Mailbox,
    /// The recipients: at least one.
    pub(crate) to: Vec<Mailbox>,
}
