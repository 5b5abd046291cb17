//! The e-mail: the text of a message, and its way to the mail server.

use std::fmt::Write as _;
use std::time::Duration;

use chrono::SecondsFormat;
use lettre::message::{Mailboxes, header};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Tls, TlsParameters};
use lettre::{AsyncSmtpTransport, AsyncTransport as _, Message, Tokio1Executor};

use super::alert_data;
use super::delivery::{SendResult, TEST};
use super::detection::{EXHAUSTED, SOFT_LIMIT};
use crate::gateway::config::{EmailConfig, SmtpTls};
use crate::gateway::names;
use crate::gateway::store::NewAlert;
use crate::wire::admin::types;

/// The longest wait for one answer of the mail server (our choice).
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest time for a message (our choice).
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(45);
/// The most characters of a name in a subject (our choice).
const NAME_MAX: usize = 80;

/// Sends an alert.
pub(super) async fn send(config: &EmailConfig, alert: &NewAlert) -> SendResult {
    let message = match message(config, alert) {
        Ok(message) => message,
        Err(error) => return SendResult::Failed(format!("the message could not be built: {error}")),
    };
    let transport = match transport(config) {
        Ok(transport) => transport,
        Err(error) => return failure(&error),
    };
    match tokio::time::timeout(MESSAGE_TIMEOUT, transport.send(message)).await {
        Ok(Ok(_)) => SendResult::Delivered,
        Ok(Err(error)) => failure(&error),
        Err(_) => SendResult::Retry("the mail server did not answer in time".to_owned()),
    }
}

/// Notes an error without the texts of the server, which can contain anything.
fn failure(error: &lettre::transport::smtp::Error) -> SendResult {
    tracing::warn!(error = error as &dyn std::error::Error, "an e-mail could not be sent");
    SendResult::Retry(match error.status() {
        Some(code) => format!("the mail server answered with code {code}"),
        None if error.is_timeout() => "the mail server did not answer in time".to_owned(),
        None if error.is_tls() => "no trusted TLS connection to the mail server could be made".to_owned(),
        None => "the mail server could not be reached, or refused to go on".to_owned(),
    })
}

fn transport(config: &EmailConfig) -> Result<AsyncSmtpTransport<Tokio1Executor>, lettre::transport::smtp::Error> {
    // The name of the server is checked against its certificate, and no switch disables this.
    let tls = match config.tls {
        SmtpTls::Starttls => Tls::Required(TlsParameters::new(config.host.clone())?),
        SmtpTls::Implicit => Tls::Wrapper(TlsParameters::new(config.host.clone())?),
        SmtpTls::None => Tls::None,
    };
    let builder = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(&config.host)
        .port(config.port)
        .tls(tls)
        .timeout(Some(ANSWER_TIMEOUT));
    let credentials =
        config.login.as_ref().map(|(user, password)| Credentials::new(user.clone(), password.expose().to_owned()));
    Ok(match credentials {
        Some(credentials) => builder.credentials(credentials).build(),
        None => builder.build(),
    })
}

/// Builds the message. Its id is that of the alert, so that a repeated delivery can be recognized.
fn message(config: &EmailConfig, alert: &NewAlert) -> Result<Message, lettre::error::Error> {
    let (subject, text) = text(&alert.event, alert_data(&alert.details));
    let recipients: Mailboxes = config.to.iter().cloned().collect();
    Message::builder()
        .from(config.from.clone())
        .mailbox(header::To::from(recipients))
        .subject(subject)
        .date(alert_time(alert))
        .message_id(Some(format!("<{}@{}>", alert.id, config.from.email.domain())))
        .header(header::ContentType::TEXT_PLAIN)
        .body(text)
}

fn alert_time(alert: &NewAlert) -> std::time::SystemTime {
    chrono::DateTime::<chrono::Utc>::from(alert.created_at).into()
}

