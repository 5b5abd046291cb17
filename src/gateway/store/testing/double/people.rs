//! The calls of the double on keys and people.

use std::sync::atomic::Ordering;

use async_trait::async_trait;

use super::StoreDouble;
use crate::gateway::store::*;

#[async_trait]
impl KeyStore for StoreDouble {
    async fn insert_key(&self, act: &AuditContext, key: &KeyRow, at_most: Option<u32>) -> Result<bool, StoreError> {
        self.called()?.insert_key(act, key, at_most).await
    }

    async fn find_key(&self, handle: &str, owner: Option<&UserId>) -> Result<Option<KeyRow>, StoreError> {
        self.called()?.find_key(handle, owner).await
    }

    async fn list_keys(&self) -> Result<Vec<KeyRow>, StoreError> {
        self.called()?.list_keys().await
    }

    async fn page_keys(&self, filter: &KeyFilter, now: Timestamp) -> Result<ListPage<KeyRow>, StoreError> {
        self.called()?.page_keys(filter, now).await
    }

    async fn change_key(
        &self,
        act: &AuditContext,
        handle: &str,
        owner: Option<&UserId>,
        changes: &[KeyChange],
    ) -> Result<KeyChangeOutcome, StoreError> {
        self.called()?.change_key(act, handle, owner, changes).await
    }

    async fn rotate_key(
        &self,
        act: &AuditContext,
        key: &KeyId,
        owner: Option<&UserId>,
        next: SecretRotation,
    ) -> Result<KeyChangeOutcome, StoreError> {
        self.called()?.rotate_key(act, key, owner, next).await
    }

    async fn keys_after(&self, revision: i64) -> Result<Vec<KeyCheck>, StoreError> {
        self.refreshes.fetch_add(1, Ordering::Relaxed);
        self.called()?.keys_after(revision).await
    }

    async fn touch_keys(&self, keys: &[KeyId], at: Timestamp) -> Result<(), StoreError> {
        let noted = self.called()?.touch_keys(keys, at).await;
        self.touches.fetch_add(1, Ordering::Relaxed);
        noted
    }
}

#[async_trait]
impl PeopleStore for StoreDouble {
    async fn ensure_user(&self, act: &AuditContext, name: &str) -> Result<UserRow, StoreError> {
        self.called()?.ensure_user(act, name).await
    }

    async fn ensure_group(&self, act: &AuditContext, name: &str) -> Result<GroupRow, StoreError> {
        self.called()?.ensure_group(act, name).await
    }

    async fn find_user(&self, handle: &str) -> Result<Option<UserRow>, StoreError> {
        self.called()?.find_user(handle).await
    }

    async fn password_of(&self, user: &UserId) -> Result<Option<PasswordHash>, StoreError> {
        self.called()?.password_of(user).await
    }

    async fn page_users(&self, filter: &UserFilter) -> Result<ListPage<UserRow>, StoreError> {
        self.called()?.page_users(filter).await
    }

    async fn invite_user(
        &self,
        act: &AuditContext,
        user: &NewUser,
        link: &NewLink,
    ) -> Result<UserChangeOutcome, StoreError> {
        self.called()?.invite_user(act, user, link).await
    }

    async fn change_user(
        &self,
        act: &AuditContext,
        handle: &str,
        changes: &[UserChange],
    ) -> Result<UserChangeOutcome, StoreError> {
        self.called()?.change_user(act, handle, changes).await
    }

    async fn set_password(
        &self,
        act: &AuditContext,
        user: &UserId,
        password: &PasswordHash,
        keep: &SessionId,
    ) -> Result<(), StoreError> {
        self.called()?.set_password(act, user, password, keep).await
    }

    async fn is_set_up(&self) -> Result<bool, StoreError> {
        self.called()?.is_set_up().await
    }

    async fn make_setup_link(&self, act: &AuditContext, link: &NewLink) -> Result<bool, StoreError> {
        self.called()?.make_setup_link(act, link).await
    }

    async fn make_reset_link(&self, act: &AuditContext, user: &UserId, link: &NewLink) -> Result<bool, StoreError> {
        self.called()?.make_reset_link(act, user, link).await
    }

