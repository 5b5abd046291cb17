//! Where a manifest is read from: a file, standard input, or an https address; never more of it than is looked at.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context as _, bail};
use reqwest::Url;

use super::web::{self, Hosts};
use crate::cli::failure::Failure;
use crate::manifest::Source;
use crate::manifest::text::Limits;

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
                // Whoever types an address knows where it leads.
                let bytes = web::download(&url, limit() - 1, Hosts::Any).with_context(|| address.clone())?;
                Ok(Source::new(address.clone(), bytes))
            }
        }
    }
}

/// Downloads a file that a manifest names, and no more of it than the limit.
pub(super) fn fetch(address: &str, limit: u64, hosts: Hosts) -> anyhow::Result<Vec<u8>> {
    match address_of(address, true) {
        Ok(url) => web::download(&url, limit, hosts),
        Err(Failure::Usage(message)) => bail!(message),
        Err(_) => bail!("this is no address"),
    }
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
