//! The store of people. The statements are in the files of this folder, one file for each kind of row.

mod groups;
mod identities;
mod links;
mod second_factors;
pub(in super::super) mod sessions;
mod tokens;
mod users;

use async_trait::async_trait;

use super::audit_trail;
use super::dialect::SqlStore;
use super::error_conversion::during;
use crate::gateway::store::{
    AdminTokenRow, AuditContext, AuditFilter, AuditRow, FactorUse, GroupDeletionOutcome, GroupId, GroupRow,
    IdentityRow, IdentityStore, LinkRedemption, LinkRow, ListPage, NewIdentity, NewLink, NewSecondFactor, NewSession,
    NewUser, PasswordHash, PeopleStore, PublicId, SecondFactorRow, SecondFactorStore, SecretHash, SessionId,
    SessionRow, SessionStore, SharedAttempts, SignInProof, StoreError, Timestamp, TokenId, UserChange,
    UserChangeOutcome, UserFilter, UserId, UserRow,
};

#[async_trait]
impl SessionStore for SqlStore {
    async fn open_session(
        &self,
        audit: &AuditContext,
        user: &UserId,
        proof: &SignInProof,
        session: &NewSession,
    ) -> Result<bool, StoreError> {
        sessions::sign_in(&self.writer, audit, user, proof, session).await.map_err(during("opening a session"))
    }

    async fn record_refused_sign_in(&self, audit: &AuditContext, user: Option<&UserRow>) -> Result<(), StoreError> {
        sessions::record_refused_sign_in(&self.writer, audit, user).await.map_err(during("storing a refused sign-in"))
    }

    async fn find_session(&self, hash: &SecretHash) -> Result<Option<(SessionRow, UserRow)>, StoreError> {
        sessions::find(&self.readers, hash).await.map_err(during("looking up a session"))
    }

    async fn record_session_use(&self, session: &SessionId, at: Timestamp) -> Result<(), StoreError> {
        sessions::record_use(&self.writer, session, at).await.map_err(during("storing the use of a session"))
    }

    async fn list_sessions(&self, user: &UserId) -> Result<Vec<SessionRow>, StoreError> {
        sessions::list(&self.readers, user).await.map_err(during("listing sessions"))
    }

    async fn record_session_proof(
        &self,
        audit: &AuditContext,
        session: &SessionId,
        factor: Option<&FactorUse>,
    ) -> Result<bool, StoreError> {
        let recorded = sessions::record_proof(&self.writer, audit, session, factor).await;
        recorded.map_err(during("storing the proof of a session"))
    }

    async fn end_session(&self, audit: &AuditContext, user: &UserId, session: &SessionId) -> Result<bool, StoreError> {
        sessions::end(&self.writer, audit, user, session).await.map_err(during("ending a session"))
    }

    async fn end_sessions(
        &self,
        audit: &AuditContext,
        user: &UserId,
        kept_session: Option<&SessionId>,
    ) -> Result<u64, StoreError> {
        sessions::end_all(&self.writer, audit, user, kept_session).await.map_err(during("ending sessions"))
    }

    async fn has_signed_in_from(&self, user: &UserId, network: &str) -> Result<bool, StoreError> {
        sessions::has_signed_in_from(&self.readers, user, network).await.map_err(during("looking up an address"))
    }
}

#[async_trait]
impl SecondFactorStore for SqlStore {
    async fn find_second_factor(&self, user: &UserId) -> Result<Option<SecondFactorRow>, StoreError> {
        second_factors::find(&self.readers, user).await.map_err(during("looking up a second factor"))
    }

    async fn add_second_factor(
        &self,
        audit: &AuditContext,
        user: &UserId,
        factor: &NewSecondFactor,
        kept_session: &SessionId,
    ) -> Result<bool, StoreError> {
        let added = second_factors::add(&self.writer, audit, user, factor, kept_session).await;
        added.map_err(during("storing a second factor"))
    }

