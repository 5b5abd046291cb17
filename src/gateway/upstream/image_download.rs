//! Fetches an input image that a caller names by a web address.
//!
//! The address comes from a caller, so a request to it must not reach what only this machine can reach. Rules: `https`
//! only; a host that the settings name, on its port; no user and no password; the address to which a name resolves is
//! checked where the connection is made, so that a second answer of the name service changes nothing; each redirect is
//! checked like the first address; bytes and time are limited; and the caller does not learn why a host cannot be
//! reached.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, LOCATION};
use http::{HeaderMap, HeaderValue, Method, Response};
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout_at};
use url::{Host, Url};

use super::service_calls::{ServiceCall, ServiceCallError};
use super::transport::{ResponseBody, Transport, TransportError, TransportSettings};
use crate::gateway::config::{AddressPolicy, RemoteImageConfig};
use crate::gateway::spool::{SpoolWriter, SpooledFile};
use crate::tables::MAX_UPLOAD_IMAGE_BYTES;

/// The most redirects that are followed (our choice).
const MAX_REDIRECTS: usize = 3;
/// Bytes are collected up to this size for one write (our choice, as for uploads).
const WRITE_THRESHOLD: usize = 192 * 1024;
const IMAGE_TYPES: HeaderValue = HeaderValue::from_static("image/*");

/// Fetches images from the hosts of the settings.
#[derive(Debug)]
pub(crate) struct ImageDownloader {
    config: RemoteImageConfig,
    transport: Transport,
}

/// The reason why an image was not fetched, for its caller.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DownloadError {
    /// The address has the wrong form.
    #[error("the address of an image must begin with 'https://', and have no user and no password.")]
    InvalidAddress,
    /// The settings do not name the host.
    #[error("this service does not fetch images from the host '{0}'.")]
    HostNotAllowed(String),
    /// The host has no address that may be connected to, or does not answer.
    #[error("the host '{0}' could not be reached.")]
    Unreachable(String),
    /// The time limit has passed.
    #[error("the host '{0}' did not send the image in time.")]
    Timeout(String),
    /// The host answered with another status than 200.
    #[error("the host '{host}' answered with the status {status}.")]
    Status {
        /// The host.
        host: String,
        /// The status.
        status: u16,
    },
    /// The answer is a redirect without an address, or one too many.
    #[error("the host '{0}' redirects too often.")]
    Redirects(String),
    /// The answer is too large, or broke off.
    #[error("the host '{host}' sent no image: {reason}.")]
    UnusableBody {
        /// The host.
        host: String,
        /// The reason.
        reason: &'static str,
    },
    /// The disk failed, or a budget does not allow the image.
    #[error("the spool cannot be written to")]
    Spool(#[from] io::Error),
}

/// An address that the settings allow.
struct AllowedAddress {
    url: Url,
    host: String,
}

// === impl ImageDownloader ===

impl ImageDownloader {
    /// Prepares the downloader, if the settings have one; opens no connection.
    ///
    /// # Errors
    ///
    /// Returns an error if the machine's certificates cannot be read.
    pub(crate) fn for_settings(config: Option<&RemoteImageConfig>) -> Result<Option<Arc<Self>>, TransportError> {
        config.map(|config| Self::new(config).map(Arc::new)).transpose()
    }

    pub(super) fn new(config: &RemoteImageConfig) -> Result<Self, TransportError> {
        let settings = TransportSettings {
            addresses: AddressPolicy::PublicAnd(Arc::clone(&config.networks)),
            max_idle_per_origin: 0,
            ..TransportSettings::default()
        };
        let transport = Transport::new(settings)?;
        transport.prepare_tls()?;
        Ok(Self { config: config.clone(), transport })
    }

