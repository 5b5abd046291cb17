//! The reasons for which the upstream gave no image, as the caller reads them.

use super::Reason;

/// Why the upstream gave no image, as far as a caller may know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Refused by the upstream's content policy: class R.
    Refused,
    /// An answer without an image that may have been paid: class X.
    NoImage,
    /// The connection broke when an image may already have been made: class X.
    Broken,
    /// No answer in time when an image may already have been made: class X.
    Timeout,
    /// Another size or format than was asked for, in a group that does not take it. It was paid for.
    Mismatch,
    /// An earlier try of the same request may have been paid for, and its result is lost.
    Unknown,
    /// Rejected before anything was made because of the request itself: a repeat would be rejected too.
    Rejected,
    /// No account may ask the upstream for anything until its operator has paid for more: class N.
    Quota,
    /// The upstream takes the credentials of no account: class N.
    Credentials,
    /// Nothing was done at all (class N), or the upstream says so itself (class F): a repeat costs nothing twice.
    Unreachable,
}

// === impl Fault ===

impl Fault {
    /// The `reason` beside `upstream_error`.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "content_refused",
            Self::NoImage => "no_image_data",
            Self::Broken | Self::Unreachable => "network",
            Self::Timeout => "timeout",
            Self::Rejected => Reason::UpstreamRejected.as_str(),
            Self::Quota => "quota",
            Self::Credentials => "credentials",
            Self::Mismatch => "delivery_mismatch",
            Self::Unknown => "outcome_unknown",
        }
    }
}
