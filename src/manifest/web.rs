//! How the checks see what addresses answer: through whoever can ask them.

use super::package::Sha256Sum;

/// Asks addresses.
///
/// Whoever implements this follows redirects to https only, leaves hosts alone that only some can reach unless that is wanted,
/// limits how many questions one host gets at a time, and reads no more than each question wants.
pub trait Web: Sync {
    /// Asks each address once, and gives the answers in the order of the questions.
    fn ask(&self, questions: &[Question]) -> Vec<Result<Reply, WebError>>;
}

/// An address, and what is to be known of its answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Question {
    /// An absolute https address.
    pub address: String,
    /// How much of the answer is wanted.
    pub want: Want,
}

/// How much of an answer is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Want {
    /// Its status. `HEAD` is enough where the host knows it.
    Status,
    /// Its length and checksum; it is not kept.
    Sum {
        /// More bytes are not read.
        limit: u64,
    },
    /// Its bytes.
    Bytes {
        /// More bytes are not read.
        limit: u64,
    },
}

/// What an address answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status of HTTP, after redirects.
    pub status: u16,
    /// What came with a status of 200, as far as it was wanted.
    pub body: Body,
}

/// What is known of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Nothing; it was not read.
    Unread,
    /// Its length and checksum.
    Sum {
        /// In bytes.
        size: u64,
        /// Of all of it.
        sum: Sha256Sum,
    },
    /// All of it.
    Bytes(Vec<u8>),
}

/// Why an address has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WebError {
    /// It cannot be reached.
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    /// Nobody vouches for who answers.
    #[error("nobody vouches for who answers: {0}")]
    Tls(String),
    /// It leads to a place that is not asked.
    #[error("it leads to a place that is not asked: {0}")]
    Forbidden(String),
    /// There is more than is read.
    #[error("it answers with more than {limit} bytes")]
    TooLarge {
        /// How much would have been read.
        limit: u64,
    },
}
