//! The provider of OpenID Connect: whether its metadata and keys can be read, and are those of the settings.

use super::CheckResult;
use crate::gateway::config::Config;
use crate::gateway::oidc::{OidcError, OidcProvider};

const CHECK: &str = "oidc";

/// Reads the metadata and the keys of the provider, if one is configured.
pub(super) async fn check(config: &Config) -> Option<CheckResult> {
    let settings = config.oidc.as_ref()?;
    let checked = match OidcProvider::new(settings) {
        Ok(provider) => provider.check().await,
        Err(error) => return Some(CheckResult::problem(CHECK, error.to_string(), None)),
    };
    Some(match checked {
        Ok(true) => CheckResult::ok(CHECK, format!("{} can be used", settings.issuer)),
        Ok(false) => {
            let message = format!("{} does not list the claim auth_time", settings.issuer);
            let advice =
                "if its ID tokens have none, users without a password cannot confirm changes; see docs/sign-in.md";
            CheckResult::warning(CHECK, message, Some(advice))
        }
        Err(error @ OidcError::Metadata(_)) => {
            let advice = "set `oidc.issuer` to the text that the provider states as `issuer`";
            CheckResult::problem(CHECK, format!("{}: {error}", settings.issuer), Some(advice))
        }
        Err(error) => {
            let advice = "users can sign in with their passwords; check `oidc.issuer` and the way to it";
            CheckResult::warning(CHECK, format!("{}: {error}", settings.issuer), Some(advice))
        }
    })
}
