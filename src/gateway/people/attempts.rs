//! Counts password attempts, on this node and on all nodes that share a database.
//!
//! A node that has refused an attempt by its own counts does not ask the database, so many attempts from one address
//! cost it little.

use std::net::IpAddr;
use std::time::Duration;

use super::rate_limit::{CodeKind, RateLimitPermit};
use super::{IdentityError, IdentityService};
use crate::gateway::store::UserId;

impl IdentityService {
    /// Counts an attempt with a sign-in name from an address.
    ///
    /// # Errors
    ///
    /// [`IdentityError::TooManyAttempts`] if a limit is reached; a refused attempt is not counted.
    pub(super) async fn count_attempt(&self, account: &str, address: IpAddr) -> Result<RateLimitPermit, IdentityError> {
        let permit = self.limits.count_attempt(account, address, self.clock.instant()).map_err(too_many_attempts)?;
        self.count_on_all_nodes(permit).await
    }

    /// Counts the same attempt for the sign-in name from all addresses. If this is refused, the attempt stays in the
    /// buckets of `permit`.
    ///
    /// # Errors
    ///
    /// The errors of [`IdentityService::count_attempt`].
    pub(super) async fn count_attempt_for_account(
        &self,
        permit: RateLimitPermit,
        account: &str,
    ) -> Result<RateLimitPermit, IdentityError> {
        let for_account = self.limits.count_for_account(account, self.clock.instant()).map_err(too_many_attempts)?;
        Ok(permit.join(self.count_on_all_nodes(for_account).await?))
    }

    /// Counts an attempt with a code of the second factor, which only somebody with the right password can make.
    ///
    /// # Errors
    ///
    /// The errors of [`IdentityService::count_attempt`].
    pub(super) async fn count_code_attempt(
        &self,
        user: &UserId,
        address: IpAddr,
        kind: CodeKind,
    ) -> Result<RateLimitPermit, IdentityError> {
        let source = (address, self.has_signed_in_from(user, address).await?);
        let permit = self.limits.count_code_attempt(user.as_str(), source, kind, self.clock.instant());
        let permit = permit.map_err(too_many_attempts)?;
        self.count_on_all_nodes(permit).await
    }

    /// Counts an attempt with a response of the provider of identities, which anybody can make up.
    ///
    /// # Errors
    ///
    /// The errors of [`IdentityService::count_attempt`].
    pub(crate) async fn count_provider_attempt(&self, address: IpAddr) -> Result<RateLimitPermit, IdentityError> {
        let permit = self.limits.count_for_address(address, self.clock.instant()).map_err(too_many_attempts)?;
        self.count_on_all_nodes(permit).await
    }

    /// Removes an attempt, because the password was right. A failure is only logged: the attempt then counts as a wrong
    /// one on other nodes.
    pub(crate) async fn undo_attempt(&self, permit: RateLimitPermit) {
        if let Some(shared) = self.store.shared_attempts()
            && let Err(error) = shared.remove_attempt(&permit.shared_buckets(&self.pepper)).await
        {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "a sign-in counts as a refused one on other nodes"
            );
        }
        self.limits.undo_attempt(permit);
    }

    async fn count_on_all_nodes(&self, permit: RateLimitPermit) -> Result<RateLimitPermit, IdentityError> {
        let Some(shared) = self.store.shared_attempts() else { return Ok(permit) };
        match shared.add_attempt(&permit.shared_buckets(&self.pepper)).await? {
            None => Ok(permit),
            Some(wait) => {
                self.limits.take_back(permit);
                Err(too_many_attempts(wait))
            }
        }
    }
}

/// The error for this time to wait, rounded up to whole seconds.
fn too_many_attempts(wait: Duration) -> IdentityError {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    IdentityError::TooManyAttempts { retry_after: Duration::from_secs(seconds.max(1)) }
}