/// The subject and the text of an event. A name is shown with its hidden characters escaped, so that it stays in one line.
fn text(event: &str, data: types::AlertData) -> (String, String) {
    if event == TEST {
        let text = "This is a test of the alerts of imagate. Nothing has happened.\r\n";
        return ("imagate: test of alerts".to_owned(), text.to_owned());
    }
    let (kind, id, name) = data.subject.map_or_else(Default::default, |about| (about.kind, about.id, about.name));
    let name: String = name.unwrap_or_default().chars().take(NAME_MAX).collect();
    let name = names::escape_hidden(&name).into_owned();
    let amount = |dollars: Option<f64>| dollars.unwrap_or_default();
    let (budget, spent) = (amount(data.budget_usd), amount(data.spent_usd));
    let period_ends = data.period_ends.map(|end| end.to_rfc3339_opts(SecondsFormat::Secs, true)).unwrap_or_default();
    let event_text = match event {
        SOFT_LIMIT => "has reached the soft mark of its budget",
        EXHAUSTED => "has used up its budget; its requests are refused",
        other => other,
    };
    let mut text = String::new();
    let _ = write!(
        text,
        "The {kind} \"{name}\" {event_text}.\r\n\r\nSpent:       ${spent:.2}\r\nBudget:      ${budget:.2}\r\n\
         Soft mark:   ${:.2}\r\nPeriod ends: {period_ends}\r\nId:          {}\r\n",
        amount(data.alert_usd),
        names::escape_hidden(&id),
    );
    (format!("imagate: {kind} {name} {event_text}"), text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::gateway::alerts::detection::new_alert;

    fn config() -> EmailConfig {
        EmailConfig {
            host: "127.0.0.1".to_owned(),
            port: 25,
            tls: SmtpTls::None,
            login: None,
            from: "imagate <imagate@example.com>".parse().unwrap(),
            to: vec!["ops@example.com".parse().unwrap(), "Two <two@example.com>".parse().unwrap()],
        }
    }

    fn formatted(name: &str) -> String {
        let details = json!({
            "subject": {"kind": "key", "id": "key_1", "name": name}, "budget_usd": 10, "spent_usd": 8.5,
            "alert_usd": 8, "period_ends": "2026-12-01T00:00:00Z",
        });
        let alert = new_alert(SOFT_LIMIT, "identity".to_owned(), details.to_string()).unwrap();
        String::from_utf8(message(&config(), &alert).unwrap().formatted()).unwrap()
    }

    #[test]
    fn a_message_has_the_facts_and_all_recipients() {
        let text = formatted("laptop");
        for line in [
            "From: imagate <imagate@example.com>\r\n",
            "To: ops@example.com, Two <two@example.com>\r\n",
            "Subject: imagate: key laptop has reached the soft mark of its budget\r\n",
            "Spent:       $8.50\r\n",
            "Budget:      $10.00\r\n",
            "Period ends: 2026-12-01T00:00:00Z\r\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }

    #[test]
    fn a_name_cannot_add_a_header_or_a_line() {
        for name in [
            "a\r\nBcc: other@example.com",
            "a\nBcc: other@example.com",
            "a\r\n\r\nBody",
            "a\rBcc: other@example.com",
            "a\u{2028}Bcc: other@example.com",
            "=?utf-8?q?a=0D=0ABcc:_other@example.com?=",
            "\u{202e}tfel",
            "键 \u{1f511}",
        ] {
            let text = formatted(name);
            let (head, _) = text.split_once("\r\n\r\n").unwrap();
            let names: Vec<_> = head
                .split("\r\n")
                .filter(|line| !line.starts_with(' '))
                .filter_map(|line| line.split(':').next())
                .collect();
            let expected = [
                "From",
                "To",
                "Subject",
                "Date",
                "Message-ID",
                "Content-Type",
                "Content-Transfer-Encoding",
                "MIME-Version",
            ];
            assert!(names.iter().all(|name| expected.contains(name)), "{name}: {head}");
            assert!(!head.replace("\r\n", "").contains(['\r', '\n']), "{name}: {head:?}");
            assert_eq!(names.iter().filter(|name| **name == "Subject").count(), 1, "{head}");
        }
    }
}