    /// The time at which the images of a request that begins now must be there.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.config.timeout
    }

    /// Fetches an image into `writer`, until the [`deadline`](Self::deadline) of its request.
    ///
    /// # Errors
    ///
    /// Returns an error if the address is not allowed, or if it does not lead to an answer of fewer than
    /// [`MAX_UPLOAD_IMAGE_BYTES`] bytes in time. The bytes are not checked to be an image.
    pub(crate) async fn download(
        &self,
        address: &str,
        writer: SpoolWriter,
        until: Instant,
    ) -> Result<Arc<SpooledFile>, DownloadError> {
        let (response, host) = self.open(address, until).await?;
        read_image(response, &host, writer, until).await
    }

    /// Returns the answer for an address, with the host that gives it, when its head has arrived.
    pub(super) async fn open(
        &self,
        address: &str,
        until: Instant,
    ) -> Result<(Response<ResponseBody>, String), DownloadError> {
        let mut address = self.check(Url::parse(address).map_err(|_| DownloadError::InvalidAddress)?)?;
        for _ in 0..=MAX_REDIRECTS {
            let response = self.send(&address, until).await?;
            match response.status().as_u16() {
                200 => return Ok((response, address.host)),
                301 | 302 | 303 | 307 | 308 => address = self.check(redirect_target(&address, &response)?)?,
                status => return Err(DownloadError::Status { host: address.host, status }),
            }
        }
        Err(DownloadError::Redirects(address.host))
    }

    /// Checks an address against the settings. The URL parser has put the host into the form in which it is connected
    /// to: a decimal or octal number is an IPv4 address by now.
    fn check(&self, mut url: Url) -> Result<AllowedAddress, DownloadError> {
        url.set_fragment(None);
        let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
            return Err(DownloadError::InvalidAddress);
        };
        if url.scheme() != "https" || !url.username().is_empty() || url.password().is_some() {
            return Err(DownloadError::InvalidAddress);
        }
        let is_name = matches!(host, Host::Domain(_));
        let host = host.to_string();
        if !self.config.hosts.iter().any(|pattern| pattern.matches(&host, is_name, port)) {
            let authority = url.port().map_or_else(|| host.clone(), |port| format!("{host}:{port}"));
            return Err(DownloadError::HostNotAllowed(authority));
        }
        Ok(AllowedAddress { url, host })
    }

    async fn send(&self, address: &AllowedAddress, until: Instant) -> Result<Response<ResponseBody>, DownloadError> {
        let call = ServiceCall {
            log_name: "remote image",
            method: Method::GET,
            headers: HeaderMap::from_iter([(ACCEPT, IMAGE_TYPES)]),
            body: String::new(),
            max_bytes: 0,
        };
        call.send(&self.transport, address.url.as_str(), until).await.map_err(|error| match error {
            ServiceCallError::Timeout => DownloadError::Timeout(address.host.clone()),
            _ => DownloadError::Unreachable(address.host.clone()),
        })
    }
}

fn redirect_target(address: &AllowedAddress, response: &Response<ResponseBody>) -> Result<Url, DownloadError> {
    let target = response.headers().get(LOCATION).and_then(|location| location.to_str().ok());
    let target = target.and_then(|location| address.url.join(location).ok());
    target.ok_or_else(|| DownloadError::Redirects(address.host.clone()))
}

/// Reads the body of an answer into the file.
async fn read_image(
    response: Response<ResponseBody>,
    host: &str,
    mut writer: SpoolWriter,
    until: Instant,
) -> Result<Arc<SpooledFile>, DownloadError> {
    let unusable = |reason| DownloadError::UnusableBody { host: host.to_owned(), reason };
    let mut body = response.into_body();
    let (mut chunks, mut chunk_bytes) = (Vec::<Bytes>::new(), 0);
    loop {
        let frame = timeout_at(until, body.frame()).await.map_err(|_| DownloadError::Timeout(host.to_owned()))?;
        let Some(frame) = frame else { break };
        let Ok(data) = frame.map_err(|_| unusable("the answer broke off"))?.into_data() else { continue };
        chunk_bytes += data.len();
        if writer.len() + chunk_bytes as u64 >= MAX_UPLOAD_IMAGE_BYTES {
            return Err(unusable("the file is too large"));
        }
        chunks.push(data);
        if chunk_bytes >= WRITE_THRESHOLD {
            writer = writer.append_all(std::mem::take(&mut chunks)).await?;
            chunk_bytes = 0;
        }
    }
    Ok(writer.append_all(chunks).await?.finish())
}

#[cfg(test)]
mod tests;