    async fn find_link(&self, hash: &SecretHash, now: Timestamp) -> Result<Option<LinkRow>, StoreError> {
        self.called()?.find_link(hash, now).await
    }

    async fn redeem(&self, act: &AuditContext, redeemed: &LinkRedemption) -> Result<Option<UserRow>, StoreError> {
        self.called()?.redeem(act, redeemed).await
    }

    async fn open_session(
        &self,
        act: &AuditContext,
        user: &UserId,
        password: &PasswordHash,
        session: &NewSession,
    ) -> Result<bool, StoreError> {
        self.called()?.open_session(act, user, password, session).await
    }

    async fn note_refusal(&self, act: &AuditContext, user: Option<&UserRow>) -> Result<(), StoreError> {
        self.called()?.note_refusal(act, user).await
    }

    async fn find_session(&self, hash: &SecretHash) -> Result<Option<(SessionRow, UserRow)>, StoreError> {
        self.called()?.find_session(hash).await
    }

    async fn touch_session(&self, session: &SessionId, at: Timestamp) -> Result<(), StoreError> {
        self.called()?.touch_session(session, at).await
    }

    async fn list_sessions(&self, user: &UserId) -> Result<Vec<SessionRow>, StoreError> {
        self.called()?.list_sessions(user).await
    }

    async fn end_session(&self, act: &AuditContext, session: &SessionId) -> Result<(), StoreError> {
        self.called()?.end_session(act, session).await
    }

    async fn end_sessions(&self, act: &AuditContext, user: &UserId) -> Result<u64, StoreError> {
        self.called()?.end_sessions(act, user).await
    }

    async fn knows_address(&self, user: &UserId, address: &str) -> Result<bool, StoreError> {
        self.called()?.knows_address(user, address).await
    }

    async fn insert_admin_token(
        &self,
        act: &AuditContext,
        token: &AdminTokenRow,
        hash: &SecretHash,
    ) -> Result<(), StoreError> {
        self.called()?.insert_admin_token(act, token, hash).await
    }

    async fn find_admin_token(
        &self,
        public_id: &PublicId,
    ) -> Result<Option<(AdminTokenRow, SecretHash, UserRow)>, StoreError> {
        self.called()?.find_admin_token(public_id).await
    }

    async fn touch_admin_token(&self, token: &TokenId, at: Timestamp) -> Result<(), StoreError> {
        self.called()?.touch_admin_token(token, at).await
    }

    async fn list_admin_tokens(&self, owner: Option<&UserId>) -> Result<Vec<AdminTokenRow>, StoreError> {
        self.called()?.list_admin_tokens(owner).await
    }

    async fn delete_admin_token(
        &self,
        act: &AuditContext,
        handle: &str,
        owner: Option<&UserId>,
    ) -> Result<Option<AdminTokenRow>, StoreError> {
        self.called()?.delete_admin_token(act, handle, owner).await
    }

    async fn create_group(
        &self,
        act: &AuditContext,
        name: &str,
        policy: Option<&str>,
    ) -> Result<Option<GroupRow>, StoreError> {
        self.called()?.create_group(act, name, policy).await
    }

    async fn change_group(
        &self,
        act: &AuditContext,
        handle: &str,
        policy: &str,
    ) -> Result<Option<GroupRow>, StoreError> {
        self.called()?.change_group(act, handle, policy).await
    }

    async fn group_policies(&self) -> Result<Vec<(String, String)>, StoreError> {
        self.called()?.group_policies().await
    }

    async fn list_groups(&self) -> Result<Vec<GroupRow>, StoreError> {
        self.called()?.list_groups().await
    }

    async fn delete_group(&self, act: &AuditContext, handle: &str) -> Result<GroupDeletionOutcome, StoreError> {
        self.called()?.delete_group(act, handle).await
    }

    async fn page_audit(&self, filter: &AuditFilter) -> Result<ListPage<AuditRow>, StoreError> {
        self.called()?.page_audit(filter).await
    }
}
