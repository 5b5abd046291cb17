//! The state of a browser that is at the provider of identities: a sealed cookie.
//!
//! It binds the response of the provider to this browser, to the purpose for which it was sent there, and to its
//! session. It works on every node, and is good for one response.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::Utc;
use cookie::{Cookie, SameSite};
use serde::{Deserialize, Serialize};

use super::csrf::random_token;
use super::page_context::PageContext;
use super::page_error::PageError;
use super::site_origin::SiteOrigin;
use crate::gateway::oidc::{AuthorizationRequest, CLOCK_TOLERANCE, OidcProvider};
use crate::gateway::store::IdentityRow;

/// The time that a person has at the provider (our choice).
const FLOW_LIFETIME: Duration = Duration::from_secs(15 * 60);
/// The longest path after a sign-in that is kept, in bytes (our choice).
const NEXT_MAX: usize = 1024;
/// The context for which the state is sealed.
const CONTEXT: &str = "state of a sign-in at the provider";
/// The path to which the provider sends the browser back.
pub(super) const CALLBACK_PATH: &str = "/sign-in/provider/callback";

/// The state of a browser that is at the provider.
#[derive(Serialize, Deserialize)]
pub(super) struct ProviderFlow {
    pub(super) purpose: FlowPurpose,
    /// The path after a sign-in.
    pub(super) next: String,
    pub(super) state: String,
    /// The time at which the browser was sent to the provider, in seconds since 1970.
    pub(super) started_at: i64,
    /// The issuer of that time: the settings may change meanwhile.
    issuer: String,
    redirect_uri: String,
    nonce: String,
    verifier: String,
}

/// The purpose for which a browser is at the provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FlowPurpose {
    /// The user signs in.
    SignIn,
    /// The user of the session with this id connects their account.
    Connect(String),
    /// The user of the session with this id proves their identity again.
    Confirm(String),
}

// === impl ProviderFlow ===

impl ProviderFlow {
    /// Begins a flow.
    ///
    /// # Errors
    ///
    /// Returns an error if the system provides no random bytes.
    pub(super) fn begin(
        context: &PageContext<'_>,
        provider: &OidcProvider,
        purpose: FlowPurpose,
        next: String,
    ) -> Result<Self, PageError> {
        let random = || random_token().map_err(super::page_context::no_randomness);
        Ok(Self {
            purpose,
            // Browsers drop a cookie that is too long.
            next: if next.len() <= NEXT_MAX { next } else { String::new() },
            issuer: provider.config().issuer.clone(),
            state: random()?,
            started_at: Utc::now().timestamp(),
            redirect_uri: format!("{}{CALLBACK_PATH}", context.site.origin()),
            nonce: random()?,
            // A verifier has at least 43 characters (RFC 7636, section 4.1).
            verifier: format!("{}{}", random()?, random()?),
        })
    }

    /// The request that the browser takes to the provider.
    pub(super) fn request(&self) -> AuthorizationRequest<'_> {
        AuthorizationRequest {
            redirect_uri: &self.redirect_uri,
            state: &self.state,
            nonce: &self.nonce,
            verifier: &self.verifier,
            requires_login: matches!(self.purpose, FlowPurpose::Confirm(_)),
        }
    }

    /// Seals the state for the cookie.
    ///
    /// # Errors
    ///
    /// Returns an error if the system provides no random bytes.
    pub(super) fn seal(&self, context: &PageContext<'_>) -> Result<String, PageError> {
        let plain = serde_json::to_vec(self).map_err(|error| {
            tracing::error!(%error, "the state of a sign-in cannot be written");
            PageError::Internal
        })?;
        let sealed = context.vault().seal(CONTEXT, &plain).map_err(crate::gateway::people::IdentityError::from)?;
        Ok(URL_SAFE_NO_PAD.encode(sealed))
    }

    /// Opens the state of a cookie; `None` if it is too old, is not one of this gateway, or is that of another provider.
    fn open(context: &PageContext<'_>, provider: &OidcProvider, cookie: &str) -> Option<Self> {
        let sealed = URL_SAFE_NO_PAD.decode(cookie).ok()?;
        let flow: Self = serde_json::from_slice(&context.vault().open(CONTEXT, &sealed).ok()?).ok()?;
        let age = Utc::now().timestamp().saturating_sub(flow.started_at);
        // The browser may come back to a node whose clock is behind.
        let is_young = u64::try_from(age + CLOCK_TOLERANCE).is_ok_and(|age| age < FLOW_LIFETIME.as_secs());
        (is_young && flow.issuer == provider.config().issuer).then_some(flow)
    }
}

// === impl PageContext ===

impl PageContext<'_> {
    /// The cookie of a browser that is at the provider of identities; without a value, a cookie that removes it. The way
    /// back begins at another site, and browsers then omit cookies that are `Strict`.
    pub(super) fn flow_cookie(&self, value: Option<String>) -> Cookie<'static> {
        let age = value.as_ref().map_or(Duration::ZERO, |_| FLOW_LIFETIME);
        let cookie = self.cookie(flow_cookie_name(self.site), value.unwrap_or_default()).same_site(SameSite::Lax);
        cookie.max_age(cookie::time::Duration::try_from(age).unwrap_or_default()).build()
    }

    /// The state of a browser that comes back from the provider of identities.
    pub(super) fn provider_flow(&self, provider: &OidcProvider) -> Option<ProviderFlow> {
        ProviderFlow::open(self, provider, &self.request.cookie(&flow_cookie_name(self.site))?)
    }

    /// The identity of the signed-in user at the configured provider, if there is one.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read.
    pub(super) async fn own_identity(&self) -> Result<Option<IdentityRow>, PageError> {
        let (Some(provider), Some(user)) = (&self.gateway.settings().oidc, self.own_user_id()) else { return Ok(None) };
        let identity = self.people().identity_of(&user).await?;
        Ok(identity.filter(|identity| identity.issuer == provider.config().issuer))
    }
}

/// The name of the cookie of a browser that is at the provider of identities.
fn flow_cookie_name(site: &SiteOrigin) -> String {
    if site.is_secure() { "__Host-imagate-provider".to_owned() } else { format!("imagate_provider_{}", site.port()) }
}
