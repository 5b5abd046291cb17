//! The text that the gateway prints for its operator when it starts: on standard output, and never in the log.
//!
//! The last line states the address that the gateway listens on; programs wait for it. The lines above it are for
//! people: among them a first key, which is shown only once, and the one-time link that creates the first admin.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::ServeError;
use crate::gateway::Gateway;
use crate::gateway::config::{Config, DEFAULT_GROUP, DialectSet};
use crate::gateway::keys::{ApiKeys, NewKey};
use crate::gateway::manage;
use crate::gateway::people::IssuedLink;
use crate::gateway::store::{AuditContext, UserRow};

/// The parts of the text that depend on the store: a first key and a setup link, if they were made.
pub(super) struct StartupMessage {
    first_key: Option<String>,
    setup_link: Option<IssuedLink>,
}

// === impl StartupMessage ===

impl StartupMessage {
    pub(super) async fn prepare(config: &Config, gateway: &Gateway) -> Result<Self, ServeError> {
        let first_key = create_first_key(config, &gateway.images.keys).await?;
        // The link is made even if accounts are configured: it costs nothing, works once, and expires.
        Ok(Self { first_key, setup_link: gateway.people.create_setup_link().await? })
    }

    pub(super) fn text(&self, config: &Config, local_address: SocketAddr) -> String {
        let listening = format!("http://{}", reachable_address(local_address));
        let mut text = String::new();
        if config.accounts.iter().any(|account| account.implicit) {
            text.push_str("\nNo upstream account is configured: the built-in SIMULATOR draws the images. No model is called and nothing is charged.\n");
        }
        if let Some(key) = &self.first_key {
            let curl = curl_command(config.public_url.as_ref().map_or(&listening, |url| url.as_str()), key);
            text.push_str(&format!(
                "\nYour first API key, shown only once. It is valid for 24 hours, but only until the first upstream account is added:\n\n    {key}\n\nTry it:\n\n    {curl}\n\n"
            ));
        } else {
            text.push_str(&format!("\nCreate a key with: imagate key create --name NAME{}\n\n", config.arguments()));
        }
        if let Some(link) = &self.setup_link {
            let base = config.public_url.as_ref().map_or(listening.as_str(), |url| url.as_str());
            text.push_str(&format!(
                "Open this one-time link to create the first admin: {base}{}\nIt is valid for 30 minutes; the next start of a node prints another one, and only the last is valid.\n\n",
                link.path()
            ));
        }
        text.push_str(&format!("listening on {listening}\n"));
        text
    }
}

/// Creates a key if the implicit simulator is the only account, no key exists, and no first key was ever made, also by
/// another node. With this key, the printed `curl` command works.
///
/// No key is created if accounts are configured: its requests would cost money, and printed text may end up in a log.
async fn create_first_key(config: &Config, keys: &ApiKeys) -> Result<Option<String>, ServeError> {
    let implicit = config.accounts.iter().any(|account| account.implicit);
    if !implicit {
        return Ok(None);
    }
    // The key has no owner until the first admin receives it.
    let nobody = UserRow::nobody();
    let new_key = NewKey {
        name: "first key",
        user: &nobody,
        group: DEFAULT_GROUP,
        expires_at: Some(manage::first_key_expiry()),
        limits: None,
        dialects: DialectSet::default(),
        max_keys: None,
    };
    let created = keys.create_first(&AuditContext::system(), new_key).await?;
    Ok(created.map(|key| key.secret.expose().to_owned()))
}

/// Returns the address under which a client on this machine reaches the gateway.
fn reachable_address(local_address: SocketAddr) -> SocketAddr {
    match local_address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => SocketAddr::new(IpAddr::from([127, 0, 0, 1]), local_address.port()),
        IpAddr::V6(ip) if ip.is_unspecified() => {
            SocketAddr::new(IpAddr::from(Ipv6Addr::LOCALHOST), local_address.port())
        }
        _ => local_address,
    }
}

fn curl_command(base: &str, key: &str) -> String {
    let body = r#"{"model":"gpt-image-2","prompt":"a lighthouse on a cliff at dusk","size":"1024x1024"}"#;
    format!(
        "curl -sS {base}/v1/images/generations -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' -d '{body}'"
    )
}
