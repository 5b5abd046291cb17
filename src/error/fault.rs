//! The reasons why the upstream gave no image, as the caller reads them.

use crate::wire::admin::types::RecordReason;
use crate::wire::types::ErrorReason;

/// The reason why the upstream gave no image, as far as a caller may know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamFault {
    /// The content policy of the upstream refused the request.
    ContentRefused,
    /// The answer has no image, but may have been charged.
    NoImage,
    /// The upstream makes images as tasks that end later, which the gateway cannot receive.
    AsyncTask,
    /// The upstream sent the address of the image in its place, and the image was not fetched from there.
    ImageByAddress,
    /// The answer has a content coding that the gateway cannot decode.
    UnknownCoding,
    /// A model has answered with text, such as a question.
    TextInsteadOfImage,
    /// The upstream itself reports a failure, and that nothing was made. A repeat does not pay twice.
    Failed,
    /// No account that was asked offers the model or a part of the call that the gateway writes.
    NotOffered,
    /// The connection broke after an image may have been made.
    Broken,
    /// The time limit ended after an image may have been made.
    Timeout,
    /// The image has another size or format than requested, and the group does not accept that. It was paid for.
    Mismatch,
    /// An earlier attempt for the same request may have been charged, and its result is lost.
    Unknown,
    /// The request itself was rejected before anything was made; a repeat would be rejected too.
    RequestRejected,
    /// Every account has used up its quota, and can be used again only after somebody has paid its upstream for more.
    Quota,
    /// The upstream accepts the credentials of no account.
    Credentials,
    /// The request certainly did nothing: a repeat does not pay twice.
    NothingDone,
}

// === impl UpstreamFault ===

impl UpstreamFault {
    /// Returns the `error.reason` of an error with the code `upstream_error`.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::NotOffered => ErrorReason::ModelNotOffered.as_str(),
            fault => fault.record_reason().as_str(),
        }
    }

    /// Returns the reason in records.
    pub(crate) const fn record_reason(self) -> RecordReason {
        match self {
            Self::ContentRefused => RecordReason::ContentRefused,
            Self::NoImage => RecordReason::NoImageData,
            Self::AsyncTask => RecordReason::AsyncUpstream,
            Self::ImageByAddress => RecordReason::ImageByAddress,
            Self::UnknownCoding => RecordReason::UnknownCoding,
            Self::TextInsteadOfImage => RecordReason::TextInsteadOfImage,
            Self::Failed => RecordReason::UpstreamFailed,
            Self::NotOffered => RecordReason::Missing,
            Self::Broken | Self::NothingDone => RecordReason::Network,
            Self::Timeout => RecordReason::Timeout,
            Self::RequestRejected => RecordReason::UpstreamRejected,
            Self::Quota => RecordReason::Quota,
            Self::Credentials => RecordReason::Credentials,
            Self::Mismatch => RecordReason::DeliveryMismatch,
            Self::Unknown => RecordReason::OutcomeUnknown,
        }
    }
}
