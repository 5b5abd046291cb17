//! The client of the operators' API, as generated: accounts, so far.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let admin = imagate::admin::connect("http://127.0.0.1:8080", "the admin token of the gateway")?;
//! for account in &admin.list_accounts().send().await?.data {
//!     println!("{} is {}", account.name, account.state);
//! }
//! # Ok(())
//! # }
//! ```

pub use crate::wire::admin::client::Client;
pub use crate::wire::admin::types;

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderMap};

use super::Error;
use super::builder::http_builder;
use super::session::Credentials;

/// The store answers in milliseconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// A client for the gateway at this address, without a path, with the admin token of its settings.
///
/// # Errors
///
/// A token that cannot stand in a header, or a machine on which no connection can be prepared.
pub fn connect(address: &str, token: &str) -> Result<Client, Error> {
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, Credentials::new(token)?.authorization());
    let http = http_builder().default_headers(headers).timeout(PATIENCE).build();
    let http = http.map_err(|source| Error::settings_from("the HTTP client does not start", source))?;
    Ok(Client::new_with_client(address.trim_end_matches('/'), http))
}
