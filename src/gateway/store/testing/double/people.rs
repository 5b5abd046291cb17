//! The methods of the double for keys, people, groups, sessions and the audit trail.

use std::sync::atomic::Ordering;

use async_trait::async_trait;

use super::StoreDouble;
use crate::gateway::store::*;

#[async_trait]
impl KeyStore for StoreDouble {
    async fn insert_key(&self, audit: &AuditContext, key: &KeyRow, max_keys: Option<u32>) -> Result<bool, StoreError> {
        self.inner_or_failure()?.insert_key(audit, key, max_keys).await
    }

    async fn find_key(&self, handle: &str, owner: Option<&UserId>) -> Result<Option<KeyRow>, StoreError> {
        self.inner_or_failure()?.find_key(handle, owner).await
    }

    async fn list_keys(&self) -> Result<Vec<KeyRow>, StoreError> {
        self.inner_or_failure()?.list_keys().await
    }

    async fn list_keys_page(&self, filter: &KeyFilter, now: Timestamp) -> Result<ListPage<KeyRow>, StoreError> {
        self.inner_or_failure()?.list_keys_page(filter, now).await
    }

    async fn change_key(
        &self,
        audit: &AuditContext,
        handle: &str,
        owner: Option<&UserId>,
        changes: &[KeyChange],
    ) -> Result<KeyChangeOutcome, StoreError> {
        self.inner_or_failure()?.change_key(audit, handle, owner, changes).await
    }

    async fn rotate_key(
        &self,
        audit: &AuditContext,
        key: &KeyId,
        owner: Option<&UserId>,
        rotation: SecretRotation,
    ) -> Result<KeyChangeOutcome, StoreError> {
        self.inner_or_failure()?.rotate_key(audit, key, owner, rotation).await
    }

    async fn keys_changed_since(&self, revision: i64) -> Result<Vec<KeyCheck>, StoreError> {
        self.refreshes.fetch_add(1, Ordering::Relaxed);
        self.inner_or_failure()?.keys_changed_since(revision).await
    }

    async fn record_key_use(&self, keys: &[KeyId], at: Timestamp) -> Result<(), StoreError> {
        let noted = self.inner_or_failure()?.record_key_use(keys, at).await;
        self.touches.fetch_add(1, Ordering::Relaxed);
        noted
    }
}

#[async_trait]
impl PeopleStore for StoreDouble {
    async fn ensure_user(&self, audit: &AuditContext, name: &str) -> Result<UserRow, StoreError> {
        self.inner_or_failure()?.ensure_user(audit, name).await
    }

    async fn ensure_group(&self, audit: &AuditContext, name: &str) -> Result<GroupRow, StoreError> {
        self.inner_or_failure()?.ensure_group(audit, name).await
    }

    async fn find_user(&self, handle: &str) -> Result<Option<UserRow>, StoreError> {
        self.inner_or_failure()?.find_user(handle).await
    }

    async fn password_hash(&self, user: &UserId) -> Result<Option<PasswordHash>, StoreError> {
        self.inner_or_failure()?.password_hash(user).await
    }

    async fn list_users_page(&self, filter: &UserFilter) -> Result<ListPage<UserRow>, StoreError> {
        self.inner_or_failure()?.list_users_page(filter).await
    }

    async fn invite_user(
        &self,
        audit: &AuditContext,
        user: &NewUser,
        link: &NewLink,
    ) -> Result<UserChangeOutcome, StoreError> {
        self.inner_or_failure()?.invite_user(audit, user, link).await
    }

    async fn change_user(
        &self,
        audit: &AuditContext,
        handle: &str,
        changes: &[UserChange],
    ) -> Result<UserChangeOutcome, StoreError> {
        self.inner_or_failure()?.change_user(audit, handle, changes).await
    }

    async fn set_password(
        &self,
        audit: &AuditContext,
        user: &UserId,
        password: &PasswordHash,
        kept_session: &SessionId,
    ) -> Result<(), StoreError> {
        self.inner_or_failure()?.set_password(audit, user, password, kept_session).await
    }

    async fn is_set_up(&self) -> Result<bool, StoreError> {
        self.inner_or_failure()?.is_set_up().await
    }

    async fn make_setup_link(&self, audit: &AuditContext, link: &NewLink) -> Result<bool, StoreError> {
        self.inner_or_failure()?.make_setup_link(audit, link).await
    }

    async fn make_reset_link(&self, audit: &AuditContext, user: &UserId, link: &NewLink) -> Result<bool, StoreError> {
        self.inner_or_failure()?.make_reset_link(audit, user, link).await
    }

