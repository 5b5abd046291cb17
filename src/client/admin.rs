//! The generated client of the admin API: keys, users, admin tokens, groups, records, usage, the audit trail
//! and the upstream accounts.
//!
//! Members can use the API for the objects that belong to them.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use imagate::admin::{connect, types};
//!
//! let admin = connect("http://127.0.0.1:8080", "sk-adm-…")?;
//! let new = types::NewKey::builder().name(types::KeyName::try_from("laptop")?);
//! let created = admin.create_key().body(new).send().await?;
//! println!("{} belongs to the group {}", created.key.public_id, created.key.group);
//! // No later answer contains the secret.
//! save(created.secret.expose());
//!
//! for key in &admin.list_keys().state(types::KeyState::Active).send().await?.data {
//!     println!("{}: {} images", key.name, key.images);
//! }
//! let usage = admin.retrieve_usage().send().await?;
//! println!("{} images in 30 days", usage.totals.images);
//! # fn save(_: &str) {}
//! # Ok(())
//! # }
//! ```

pub use crate::wire::admin::client::Client;
pub use crate::wire::admin::types;

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderMap};

use super::Error;
use super::builder::{DEFAULT_BASE_PATH, ServiceAddress, http_builder, unencrypted_error};
use super::session::BearerCredentials;

/// The time limit of a request (our choice): generous, because the store answers in milliseconds.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Creates a client for the gateway at this address, with the admin token of a user or of the settings. A `/v1` at the
/// end of the address is left out.
///
/// A token is not sent over plain http to another machine. If you trust the network, make a client with
/// [`Client::new_with_client`] and an HTTP client that sends the token.
///
/// # Errors
///
/// Returns an error if the address is not a web address or is plain http to another machine, if the token cannot be
/// sent in a header, or if no HTTP client can be built on this machine.
pub fn connect(address: &str, token: &str) -> Result<Client, Error> {
    let ServiceAddress { origin, base_path, is_local, is_encrypted } = ServiceAddress::parse(address)?;
    if !is_encrypted && !is_local {
        return Err(unencrypted_error("the address", "the token"));
    }
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, BearerCredentials::new(token)?.authorization());
    let http = http_builder(is_local).default_headers(headers).timeout(REQUEST_TIMEOUT).build();
    let http = http.map_err(|source| Error::settings_from("the HTTP client cannot be created", source))?;
    // The paths of the admin API do not begin with that of the public one.
    let prefix = base_path.strip_suffix(DEFAULT_BASE_PATH).unwrap_or(&base_path);
    Ok(Client::new_with_client(&format!("{origin}{prefix}"), http))
}
