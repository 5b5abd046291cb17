//! The test of an account: a call that lists models with its credentials, makes no image and costs nothing.

use tokio::time::Instant;

use super::error_conversion::from_store_error;
use super::{Console, require_admin};
use crate::error::Error;
use crate::gateway::accounts::Accounts;
use crate::gateway::manage::{self, ManagedAccount, OpenAccounts};
use crate::gateway::people::Actor;
use crate::gateway::upstream::{ServiceCallError, UpstreamClient};
use crate::wire::admin::types::{self, AccountTestResult};

/// The result of a test before it is put into words.
struct TestOutcome {
    result: AccountTestResult,
    status: Option<u16>,
    latency_ms: Option<u64>,
}

// === impl Console ===

impl Console {
    /// Asks the upstream of an account for its list of models. For admins.
    ///
    /// # Errors
    ///
    /// 404 if there is no such account. It is no error if the upstream refuses the account.
    pub(crate) async fn test_account(&self, actor: &Actor, handle: &str) -> Result<types::AccountTest, Error> {
        require_admin(actor)?;
        let managed = self.find_account(handle).await?;
        // A command may have been started without the secrets that the settings refer to.
        let is_usable = managed.account.is_ok() && self.config.absent_secrets_of(&managed.name).is_empty();
        let outcome = if is_usable {
            self.ask_upstream(&managed).await?
        } else {
            TestOutcome::without_call(AccountTestResult::Unusable)
        };
        tracing::info!(account = managed.name, status = outcome.status, "an account was tested through the console");
        Ok(types::AccountTest {
            name: managed.name,
            result: outcome.result,
            status: outcome.status.map(i64::from),
            latency_ms: outcome.latency_ms,
            message: message(outcome.result).to_owned(),
        })
    }

    async fn ask_upstream(&self, managed: &ManagedAccount) -> Result<TestOutcome, Error> {
        if self.server.is_none() {
            manage::ensure_row(&*self.store, managed).await.map_err(from_store_error)?;
        }
        let OpenAccounts { accounts, upstream } = self.accounts_in_use().await?;
        let outcome = probe(&accounts, &upstream, &managed.name).await;
        if self.server.is_none() {
            // A token may have been fetched for the call.
            accounts.finish().await;
        }
        Ok(outcome)
    }
}

/// Asks the upstream of an account.
async fn probe(accounts: &Accounts, upstream: &UpstreamClient, name: &str) -> TestOutcome {
    let Some(check) = accounts.account_for_check(name).await else {
        return TestOutcome::without_call(AccountTestResult::Unusable);
    };
    let Ok(authorization) = check.authorization else {
        return TestOutcome::without_call(AccountTestResult::NoToken);
    };
    let Some(address) = check.account.endpoint().address() else {
        return TestOutcome::without_call(AccountTestResult::Simulator);
    };
    let start = Instant::now();
    match upstream.probe(address, authorization.as_ref()).await {
        Ok(status) => TestOutcome {
            result: meaning(status),
            status: Some(status),
            latency_ms: u64::try_from(start.elapsed().as_millis()).ok(),
        },
        Err(ServiceCallError::Timeout) => TestOutcome::without_call(AccountTestResult::Timeout),
        Err(_) => TestOutcome::without_call(AccountTestResult::Unreachable),
    }
}

// === impl TestOutcome ===

impl TestOutcome {
    const fn without_call(result: AccountTestResult) -> Self {
        Self { result, status: None, latency_ms: None }
    }
}

/// The result for the status of an answer.
const fn meaning(status: u16) -> AccountTestResult {
    match status {
        200..=299 => AccountTestResult::Accepted,
        401 | 403 => AccountTestResult::Refused,
        404 => AccountTestResult::NoList,
        429 => AccountTestResult::Throttled,
        300..=399 => AccountTestResult::Redirected,
        500.. => AccountTestResult::UpstreamFailed,
        _ => AccountTestResult::Rejected,
    }
}

const fn message(result: AccountTestResult) -> &'static str {
    match result {
        AccountTestResult::Accepted => "The upstream accepts the credentials.",
        AccountTestResult::Simulator => "The account is a simulator, which has no upstream.",
        AccountTestResult::Refused => {
            "The upstream does not accept the credentials, or does not allow them to list models."
        }
        AccountTestResult::NoList => "The upstream has no list of models at this base_url.",
        AccountTestResult::Throttled => "The upstream has received too many requests from this account.",
        AccountTestResult::Redirected => "The upstream redirects the request. Redirects are not followed.",
        AccountTestResult::UpstreamFailed => "The upstream has an internal error.",
        AccountTestResult::Rejected => "The upstream rejects the request.",
        AccountTestResult::NoToken => "The token endpoint gave no token.",
        AccountTestResult::Unreachable => "The upstream could not be reached.",
        AccountTestResult::Timeout => "The upstream did not answer in time.",
        AccountTestResult::Unusable => "The settings or the stored credentials of the account cannot be used.",
    }
}
