//! The webhook: the body of a message, and its signature in the form of Standard Webhooks.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::alert_data;
use super::delivery::SendResult;
use crate::gateway::config::WebhookConfig;
use crate::gateway::store::{NewAlert, Timestamp};
use crate::gateway::upstream::WebhookClient;
use crate::wire::admin::types;

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
/// The prefix of a secret.
const SECRET_PREFIX: &str = "whsec_";
/// The status with which a receiver says that it wants no more messages.
const GONE: u16 = 410;

/// Posts an alert.
pub(super) async fn send(config: &WebhookConfig, alert: &NewAlert) -> SendResult {
    let Ok(client) = WebhookClient::new(config.allow_link_local) else {
        return SendResult::Retry("the client could not be prepared".to_owned());
    };
    let body = body(alert);
    let Some(headers) = signed_headers(config.secret.expose(), &alert.id, unix_seconds(), &body) else {
        return SendResult::Failed("the secret cannot be used".to_owned());
    };
    match client.post(&config.url, headers, body).await {
        Ok(200..=299) => SendResult::Delivered,
        Ok(GONE) => SendResult::Failed(format!("the receiver wants no more messages (status {GONE})")),
        Ok(status) => SendResult::Retry(format!("the receiver answered with status {status}")),
        Err(error) => SendResult::Retry(error.to_string()),
    }
}

/// The body of a message: the event, its time, and its facts.
fn body(alert: &NewAlert) -> String {
    let message = types::AlertMessage {
        type_: alert.event.clone(),
        timestamp: alert.created_at.into(),
        data: alert_data(&alert.details),
    };
    serde_json::to_string(&message).unwrap_or_default()
}

/// The time of this attempt. Receivers refuse messages that are much older.
fn unix_seconds() -> i64 {
    chrono::DateTime::<chrono::Utc>::from(Timestamp::now()).timestamp()
}

/// Returns the headers of a message; `None` if the secret has not the form of the standard.
fn signed_headers(secret: &str, id: &str, timestamp: i64, body: &str) -> Option<HeaderMap> {
    let encoded = secret.strip_prefix(SECRET_PREFIX)?;
    let key = STANDARD.decode(encoded).or_else(|_| STANDARD_NO_PAD.decode(encoded)).ok()?;
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    let signature = hmac::sign(&key, format!("{id}.{timestamp}.{body}").as_bytes());
    let signature = format!("v1,{}", STANDARD.encode(signature.as_ref()));
    Some(HeaderMap::from_iter([
        (ID, HeaderValue::try_from(id).ok()?),
        (TIMESTAMP, HeaderValue::from(timestamp)),
        (SIGNATURE, HeaderValue::try_from(signature).ok()?),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification of Standard Webhooks and of the libraries for it.
    #[test]
    fn a_signature_is_that_of_the_standard() {
        let headers = signed_headers(
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            r#"{"test": 2432232314}"#,
        );
        let headers = headers.unwrap();
        assert_eq!(headers["webhook-signature"], "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(headers["webhook-id"], "msg_p5jXN8AQM9LWM0D4loKWxJek");
        assert_eq!(headers["webhook-timestamp"], "1614265330");
    }

    #[test]
    fn a_secret_of_another_form_signs_nothing() {
        for secret in ["", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_?"] {
            assert!(signed_headers(secret, "alr_1", 1, "{}").is_none(), "{secret}");
        }
    }
}
