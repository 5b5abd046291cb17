//! Resolves the channels of alerts.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use lettre::message::Mailbox;

use super::ConfigResolver;
use crate::gateway::config::raw::{RawEmail, RawWebhook, SmtpTls};
use crate::gateway::config::{AlertConfig, ConfigSecret, EmailConfig, WebhookConfig, address};

/// The prefix of a secret of Standard Webhooks.
const SECRET_PREFIX: &str = "whsec_";
/// The number of bytes of a secret, as Standard Webhooks requires it.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// The most recipients (our choice).
const RECIPIENTS_MAX: usize = 20;

impl ConfigResolver<'_> {
    pub(super) fn alerts(&mut self) -> AlertConfig {
        let Some(raw) = &self.layers.file.raw.alerts else { return AlertConfig::default() };
        AlertConfig {
            webhook: raw.webhook.as_ref().and_then(|raw| self.webhook(raw)),
            email: raw.email.as_ref().and_then(|raw| self.email(raw)),
        }
    }

    /// Resolves the webhook. The reader of the file has already reported required settings that are absent.
    fn webhook(&mut self, raw: &RawWebhook) -> Option<WebhookConfig> {
        let url = raw.url.as_ref().and_then(|text| {
            let uri = address::token_url(text, raw.allow_http.unwrap_or_default());
            uri.map_err(|fault| self.report("alerts.webhook.url", fault)).ok()
        });
        let secret = raw.secret.as_ref().and_then(|source| self.resolve_secret("alerts.webhook.secret", source));
        if let Some(secret) = secret.as_ref().filter(|secret| !secret.expose().is_empty() && !is_webhook_secret(secret))
        {
            let fault = format!(
                "must be `{SECRET_PREFIX}` and {} to {} bytes in base64 ({})",
                SECRET_BYTES.start(),
                SECRET_BYTES.end(),
                secret.source()
            );
            self.report("alerts.webhook.secret", &fault);
        }
        let allow_link_local = raw.allow_link_local.unwrap_or_default();
        Some(WebhookConfig { url: url?, secret: secret?, allow_link_local })
    }

    fn email(&mut self, raw: &RawEmail) -> Option<EmailConfig> {
        let host = raw.host.as_deref().filter(|host| !host.is_empty() && host.bytes().all(is_host_byte));
        if raw.host.is_some() && host.is_none() {
            self.report("alerts.email.host", "must be the name or the address of a mail server, without a port");
        }
        let tls = raw.tls.unwrap_or_default();
        let login = self.login(raw, tls);
        let from = raw.from.as_ref().and_then(|text| self.mailbox("alerts.email.from", text));
        let to = raw.to.as_deref().unwrap_or_default();
        if raw.to.is_some() && !(1..=RECIPIENTS_MAX).contains(&to.len()) {
            self.report("alerts.email.to", &format!("must name from 1 to {RECIPIENTS_MAX} recipients"));
        }
        let to: Vec<_> = to
            .iter()
            .enumerate()
            .map(|(index, text)| self.mailbox(&format!("alerts.email.to[{index}]"), text))
            .collect();
        Some(EmailConfig {
            host: host?.to_owned(),
            port: raw.port.unwrap_or(tls.default_port()),
            tls,
            login,
            from: from?,
            to: to.into_iter().collect::<Option<Vec<_>>>()?,
        })
    }

    fn login(&mut self, raw: &RawEmail, tls: SmtpTls) -> Option<(String, ConfigSecret)> {
        let password = raw.password.as_ref().and_then(|source| self.resolve_secret("alerts.email.password", source));
        match (&raw.user, &raw.password) {
            (None, Some(_)) => self.report("alerts.email.password", "has no effect without `user`"),
            (Some(_), None) => self.report("alerts.email.user", "needs a `password`"),
            _ => {}
        }
        let is_loopback = raw.host.as_deref().is_some_and(address::is_loopback);
        if raw.password.is_some() && tls == SmtpTls::None && !is_loopback {
            self.report(
                "alerts.email.tls",
                "must not be \"none\" with a password, because it would be sent unencrypted",
            );
        }
        raw.user.clone().zip(password)
    }

    fn mailbox(&mut self, setting: &str, text: &str) -> Option<Mailbox> {
        let mailbox = text.parse::<Mailbox>();
        mailbox.map_err(|_| self.report(setting, "must be an address such as `name@example.com`")).ok()
    }
}

/// True for a secret in the form of Standard Webhooks.
fn is_webhook_secret(secret: &ConfigSecret) -> bool {
    let Some(text) = secret.expose().strip_prefix(SECRET_PREFIX) else { return false };
    let is_key = |bytes: Vec<u8>| SECRET_BYTES.contains(&bytes.len());
    [&STANDARD, &STANDARD_NO_PAD].iter().any(|engine| engine.decode(text).is_ok_and(is_key))
}

/// True for a byte of a host name or of an address.
const fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':')
}