    async fn replace_recovery_codes(
        &self,
        audit: &AuditContext,
        user: &UserId,
        codes: &[SecretHash],
    ) -> Result<bool, StoreError> {
        second_factors::replace_codes(&self.writer, audit, user, codes).await.map_err(during("storing recovery codes"))
    }

    async fn remove_second_factor(&self, audit: &AuditContext, user: &UserId) -> Result<bool, StoreError> {
        second_factors::remove(&self.writer, audit, user).await.map_err(during("removing a second factor"))
    }
}

#[async_trait]
impl IdentityStore for SqlStore {
    async fn find_user_of_identity(&self, issuer: &str, subject: &str) -> Result<Option<UserRow>, StoreError> {
        identities::find_user(&self.readers, issuer, subject).await.map_err(during("looking up an identity"))
    }

    async fn find_identity(&self, user: &UserId) -> Result<Option<IdentityRow>, StoreError> {
        identities::find(&self.readers, user).await.map_err(during("looking up an identity"))
    }

    async fn connect_identity(
        &self,
        audit: &AuditContext,
        of: (&UserId, &SessionId),
        identity: &NewIdentity,
    ) -> Result<bool, StoreError> {
        identities::connect(&self.writer, audit, of, identity).await.map_err(during("storing an identity"))
    }

    async fn create_user_with_identity(
        &self,
        audit: &AuditContext,
        name: &str,
        identity: &NewIdentity,
    ) -> Result<Option<UserRow>, StoreError> {
        let user = (UserId::random()?, name);
        identities::create_user(&self.writer, audit, user, identity).await.map_err(during("storing a user"))
    }

    async fn disconnect_identity(
        &self,
        audit: &AuditContext,
        user: &UserId,
        kept_session: Option<&SessionId>,
    ) -> Result<bool, StoreError> {
        let removed = identities::disconnect(&self.writer, audit, user, kept_session).await;
        removed.map_err(during("removing an identity"))
    }
}

#[async_trait]
impl PeopleStore for SqlStore {
    async fn ensure_user(&self, audit: &AuditContext, name: &str) -> Result<UserRow, StoreError> {
        users::ensure(self, audit, UserId::random()?, name).await.map_err(during("storing a user"))
    }

    async fn ensure_group(&self, audit: &AuditContext, name: &str) -> Result<GroupRow, StoreError> {
        groups::ensure(self, audit, GroupId::random()?, name).await.map_err(during("storing a group"))
    }

    async fn find_user(&self, handle: &str) -> Result<Option<UserRow>, StoreError> {
        let lookup = async { users::find(&mut *self.readers.acquire().await?, handle).await };
        lookup.await.map_err(during("looking up a user"))
    }

    async fn password_hash(&self, user: &UserId) -> Result<Option<PasswordHash>, StoreError> {
        users::password_hash(&self.readers, user).await.map_err(during("looking up a password"))
    }

    async fn list_users_page(&self, filter: &UserFilter) -> Result<ListPage<UserRow>, StoreError> {
        users::page(&self.readers, filter).await.map_err(during("listing users"))
    }

    async fn invite_user(
        &self,
        audit: &AuditContext,
        user: &NewUser,
        link: &NewLink,
    ) -> Result<UserChangeOutcome, StoreError> {
        users::invite(&self.writer, audit, &UserId::random()?, user, link).await.map_err(during("inviting a user"))
    }

    async fn change_user(
        &self,
        audit: &AuditContext,
        handle: &str,
        changes: &[UserChange],
    ) -> Result<UserChangeOutcome, StoreError> {
        users::change(&self.writer, audit, handle, changes).await.map_err(during("changing a user"))
    }

    async fn set_password(
        &self,
        audit: &AuditContext,
        user: &UserId,
        password: &PasswordHash,
        kept_session: &SessionId,
    ) -> Result<(), StoreError> {
        users::set_password(&self.writer, audit, user, password, kept_session)
            .await
            .map_err(during("storing a password"))
    }

    async fn is_set_up(&self) -> Result<bool, StoreError> {
        links::is_set_up(&self.readers).await.map_err(during("looking for an admin"))
    }

