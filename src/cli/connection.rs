//! The options of every command that calls a service: its address and the key.

use clap::Args;

use super::failure::CommandFailure;
use super::retry_event::print_retry;
use crate::client::{Builder, Client, Error, Transport};

/// The address of a service, and the key for it.
#[derive(Debug, Args)]
pub(super) struct ConnectionArgs {
    /// The base URL of the service [env: `IMAGATE_BASE_URL`, or `OPENAI_BASE_URL` with `OPENAI_API_KEY`] [default: the
    /// gateway on this machine; with `OPENAI_API_KEY` alone, the provider]
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// The API key. Other users of this machine can see arguments, so prefer the environment [env: `IMAGATE_API_KEY`,
    /// or `OPENAI_API_KEY`, alone or with `OPENAI_BASE_URL`]
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    /// Allow sending the key over plain http to another machine. Use it only on a network that you trust.
    #[arg(long)]
    allow_http: bool,
    /// Send a header with each request, such as `OpenAI-Project: p-1`. Can be repeated.
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = parse_header)]
    headers: Vec<SentHeader>,
}

/// A header that is sent with each request. Its value may be a secret, so it is not printed.
#[derive(Clone)]
struct SentHeader {
    name: String,
    value: String,
}

/// Parses a header as it is written in HTTP. A text without a colon has no name: an error here would show the text, which
/// may contain a secret.
#[expect(clippy::unnecessary_wraps, reason = "the form of a parser")]
fn parse_header(text: &str) -> Result<SentHeader, String> {
    let (name, value) = text.split_once(':').unwrap_or(("", text));
    Ok(SentHeader { name: name.trim().to_owned(), value: value.trim().to_owned() })
}

impl std::fmt::Debug for SentHeader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SentHeader").field(&self.name).finish_non_exhaustive()
    }
}

// === impl ConnectionArgs ===

impl ConnectionArgs {
    pub(super) fn client(&self) -> Result<Client, CommandFailure> {
        self.checked_client(self.builder())
    }

    /// Returns a client whose requests this transport carries.
    pub(super) fn client_with(&self, transport: impl Transport) -> Result<Client, CommandFailure> {
        self.checked_client(self.builder().transport(transport))
    }

    fn checked_client(&self, builder: Builder) -> Result<Client, CommandFailure> {
        if self.headers.iter().any(|header| header.name.is_empty()) {
            return Err(CommandFailure::Usage("--header: expected 'NAME: VALUE'".to_owned()));
        }
        builder.build().map_err(|error| CommandFailure::Usage(error.to_string()))
    }

    /// Returns true if an address or a key was given as an option.
    pub(super) fn is_given(&self) -> bool {
        self.base_url.is_some() || self.api_key.is_some()
    }

    pub(super) fn build_client(&self) -> Result<Client, Error> {
        self.builder().build()
    }

    fn builder(&self) -> Builder {
        let builder = Client::builder().allow_http(self.allow_http).on_retry(print_retry);
        let mut builder =
            self.headers.iter().fold(builder, |builder, header| builder.header(&header.name, &header.value));
        if let Some(base_url) = &self.base_url {
            builder = builder.base_url(base_url);
        }
        if let Some(api_key) = &self.api_key {
            builder = builder.api_key(api_key);
        }
        builder
    }
}
