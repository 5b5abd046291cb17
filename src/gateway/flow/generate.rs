//! A generation, from the body of the request to the body of the answer.

use chrono::Utc;

use super::{attempt, outcome};
use crate::error::{Code, Error};
use crate::gateway::Gateway;
use crate::gateway::accounts::Lease;
use crate::gateway::keys::Caller;
use crate::gateway::ledger::{self, Draft, OpenRecord, Outcome};
use crate::gateway::relay::{Closing, Ending, RelayBody, Summary};
use crate::gateway::rules::{self, Job};
use crate::image::Facts;

/// An answer that has begun.
pub(crate) struct Made {
    /// The body, still coming.
    pub(crate) body: RelayBody,
    /// The simulator drew it.
    pub(crate) simulated: bool,
}

/// `POST /v1/images/generations`.
///
/// # Errors
///
/// Before anything is spent: what breaks a rule. After that: what the money rules make of the failed attempts.
pub(crate) async fn create_image(
    gateway: &Gateway,
    caller: &Caller,
    request_id: &str,
    body: &[u8],
) -> Result<Made, Error> {
    let job = rules::generation(body, Utc::now())?;
    if job.stream() {
        return Err(Error::NotImplemented);
    }
    let mut record = open(gateway, caller, request_id, &job).await?;
    tracing::debug!(request_id, key = %caller.public_id(), size = %job.size(), n = job.count(), "a job begins");
    match attempt::run(gateway, &job, caller, &mut record).await {
        Ok(won) => {
            record.mark_first_byte();
            let lease = won.lease;
            let body =
                RelayBody::new(won.proven, Box::new(move |ending, summary| close(record, lease, ending, summary)));
            Ok(Made { body, simulated: won.simulated })
        }
        Err(error) => {
            settle(record, outcome::failed(&error)).await;
            Err(error)
        }
    }
}

/// The intent, durable before the first upstream byte.
async fn open(gateway: &Gateway, caller: &Caller, request_id: &str, job: &Job) -> Result<OpenRecord, Error> {
    let draft = Draft {
        request_id: request_id.into(),
        operation: "create_image",
        model: Some(job.model().to_owned()),
        stream: job.stream(),
        size: Some(job.size().to_string()),
        quality: Some(job.quality().unwrap_or("auto").to_owned()),
        output_format: Some(job.format().as_str().to_owned()),
        n: Some(job.count()),
        account: gateway.accounts().likely(job, caller),
        group: caller.group_name().to_owned(),
        user: caller.user().clone(),
        key: caller.key().clone(),
        end_user: job.end_user().map(str::to_owned),
    };
    gateway.ledger().open(draft).await.map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "an intent could not be recorded");
        Error::Unavailable
    })
}

/// The outcome, durable before the caller's last byte. The place is given back first: the upstream is done.
fn close(mut record: OpenRecord, lease: Lease, ending: Ending, summary: Summary) -> Closing {
    Box::pin(async move {
        drop(lease);
        summary.delivered.iter().for_each(|facts| record.add_delivered(delivered(facts.as_ref())));
        if let Some(counted) = summary.usage {
            record.set_usage(outcome::usage(counted));
        }
        let outcome = match ending {
            Ending::Complete => Outcome::succeeded(),
            Ending::Left => Outcome::cancelled(),
            Ending::Broken(broken) => {
                record.fail_attempt(ledger::Class::O);
                tracing::warn!(error = &broken as &dyn std::error::Error, "an answer broke off after it had begun");
                Outcome::interrupted(Some(Code::UpstreamError.as_str().to_owned()))
            }
        };
        settle(record, outcome).await;
    })
}

/// Closes a record. An image that was paid for reaches its caller even when the database does not take the line: the
/// intent is there, and the next start finds it.
async fn settle(record: OpenRecord, outcome: Outcome) {
    if let Err(error) = record.close(outcome).await {
        tracing::error!(error = &error as &dyn std::error::Error, "an outcome could not be recorded");
    }
}

fn delivered(facts: Option<&Facts>) -> ledger::Delivered {
    ledger::Delivered {
        size: facts.map(|facts| format!("{}x{}", facts.width, facts.height)),
        output_format: facts.map(|facts| facts.format.as_str().to_owned()),
    }
}
