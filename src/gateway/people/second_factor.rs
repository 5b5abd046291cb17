//! The second factor of a user: an authenticator app, and recovery codes for the case that it is lost.
//!
//! Until a code has confirmed it, the secret of a new factor is nowhere but in the page that shows it, sealed for one
//! session. Afterwards it is sealed in the store. A code works once, on all nodes together.

use std::net::IpAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};

use super::rate_limit::{CodeKind, RateLimitPermit};
use super::totp::{SECRET_BYTES, TotpSecret, base32};
use super::{IdentityError, IdentityService, SecretText, UserSession};
use crate::gateway::store::{
    AuditContext, FactorUse, NewSecondFactor, SecretHash, StoreError, UserId, UserRow, random_bytes,
};

/// The time in which a new factor must be confirmed (our choice).
const ENROLMENT_LIFETIME: Duration = Duration::from_secs(30 * 60);
/// The number of recovery codes (our choice).
const RECOVERY_CODES: usize = 10;
/// The random bytes of a recovery code. Its ten characters of base 32 hold 50 of the bits.
const RECOVERY_CODE_BYTES: usize = 7;
const RECOVERY_CODE_CHARS: usize = 10;

/// A new second factor that no code has confirmed yet.
#[derive(Debug)]
pub(crate) struct SecondFactorEnrolment {
    secret: TotpSecret,
    account: String,
    sealed: String,
}

// === impl SecondFactorEnrolment ===

impl SecondFactorEnrolment {
    /// Returns the sealed secret, for a field of the form that confirms it.
    pub(crate) fn sealed(&self) -> &str {
        &self.sealed
    }

    /// Returns the secret as text, in groups of four characters.
    pub(crate) fn secret_text(&self) -> String {
        let text = self.secret.to_base32();
        let groups = text.as_bytes().chunks(4).filter_map(|group| std::str::from_utf8(group).ok());
        groups.collect::<Vec<_>>().join(" ")
    }

    /// Returns the address that an app reads from a QR code; `issuer` names the gateway.
    pub(crate) fn uri(&self, issuer: &str) -> String {
        self.secret.to_uri(issuer, &self.account)
    }
}

// === impl IdentityService ===

impl IdentityService {
    /// Makes the secret of a new second factor.
    ///
    /// # Errors
    ///
    /// Returns an error if the system has no random bytes.
    pub(crate) fn begin_enrolment(&self, session: &UserSession) -> Result<SecondFactorEnrolment, IdentityError> {
        let user = session.actor.user().ok_or(IdentityError::Unknown)?;
        let secret: [u8; SECRET_BYTES] = random_bytes()?;
        let expires_at = self.unix_seconds().saturating_add_unsigned(ENROLMENT_LIFETIME.as_secs());
        let plain = [&expires_at.to_be_bytes()[..], &secret].concat();
        let sealed = URL_SAFE_NO_PAD.encode(self.vault.seal(&enrolment_context(session, user), &plain)?);
        Ok(SecondFactorEnrolment { secret: TotpSecret::new(secret), account: user.name.clone(), sealed })
    }

    /// Opens the sealed secret that a form has sent back; `None` if it is too old, or not of this session.
    pub(crate) fn reopen_enrolment(&self, session: &UserSession, sealed: &str) -> Option<SecondFactorEnrolment> {
        let user = session.actor.user()?;
        let bytes = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let plain = self.vault.open(&enrolment_context(session, user), &bytes).ok()?;
        let (expires_at, secret) = plain.split_first_chunk::<8>()?;
        let secret = TotpSecret::new(secret.try_into().ok()?);
        let is_valid = self.unix_seconds() < i64::from_be_bytes(*expires_at);
        is_valid.then(|| SecondFactorEnrolment { secret, account: user.name.clone(), sealed: sealed.to_owned() })
    }

    /// Stores a new second factor after its first code, ends the other sessions of the user, and returns the recovery
    /// codes, which cannot be read again later.
    ///
    /// # Errors
    ///
    /// [`IdentityError::WrongCredentials`] if the code is wrong, [`IdentityError::InUse`] if the user has a second factor
    /// already.
    pub(crate) async fn confirm_enrolment(
        &self,
        session: &UserSession,
        enrolment: &SecondFactorEnrolment,
        code: &str,
    ) -> Result<Vec<SecretText>, IdentityError> {
        let user = session.actor.user().ok_or(IdentityError::Unknown)?;
        let step = enrolment.secret.matching_step(code, self.unix_seconds(), None);
        let last_step = step.ok_or(IdentityError::WrongCredentials)?;
        let sealed_secret = self.vault.seal(&factor_context(&user.id), enrolment.secret.bytes())?;
        let (codes, recovery_codes) = self.new_recovery_codes(&user.id)?;
        let factor = NewSecondFactor { sealed_secret, last_step, recovery_codes };
        let audit = AuditContext { at: self.clock.now(), ..session.actor.audit_context() };
        let added = self.store.add_second_factor(&audit, &user.id, &factor, &session.id).await?;
        if added { Ok(codes) } else { Err(IdentityError::InUse) }
    }

