//! The source of a manifest: a file, standard input, or an https address. Reading stops at the size limit.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context as _, anyhow};
use reqwest::Url;

use super::web_client::{self, HostPolicy};
use crate::cli::failure::CommandFailure;
use crate::manifest::SourceFile;
use crate::manifest::text::JsonLimits;

/// A manifest as it is given on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ManifestInput {
    /// `-`
    Stdin,
    File(PathBuf),
    Address(String),
}

impl FromStr for ManifestInput {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "-" => Self::Stdin,
            address if address.contains("://") => Self::Address(address.to_owned()),
            path => Self::File(PathBuf::from(path)),
        })
    }
}

// === impl ManifestInput ===

impl ManifestInput {
    /// Reads the manifest. A file and standard input are read up to one byte above the size limit, which is enough to
    /// detect that they are too long; a download above the limit fails.
    pub(super) fn read(&self, allow_network: bool) -> Result<SourceFile, CommandFailure> {
        match self {
            Self::Stdin => Ok(SourceFile::new("<stdin>", read_bounded(io::stdin().lock()).context("standard input")?)),
            Self::File(path) => {
                let name = path.display().to_string();
                let file = File::open(path).with_context(|| name.clone())?;
                let bytes = read_bounded(file).with_context(|| name.clone())?;
                Ok(SourceFile::new(name, bytes))
            }
            Self::Address(address) => {
                let url = parse_address(address, allow_network)?;
                // The user has typed the address, so every host is allowed.
                let bytes =
                    web_client::download(&url, read_limit() - 1, HostPolicy::Any).with_context(|| address.clone())?;
                Ok(SourceFile::new(address.clone(), bytes))
            }
        }
    }
}

/// Downloads a file that a manifest names, up to the limit. An error names the address without its credentials, because
/// errors end up in logs.
pub(super) fn download_file(address: &str, limit: u64, hosts: HostPolicy) -> anyhow::Result<Vec<u8>> {
    let downloaded = match parse_address(address, true) {
        Ok(url) => web_client::download(&url, limit, hosts),
        Err(CommandFailure::Usage(message)) => Err(anyhow!(message)),
        Err(_) => Err(anyhow!("this is not a URL")),
    };
    match address_without_credentials(address) {
        Some(shown) => downloaded.context(shown),
        None => downloaded,
    }
}

/// Returns the address without user name and password, or `None` if it cannot be parsed: a password may be anywhere in
/// it then.
fn address_without_credentials(address: &str) -> Option<String> {
    let mut url = Url::parse(address).ok()?;
    url.set_username("").ok()?;
    url.set_password(None).ok()?;
    Some(url.into())
}

fn read_limit() -> u64 {
    JsonLimits::default().bytes as u64 + 1
}

fn read_bounded(reader: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(read_limit()).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn parse_address(address: &str, allow_network: bool) -> Result<Url, CommandFailure> {
    let usage = |message: &str| CommandFailure::Usage(message.to_owned());
    let url = Url::parse(address).map_err(|error| CommandFailure::Usage(format!("this is not a URL: {error}")))?;
    if url.scheme() != "https" {
        return Err(usage(
            "files are downloaded over https only, because plain http does not protect them from changes",
        ));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(usage("a URL with credentials is not used, because every report would show them"));
    }
    if !allow_network {
        return Err(usage("pass --allow-network to download a manifest"));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_download_needs_permission_https_and_no_credentials() {
        let refusal = |address, allowed| match parse_address(address, allowed) {
            Err(CommandFailure::Usage(message)) => message,
            result => panic!("{result:?}"),
        };
        assert!(refusal("https://example.com/m.json", false).contains("--allow-network"));
        assert!(refusal("http://example.com/m.json", true).contains("https"));
        assert!(refusal("https://user:secret@example.com/m.json", true).contains("credentials"));
        assert!(parse_address("https://example.com/m.json", true).is_ok());
    }

    #[test]
    fn an_error_of_a_download_shows_no_credentials() {
        let message = |address| format!("{:#}", download_file(address, 1, HostPolicy::Public).unwrap_err());
        let refused = message("https://user:secret@example.com/p.zip");
        assert!(refused.starts_with("https://example.com/p.zip: a URL with credentials"), "{refused}");
        assert!(message("http://secret@example.com/p.zip").starts_with("http://example.com/p.zip: "));
        // The password ends at the first slash, so this is no address.
        assert!(message("https://user:sec/ret@example.com/p.zip").starts_with("this is not a URL: "));
    }

    #[test]
    fn an_argument_is_a_file_standard_input_or_an_address() {
        let input = |text: &str| ManifestInput::from_str(text).unwrap();
        assert_eq!(input("-"), ManifestInput::Stdin);
        assert_eq!(input("a/b.json"), ManifestInput::File(PathBuf::from("a/b.json")));
        assert_eq!(input("ftp://h/a"), ManifestInput::Address("ftp://h/a".to_owned()));
    }
}