    async fn make_setup_link(&self, audit: &AuditContext, link: &NewLink) -> Result<bool, StoreError> {
        links::create_setup_link(&self.writer, audit, link).await.map_err(during("storing a link"))
    }

    async fn make_reset_link(&self, audit: &AuditContext, user: &UserId, link: &NewLink) -> Result<bool, StoreError> {
        links::create_reset_link(&self.writer, audit, user, link).await.map_err(during("storing a link"))
    }

    async fn find_link(&self, hash: &SecretHash, now: Timestamp) -> Result<Option<LinkRow>, StoreError> {
        let lookup = async { links::find(&mut *self.readers.acquire().await?, hash, now).await };
        lookup.await.map_err(during("looking up a link"))
    }

    async fn redeem_link(
        &self,
        audit: &AuditContext,
        redemption: &LinkRedemption,
    ) -> Result<Option<UserRow>, StoreError> {
        links::redeem(&self.writer, audit, &UserId::random()?, redemption).await.map_err(during("using a link"))
    }

    fn shared_attempts(&self) -> Option<&dyn SharedAttempts> {
        self.attempts_on_all_nodes()
    }

    async fn insert_admin_token(
        &self,
        audit: &AuditContext,
        token: &AdminTokenRow,
        hash: &SecretHash,
        max_tokens: u32,
    ) -> Result<bool, StoreError> {
        let added = tokens::insert(&self.writer, audit, (token, hash), max_tokens).await;
        added.map_err(during("storing an admin token"))
    }

    async fn find_admin_token(
        &self,
        public_id: &PublicId,
    ) -> Result<Option<(AdminTokenRow, SecretHash, UserRow)>, StoreError> {
        tokens::find(&self.readers, public_id).await.map_err(during("looking up an admin token"))
    }

    async fn record_admin_token_use(&self, token: &TokenId, at: Timestamp) -> Result<(), StoreError> {
        tokens::record_use(&self.writer, token, at).await.map_err(during("storing the use of an admin token"))
    }

    async fn list_admin_tokens(&self, owner: Option<&UserId>) -> Result<Vec<AdminTokenRow>, StoreError> {
        tokens::list(&self.readers, owner).await.map_err(during("listing admin tokens"))
    }

    async fn delete_admin_token(
        &self,
        audit: &AuditContext,
        handle: &str,
        owner: Option<&UserId>,
    ) -> Result<Option<AdminTokenRow>, StoreError> {
        tokens::delete(&self.writer, audit, handle, owner).await.map_err(during("deleting an admin token"))
    }

    async fn create_group(
        &self,
        audit: &AuditContext,
        name: &str,
        policy: Option<&str>,
    ) -> Result<Option<GroupRow>, StoreError> {
        let group = groups::create(self, audit, GroupId::random()?, name, policy).await;
        group.map_err(during("storing a group"))
    }

    async fn change_group(
        &self,
        audit: &AuditContext,
        handle: &str,
        policy: &str,
    ) -> Result<Option<GroupRow>, StoreError> {
        groups::change(&self.writer, audit, handle, policy).await.map_err(during("changing a group"))
    }

    async fn group_policies(&self) -> Result<Vec<(String, String)>, StoreError> {
        groups::policies(&self.readers).await.map_err(during("reading the settings of groups"))
    }

    async fn list_groups(&self) -> Result<Vec<GroupRow>, StoreError> {
        groups::list(&self.readers).await.map_err(during("listing groups"))
    }

    async fn delete_group(&self, audit: &AuditContext, handle: &str) -> Result<GroupDeletionOutcome, StoreError> {
        groups::delete(&self.writer, audit, handle).await.map_err(during("deleting a group"))
    }

    async fn list_audit_page(&self, filter: &AuditFilter) -> Result<ListPage<AuditRow>, StoreError> {
        audit_trail::page(&self.readers, filter).await.map_err(during("reading the audit trail"))
    }
}
