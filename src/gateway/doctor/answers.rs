//! The answers of the accounts' upstreams: an account whose answers the gateway cannot use will never make an image.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{CheckResult, InstallationContents, message_of};
use crate::gateway::store::{JobState, RecordFilter, Store, StoreError, Timestamp};
use crate::wire::admin::server::ListRecordsQuery;
use crate::wire::admin::types;

const CHECK: &str = "answers";
/// The period in which answers are looked at (our choice).
const PERIOD: Duration = Duration::from_hours(24 * 7);
/// The most records that are read for each reason (our choice).
const RECORDS_MAX: u32 = 100;

/// The reasons that tell of the nature of an upstream, what it does, and what can be done.
const REASONS: [(types::RecordReason, &str, &str); 3] = [
    (
        types::RecordReason::AsyncUpstream,
        "answers with a task in place of an image",
        "the gateway cannot receive such images, and each may be charged: `imagate account disable NAME`, or an address of \
         the upstream that answers with images",
    ),
    (
        types::RecordReason::ImageByAddress,
        "answers with the address of an image in place of the image",
        "`image_urls = \"fetch\"` in the settings of the account lets the gateway fetch images; if it is set, the log says \
         why an address could not be read",
    ),
    (
        types::RecordReason::UnknownCoding,
        "answers with a content coding that the gateway cannot decode",
        "the gateway asks for none: the server before the upstream must leave answers as they are",
    ),
];

pub(super) async fn check(installation: &InstallationContents<'_>) -> Vec<CheckResult> {
    let Some(store) = installation.store else { return Vec::new() };
    match find_unusable(store).await {
        Ok(results) => results,
        Err(error) => vec![CheckResult::problem(CHECK, message_of(&error), None)],
    }
}

async fn find_unusable(store: &dyn Store) -> Result<Vec<CheckResult>, StoreError> {
    let mut results = Vec::new();
    for (reason, meaning, advice) in REASONS {
        let since = Some((Timestamp::now() - PERIOD).into());
        let query = ListRecordsQuery { error_reason: Some(reason), since, ..ListRecordsQuery::default() };
        let filter = RecordFilter { query, limit: Some(RECORDS_MAX), owner: None };
        for (account, at) in newest_by_account(&store.list_records(&filter).await?) {
            if !has_succeeded_since(store, account, at).await? {
                let message = format!("the upstream of {account} {meaning}, the last time at {at}");
                results.push(CheckResult::warning(CHECK, message, Some(&advice.replace("NAME", account))));
            }
        }
    }
    Ok(results)
}

/// Returns the account of each last call, with the time of its newest record.
fn newest_by_account(records: &[types::Record]) -> BTreeMap<&str, Timestamp> {
    let mut newest = BTreeMap::new();
    for record in records {
        let Some(last) = record.attempts.last() else { continue };
        let created_at = Timestamp::from(record.created_at);
        let at = newest.entry(last.account.as_deref().unwrap_or_default()).or_insert(created_at);
        *at = created_at.max(*at);
    }
    newest
}

/// True if the account has made an image after this time.
async fn has_succeeded_since(store: &dyn Store, account: &str, at: Timestamp) -> Result<bool, StoreError> {
    let query = ListRecordsQuery {
        account: Some(account.to_owned()),
        state: Some(JobState::Succeeded),
        since: Some(at.into()),
        ..ListRecordsQuery::default()
    };
    let filter = RecordFilter { query, limit: Some(1), owner: None };
    Ok(!store.list_records(&filter).await?.is_empty())
}
