//! Resolves the channels of alerts.

use lettre::message::Mailbox;

use super::ConfigResolver;
use super::secrets::is_base64;
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
        let raw = self.raw.alerts.clone().unwrap_or_default();
        AlertConfig {
            webhook: raw.webhook.and_then(|raw| self.webhook(&raw)),
            email: raw.email.and_then(|raw| self.email(&raw)),
        }
    }

    /// Resolves the webhook. The reader of the file has already reported required settings that are absent.
    fn webhook(&mut self, raw: &RawWebhook) -> Option<WebhookConfig> {
        const TABLE: &str = "alerts.webhook";
        let url = raw.url.as_ref().map(|text| address::token_url(text, raw.allow_http.unwrap_or_default()));
        let url = url.and_then(|url| self.accept("alerts.webhook.url", url));
        let secret = raw.secret.as_ref().and_then(|source| self.read_secret("alerts.webhook.secret", source));
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
        Some(WebhookConfig {
            url: self.text(TABLE, "url", url?),
            secret: self.secret(TABLE, "secret", secret)?,
            allow_link_local: self.value_or_default(TABLE, "allow_link_local", raw.allow_link_local),
        })
    }

    fn email(&mut self, raw: &RawEmail) -> Option<EmailConfig> {
        const TABLE: &str = "alerts.email";
        let host = raw.host.as_deref().filter(|host| !host.is_empty() && host.bytes().all(is_host_byte));
        if raw.host.is_some() && host.is_none() {
            self.report("alerts.email.host", "must be the name or the address of a mail server, without a port");
        }
        let tls = raw.tls.unwrap_or_default();
        let password = self.password(raw, tls);
        let from = raw.from.as_ref().and_then(|text| self.accept("alerts.email.from", parse_mailbox(text)));
        let to = raw.to.as_deref().unwrap_or_default();
        if raw.to.is_some() && !(1..=RECIPIENTS_MAX).contains(&to.len()) {
            self.report("alerts.email.to", &format!("must name from 1 to {RECIPIENTS_MAX} recipients"));
        }
        let to = self.each("alerts.email.to", raw.to.as_deref(), parse_mailbox);
        Some(EmailConfig {
            host: self.text(TABLE, "host", host?.to_owned()),
            port: self.value(TABLE, "port", raw.port.unwrap_or(tls.default_port())),
            tls: self.value(TABLE, "tls", tls),
            login: raw.user.clone().zip(password).map(|(user, password)| {
                let user = self.text(TABLE, "user", user);
                self.secret(TABLE, "password", Some(password.clone()));
                (user, password)
            }),
            from: self.text(TABLE, "from", from?),
            to: self.texts(TABLE, "to", to),
        })
    }

    /// Reads the password, and checks that it belongs to a user and is not sent unencrypted.
    fn password(&mut self, raw: &RawEmail, tls: SmtpTls) -> Option<ConfigSecret> {
        let password = raw.password.as_ref().and_then(|source| self.read_secret("alerts.email.password", source));
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
        password
    }
}

fn parse_mailbox(text: &str) -> Result<Mailbox, &'static str> {
    text.parse().map_err(|_| "must be an address such as `name@example.com`")
}

/// True for a secret in the form of Standard Webhooks.
fn is_webhook_secret(secret: &ConfigSecret) -> bool {
    secret.expose().strip_prefix(SECRET_PREFIX).is_some_and(|text| is_base64(text, SECRET_BYTES))
}

/// True for a byte of a host name or of an address.
const fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':')
}