    /// Replaces the recovery codes of the session's user, and returns the new ones, which cannot be read again later.
    ///
    /// # Errors
    ///
    /// [`IdentityError::Unknown`] if the user has no second factor.
    pub(crate) async fn renew_recovery_codes(&self, session: &UserSession) -> Result<Vec<SecretText>, IdentityError> {
        let user = session.actor.user().ok_or(IdentityError::Unknown)?;
        let (codes, hashes) = self.new_recovery_codes(&user.id)?;
        let replaced = self.store.replace_recovery_codes(&session.actor.audit_context(), &user.id, &hashes).await?;
        if replaced { Ok(codes) } else { Err(IdentityError::Unknown) }
    }

    /// Returns the number of recovery codes of a user that were not used yet; `None` without a second factor.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read.
    pub(crate) async fn recovery_codes_left(&self, user: &UserId) -> Result<Option<u64>, IdentityError> {
        Ok(self.store.find_second_factor(user).await?.map(|factor| factor.recovery_codes))
    }

    /// Removes the second factor of a user.
    ///
    /// # Errors
    ///
    /// [`IdentityError::Unknown`] if there is no such user, [`IdentityError::InvalidField`] if the user has no second
    /// factor.
    pub(crate) async fn remove_second_factor(
        &self,
        audit: &AuditContext,
        handle: &str,
    ) -> Result<UserRow, IdentityError> {
        let user = self.find_user(handle).await?;
        if !self.store.remove_second_factor(audit, &user.id).await? {
            return Err(IdentityError::field("user", "the user has no second factor"));
        }
        Ok(UserRow { has_second_factor: false, ..user })
    }

    /// Checks a code of an app or a recovery code. The caller must use the result up in the store, and take the permit
    /// back afterwards.
    pub(super) async fn check_code(
        &self,
        user: &UserRow,
        code: &str,
        address: IpAddr,
        audit: &AuditContext,
    ) -> Result<(FactorUse, RateLimitPermit), IdentityError> {
        let is_recovery_code = normalized_recovery_code(code).is_some();
        let kind = if is_recovery_code { CodeKind::Recovery } else { CodeKind::App };
        let permit = self.count_code_attempt(&user.id, address, kind).await?;
        match self.factor_use(&user.id, code).await? {
            Some(factor) => Ok((factor, permit)),
            None => Err(self.refuse_code(user, audit).await),
        }
    }

    /// Records a refused code, and returns the error for it.
    pub(super) async fn refuse_code(&self, user: &UserRow, audit: &AuditContext) -> IdentityError {
        match self.store.record_refused_sign_in(audit, Some(user)).await {
            Ok(()) => IdentityError::WrongCredentials,
            Err(error) => error.into(),
        }
    }

    /// Returns the use that a code would be; `None` if it is wrong. The store decides whether a recovery code exists.
    async fn factor_use(&self, user: &UserId, code: &str) -> Result<Option<FactorUse>, IdentityError> {
        let Some(row) = self.store.find_second_factor(user).await? else { return Ok(None) };
        if let Some(recovery_code) = normalized_recovery_code(code) {
            return Ok(Some(FactorUse::RecoveryCode(self.recovery_code_hash(user, &recovery_code))));
        }
        let bytes = self.vault.open(&factor_context(user), &row.sealed_secret)?;
        let bytes: [u8; SECRET_BYTES] =
            bytes.try_into().map_err(|_| StoreError::damaged("the secret of a second factor has another length"))?;
        let step = TotpSecret::new(bytes).matching_step(code, self.unix_seconds(), Some(row.last_step));
        Ok(step.map(FactorUse::Step))
    }

    fn new_recovery_codes(&self, user: &UserId) -> Result<(Vec<SecretText>, Vec<SecretHash>), IdentityError> {
        let (mut codes, mut hashes) = (Vec::new(), Vec::new());
        for _ in 0..RECOVERY_CODES {
            let bytes: [u8; RECOVERY_CODE_BYTES] = random_bytes()?;
            let code: String = base32(&bytes).to_ascii_lowercase().chars().take(RECOVERY_CODE_CHARS).collect();
            hashes.push(self.recovery_code_hash(user, &code));
            let (first, second) = code.split_at(RECOVERY_CODE_CHARS / 2);
            codes.push(SecretText::new(format!("{first}-{second}")));
        }
        Ok((codes, hashes))
    }

    fn recovery_code_hash(&self, user: &UserId, code: &str) -> SecretHash {
        self.pepper.hash_for_purpose("recovery code", format!("{user} {code}").as_bytes())
    }

    pub(super) fn unix_seconds(&self) -> i64 {
        DateTime::<Utc>::from(self.clock.now()).timestamp()
    }
}

/// Returns a text as it is hashed, if it has the form of a recovery code. Codes of apps are shorter.
fn normalized_recovery_code(text: &str) -> Option<String> {
    let is_separator = |character: &char| character.is_whitespace() || *character == '-';
    let code: String = text.chars().filter(|character| !is_separator(character)).collect();
    let code = code.to_ascii_lowercase();
    (code.len() == RECOVERY_CODE_CHARS && code.bytes().all(|byte| byte.is_ascii_alphanumeric())).then_some(code)
}

/// The context for which the secret of a stored factor is sealed.
fn factor_context(user: &UserId) -> String {
    format!("second factor {user}")
}

/// The context for which the secret of a factor is sealed until it is confirmed: one session.
fn enrolment_context(session: &UserSession, user: &UserRow) -> String {
    format!("second factor to confirm {} {}", user.id, session.csrf)
}
