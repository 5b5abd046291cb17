//! The interface through which the checks send requests to addresses.

use super::package::Sha256Sum;

/// A client that requests addresses.
///
/// An implementation follows redirects to https only, refuses hosts that are not publicly reachable unless they are
/// allowed, limits the number of concurrent requests to each host, and reads no more than each request asks for.
pub trait WebFetcher: Sync {
    /// Sends all requests, and returns their results in the same order.
    fn fetch(&self, requests: &[FetchRequest]) -> Vec<Result<FetchResponse, FetchError>>;
}

/// An address, and the part of the answer that the check needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FetchRequest {
    /// An absolute https address.
    pub address: String,
    /// The part of the answer that the check needs.
    pub scope: FetchScope,
}

/// The part of an answer that a check needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FetchScope {
    /// The status. A `HEAD` request is enough if the host supports it.
    Status,
    /// The status, and the length and checksum of the body, which is not kept.
    Checksum {
        /// The maximum number of bytes that are read.
        limit: u64,
    },
    /// The status, and the bytes of the body.
    Bytes {
        /// The maximum number of bytes that are read.
        limit: u64,
    },
}

/// The answer of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchResponse {
    /// The HTTP status of the last answer after redirects.
    pub status: u16,
    /// The needed part of the body; [`FetchBody::Unread`] if the status is not 200.
    pub body: FetchBody,
}

/// The part of a body that was needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchBody {
    /// The body was not read.
    Unread,
    /// The length and checksum of the body.
    Checksum {
        /// The length in bytes.
        size: u64,
        /// The checksum of the whole body.
        sum: Sha256Sum,
    },
    /// The whole body.
    Bytes(Vec<u8>),
}

/// The reason why a request has no usable answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The address cannot be reached, or the connection breaks off before the head of the answer.
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    /// The answer ends early, or too little of it arrives in time.
    #[error("the download stopped after {bytes} bytes: {reason}")]
    Interrupted {
        /// The number of bytes of the body that have arrived.
        bytes: u64,
        /// The error message of the connection.
        reason: String,
    },
    /// The TLS connection failed, for example because the certificate is not trusted.
    #[error("its TLS connection failed: {0}")]
    Tls(String),
    /// The address, or one that it redirects to, must not be requested: because of its host, its scheme or its
    /// credentials, or because there are too many redirects.
    #[error("it leads to an address that is not allowed: {0}")]
    Forbidden(String),
    /// The answer is longer than the limit.
    #[error("it answers with more than {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
}
