//! The options of every command that calls a service: its address and the key.

use clap::Args;

use super::failure::CommandFailure;
use crate::client::{Client, Error};

/// The address of a service, and the key for it.
#[derive(Debug, Args)]
pub(super) struct ConnectionArgs {
    /// The base URL of the service [env: `IMAGATE_BASE_URL`, or `OPENAI_BASE_URL` with `OPENAI_API_KEY`] [default: the
    /// gateway on this machine]
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// The API key. Other users of this machine can see arguments, so prefer the environment [env: `IMAGATE_API_KEY`,
    /// or `OPENAI_API_KEY` with `OPENAI_BASE_URL`]
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    /// Allow sending the key over plain http to another machine. Use it only on a network that you trust.
    #[arg(long)]
    allow_http: bool,
}

// === impl ConnectionArgs ===

impl ConnectionArgs {
    pub(super) fn client(&self) -> Result<Client, CommandFailure> {
        self.build_client().map_err(|error| CommandFailure::Usage(error.to_string()))
    }

    /// Returns true if an address or a key was given as an option.
    pub(super) fn is_given(&self) -> bool {
        self.base_url.is_some() || self.api_key.is_some()
    }

    pub(super) fn build_client(&self) -> Result<Client, Error> {
        let mut builder = Client::builder().allow_http(self.allow_http);
        if let Some(base_url) = &self.base_url {
            builder = builder.base_url(base_url);
        }
        if let Some(api_key) = &self.api_key {
            builder = builder.api_key(api_key);
        }
        builder.build()
    }
}