    async fn find_link(&self, hash: &SecretHash, now: Timestamp) -> Result<Option<LinkRow>, StoreError> {
        self.inner_or_failure()?.find_link(hash, now).await
    }

    async fn redeem_link(
        &self,
        audit: &AuditContext,
        redemption: &LinkRedemption,
    ) -> Result<Option<UserRow>, StoreError> {
        self.inner_or_failure()?.redeem_link(audit, redemption).await
    }

    async fn open_session(
        &self,
        audit: &AuditContext,
        user: &UserId,
        password: &PasswordHash,
        session: &NewSession,
    ) -> Result<bool, StoreError> {
        self.inner_or_failure()?.open_session(audit, user, password, session).await
    }

    async fn record_refused_sign_in(&self, audit: &AuditContext, user: Option<&UserRow>) -> Result<(), StoreError> {
        self.inner_or_failure()?.record_refused_sign_in(audit, user).await
    }

    async fn find_session(&self, hash: &SecretHash) -> Result<Option<(SessionRow, UserRow)>, StoreError> {
        self.inner_or_failure()?.find_session(hash).await
    }

    async fn record_session_use(&self, session: &SessionId, at: Timestamp) -> Result<(), StoreError> {
        self.inner_or_failure()?.record_session_use(session, at).await
    }

    async fn list_sessions(&self, user: &UserId) -> Result<Vec<SessionRow>, StoreError> {
        self.inner_or_failure()?.list_sessions(user).await
    }

    async fn end_session(&self, audit: &AuditContext, session: &SessionId) -> Result<(), StoreError> {
        self.inner_or_failure()?.end_session(audit, session).await
    }

    async fn end_sessions(&self, audit: &AuditContext, user: &UserId) -> Result<u64, StoreError> {
        self.inner_or_failure()?.end_sessions(audit, user).await
    }

    async fn has_signed_in_from(&self, user: &UserId, address: &str) -> Result<bool, StoreError> {
        self.inner_or_failure()?.has_signed_in_from(user, address).await
    }

    async fn insert_admin_token(
        &self,
        audit: &AuditContext,
        token: &AdminTokenRow,
        hash: &SecretHash,
    ) -> Result<(), StoreError> {
        self.inner_or_failure()?.insert_admin_token(audit, token, hash).await
    }

    async fn find_admin_token(
        &self,
        public_id: &PublicId,
    ) -> Result<Option<(AdminTokenRow, SecretHash, UserRow)>, StoreError> {
        self.inner_or_failure()?.find_admin_token(public_id).await
    }

    async fn record_admin_token_use(&self, token: &TokenId, at: Timestamp) -> Result<(), StoreError> {
        self.inner_or_failure()?.record_admin_token_use(token, at).await
    }

    async fn list_admin_tokens(&self, owner: Option<&UserId>) -> Result<Vec<AdminTokenRow>, StoreError> {
        self.inner_or_failure()?.list_admin_tokens(owner).await
    }

    async fn delete_admin_token(
        &self,
        audit: &AuditContext,
        handle: &str,
        owner: Option<&UserId>,
    ) -> Result<Option<AdminTokenRow>, StoreError> {
        self.inner_or_failure()?.delete_admin_token(audit, handle, owner).await
    }

    async fn create_group(
        &self,
        audit: &AuditContext,
        name: &str,
        policy: Option<&str>,
    ) -> Result<Option<GroupRow>, StoreError> {
        self.inner_or_failure()?.create_group(audit, name, policy).await
    }

    async fn change_group(
        &self,
        audit: &AuditContext,
        handle: &str,
        policy: &str,
    ) -> Result<Option<GroupRow>, StoreError> {
        self.inner_or_failure()?.change_group(audit, handle, policy).await
    }

    async fn group_policies(&self) -> Result<Vec<(String, String)>, StoreError> {
        self.inner_or_failure()?.group_policies().await
    }

    async fn list_groups(&self) -> Result<Vec<GroupRow>, StoreError> {
        self.inner_or_failure()?.list_groups().await
    }

    async fn delete_group(&self, audit: &AuditContext, handle: &str) -> Result<GroupDeletionOutcome, StoreError> {
        self.inner_or_failure()?.delete_group(audit, handle).await
    }

    async fn list_audit_page(&self, filter: &AuditFilter) -> Result<ListPage<AuditRow>, StoreError> {
        self.inner_or_failure()?.list_audit_page(filter).await
    }
}
