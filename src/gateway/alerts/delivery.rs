//! Delivers alerts by each channel, again and again until it succeeds or is given up.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::detection::new_alert;
use super::{AlertState, email, webhook};
use crate::gateway::config::AlertConfig;
use crate::gateway::store::{DeliveryOutcome, DueDelivery, StoreError, Timestamp};
use crate::wire::admin::types;

const WEBHOOK: &str = "webhook";
const EMAIL: &str = "email";
/// The names of the channels.
pub(super) const CHANNELS: [&str; 2] = [WEBHOOK, EMAIL];
/// The event of a test.
pub(super) const TEST: &str = "alert.test";

/// The interval in which the store is asked for deliveries that are due (our choice).
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// The time for which a delivery is kept from other nodes (our choice): longer than an attempt can take. If the process
/// is killed meanwhile, the delivery is repeated after that time.
const CLAIM: Duration = Duration::from_secs(120);
/// The longest wait for each channel of a test (our choice): a client of the admin API waits for 30 seconds.
const TEST_TIMEOUT: Duration = Duration::from_secs(13);
/// The waits after each failed attempt, in seconds (our choice): 12 attempts in about 29 hours.
const WAITS: [u64; 11] = [2, 10, 60, 300, 900, 1_800, 3_600, 7_200, 14_400, 28_800, 43_200];

/// The result of one attempt.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SendResult {
    Delivered,
    /// It may succeed later.
    Retry(String),
    /// It is given up.
    Failed(String),
}

/// Returns the channels that the settings configure.
pub(super) fn configured(config: &AlertConfig) -> Vec<&'static str> {
    let channels = [(WEBHOOK, config.webhook.is_some()), (EMAIL, config.email.is_some())];
    channels.into_iter().filter_map(|(channel, is_set)| is_set.then_some(channel)).collect()
}

/// Delivers what is due by one channel, for ever.
pub(super) async fn deliver_all(state: Arc<AlertState>, channel: &'static str) {
    loop {
        if let Err(error) = deliver_due(&state, channel).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, channel, "the deliveries of alerts could not be read or written");
        }
        // An alert that is raised just before the wait begins is found by the next poll.
        let _ = timeout(POLL_INTERVAL, state.raised.notified()).await;
    }
}

async fn deliver_due(state: &AlertState, channel: &'static str) -> Result<(), StoreError> {
    loop {
        // A node without the channel, for example during a change of the settings, leaves its deliveries to the others.
        if !configured(&state.settings().channels).contains(&channel) {
            return Ok(());
        }
        let now = Timestamp::now();
        let Some(delivery) = state.store.claim_delivery(channel, now, now + CLAIM).await? else { return Ok(()) };
        let result = send(&state.settings().channels, &delivery).await;
        let outcome = outcome(result, delivery.attempt, Timestamp::now());
        let (id, attempt) = (&delivery.alert.id, delivery.attempt);
        match &outcome {
            DeliveryOutcome::Delivered(_) => tracing::info!(id, channel, attempt, "an alert was delivered"),
            DeliveryOutcome::Retry(at, reason) => {
                tracing::warn!(id, channel, attempt, reason, next = %at, "an alert was not delivered yet");
            }
            DeliveryOutcome::Failed(_, reason) => {
                tracing::error!(id, channel, attempt, reason, "an alert could not be delivered");
            }
        }
        state.store.finish_delivery(&delivery, &outcome).await?;
    }
}

async fn send(config: &AlertConfig, delivery: &DueDelivery) -> SendResult {
    match (delivery.channel.as_str(), &config.webhook, &config.email) {
        (WEBHOOK, Some(config), _) => webhook::send(config, &delivery.alert).await,
        (EMAIL, _, Some(config)) => email::send(config, &delivery.alert).await,
        _ => SendResult::Failed("the channel is no longer configured".to_owned()),
    }
}

fn outcome(result: SendResult, attempt: u32, now: Timestamp) -> DeliveryOutcome {
    match result {
        SendResult::Delivered => DeliveryOutcome::Delivered(now),
        SendResult::Failed(reason) => DeliveryOutcome::Failed(now, reason),
        SendResult::Retry(reason) => {
            let failures_before = usize::try_from(attempt.saturating_sub(1)).unwrap_or(usize::MAX);
            let wait = WAITS.get(failures_before);
            match wait {
                Some(seconds) => DeliveryOutcome::Retry(now + Duration::from_secs(*seconds), reason),
                None => DeliveryOutcome::Failed(now, reason),
            }
        }
    }
}

/// Sends a test by each configured channel.
///
/// # Errors
///
/// Returns an error if the system has no random bytes.
pub(crate) async fn send_test(config: &AlertConfig) -> Result<Vec<types::AlertTest>, StoreError> {
    let alert = new_alert(TEST, String::new(), "{}".to_owned())?;
    let mut results = Vec::new();
    for channel in configured(config) {
        let delivery = DueDelivery { alert: alert.clone(), channel: channel.to_owned(), attempt: 1 };
        let error = match timeout(TEST_TIMEOUT, send(config, &delivery)).await {
            Ok(SendResult::Delivered) => None,
            Ok(SendResult::Retry(reason) | SendResult::Failed(reason)) => Some(reason),
            Err(_) => Some("the service did not answer in time".to_owned()),
        };
        results.push(types::AlertTest { channel: channel.to_owned(), delivered: error.is_none(), error });
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivery_is_repeated_for_about_a_day_and_then_given_up() {
        let now = Timestamp::now();
        let retry = |attempt| outcome(SendResult::Retry("status 500".to_owned()), attempt, now);
        assert_eq!(retry(1), DeliveryOutcome::Retry(now + Duration::from_secs(2), "status 500".to_owned()));
        assert_eq!(retry(11), DeliveryOutcome::Retry(now + Duration::from_secs(43_200), "status 500".to_owned()));
        assert_eq!(retry(12), DeliveryOutcome::Failed(now, "status 500".to_owned()));
        let all: u64 = WAITS.iter().sum();
        assert!((86_400..2 * 86_400).contains(&all), "{all}");
    }
}
