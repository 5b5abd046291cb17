//! The reasons why the upstream gave no image, as the caller reads them.

use crate::words::word_enum;

word_enum! {
    /// The reason why the upstream gave no image, as far as a caller may know it.
    pub(crate) enum UpstreamFault {
        /// The content policy of the upstream refused the request: class R.
        Refused = "content_refused",
        /// The answer has no image, but may have been charged: class X.
        NoImage = "no_image_data",
        /// The upstream makes images as tasks that end later, which the gateway cannot receive: class X.
        AsyncTask = "async_upstream",
        /// The upstream sent the address of the image in its place, and the image was not fetched from there: class X.
        ImageByAddress = "image_by_address",
        /// The answer has a content coding that the gateway cannot decode: class X.
        UnknownCoding = "unknown_coding",
        /// A model has answered with text, such as a question: class R, or class N if it states that it cannot draw.
        TextInsteadOfImage = "text_instead_of_image",
        /// The upstream itself reports a failure, and that nothing was made: class F or N. A repeat does not pay twice.
        Failed = "upstream_failed",
        /// No account that was asked offers the model or a part of the call that the gateway writes: class N.
        NotOffered = "model_not_offered",
        /// The connection broke after an image may have been made: class X.
        Broken = "network",
        /// The time limit ended after an image may have been made: class X.
        Timeout = "timeout",
        /// The image has another size or format than requested, and the group does not accept that. It was paid for.
        Mismatch = "delivery_mismatch",
        /// An earlier attempt for the same request may have been charged, and its result is lost.
        Unknown = "outcome_unknown",
        /// The request itself was rejected before anything was made; a repeat would be rejected too.
        Rejected = "upstream_rejected",
        /// Every account has used up its quota, and can be used again only after somebody has paid its upstream for more:
        /// class N.
        Quota = "quota",
        /// The upstream accepts the credentials of no account: class N.
        Credentials = "credentials",
        /// The request certainly did nothing (class N): a repeat does not pay twice.
        Unreachable = "network",
    }
}
