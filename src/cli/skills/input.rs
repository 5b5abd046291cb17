//! Where a manifest is read from: a file, standard input, or an https address; never more of it than is looked at.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use reqwest::redirect::Policy;
use reqwest::{Client, Url};

use crate::cli::failure::Failure;
use crate::manifest::Source;
use crate::manifest::text::Limits;

/// How long a download may take.
const DOWNLOAD: Duration = Duration::from_secs(60);
/// How long it may take to be answered.
const CONNECT: Duration = Duration::from_secs(10);
/// How often a download may be sent elsewhere.
const REDIRECTS: usize = 5;

/// A manifest as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// `-`
    Stdin,
    File(PathBuf),
    Address(String),
}

impl FromStr for Input {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "-" => Self::Stdin,
            address if address.contains("://") => Self::Address(address.to_owned()),
            path => Self::File(PathBuf::from(path)),
        })
    }
}

// === impl Input ===

impl Input {
    /// Reads it. One byte more than the limit is enough to know that it is too long.
    pub(super) fn read(&self, allow_network: bool) -> Result<Source, Failure> {
        match self {
            Self::Stdin => Ok(Source::new("<stdin>", bounded(io::stdin().lock()).context("standard input")?)),
            Self::File(path) => {
                let name = path.display().to_string();
                let file = File::open(path).with_context(|| name.clone())?;
                let bytes = bounded(file).with_context(|| name.clone())?;
                Ok(Source::new(name, bytes))
            }
            Self::Address(address) => {
                let url = address_of(address, allow_network)?;
                let bytes = download_now(url, limit() - 1).with_context(|| address.clone())?;
                Ok(Source::new(address.clone(), bytes))
            }
        }
    }
}

/// Downloads a file that a manifest names, and no more of it than the limit.
pub(super) fn fetch(address: &str, limit: u64) -> anyhow::Result<Vec<u8>> {
    match address_of(address, true) {
        Ok(url) => download_now(url, limit),
        Err(Failure::Usage(message)) => bail!(message),
        Err(_) => bail!("this is no address"),
    }
}

fn download_now(url: Url, limit: u64) -> anyhow::Result<Vec<u8>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(download(url, limit))
}

fn limit() -> u64 {
    Limits::default().bytes as u64 + 1
}

fn bounded(reader: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(limit()).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn address_of(address: &str, allow_network: bool) -> Result<Url, Failure> {
    let usage = |message: &str| Failure::Usage(message.to_owned());
    let url = Url::parse(address).map_err(|error| Failure::Usage(format!("this is no address: {error}")))?;
    if url.scheme() != "https" {
        return Err(usage("files are downloaded by https only: elsewhere it can be changed on the way"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(usage("an address with credentials is not used: they would stand in every report"));
    }
    if !allow_network {
        return Err(usage("pass --allow-network to download a manifest"));
    }
    Ok(url)
}

async fn download(url: Url, limit: u64) -> anyhow::Result<Vec<u8>> {
    let client = Client::builder()
        .user_agent(concat!("imagate/", env!("CARGO_PKG_VERSION")))
        .https_only(true)
        .redirect(Policy::limited(REDIRECTS))
        .connect_timeout(CONNECT)
        .timeout(DOWNLOAD)
        .build()?;
    let mut response = client.get(url).send().await?;
    ensure!(response.status().is_success(), "the server answered {}", response.status());
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if (bytes.len() + chunk.len()) as u64 > limit {
            bail!("there is more than {limit} bytes of it");
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_downloaded_unless_it_is_asked_for() {
        let refused = |address, allowed| match address_of(address, allowed) {
            Err(Failure::Usage(message)) => message,
            other => panic!("{other:?}"),
        };
        assert!(refused("https://example.com/m.json", false).contains("--allow-network"));
        assert!(refused("http://example.com/m.json", true).contains("https"));
        assert!(refused("https://user:secret@example.com/m.json", true).contains("credentials"));
        assert!(address_of("https://example.com/m.json", true).is_ok());
    }

    #[test]
    fn what_is_typed_is_a_file_standard_input_or_an_address() {
        let input = |text: &str| Input::from_str(text).unwrap();
        assert_eq!(input("-"), Input::Stdin);
        assert_eq!(input("a/b.json"), Input::File(PathBuf::from("a/b.json")));
        assert_eq!(input("ftp://h/a"), Input::Address("ftp://h/a".to_owned()));
    }
}
