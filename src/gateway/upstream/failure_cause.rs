//! The causes of a failed call, and the table of their consequences: one row for each cause. Pure.
//!
//! The sentence that a page shows for a failure follows from its reason (`pages/failure_explanation.rs`).

use std::time::Duration;

use crate::error::{Error, Rejection, RejectionReason, UpstreamFault};
use crate::gateway::accounts::AccountFeedback;
use crate::gateway::store::AttemptClass;
use crate::wire::admin::types::RecordReason;

/// The message for a response whose model the upstream does not know.
const UNKNOWN_MODEL: &str = "The upstream does not know this model or denies access to it.";
/// The status of an answer with a text in place of an image.
const STATUS_OF_TEXT: u16 = 200;

/// An attempt that gave no image.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AttemptFailure {
    /// The cause, as far as callers may know it.
    pub(crate) cause: FailureCause,
    /// The upstream's status, if it sent one.
    pub(crate) status: Option<u16>,
    /// The upstream's id of the call that failed.
    pub(crate) request_id: Option<String>,
    /// The upstream's message about the failure, as far as it is safe to show.
    pub(crate) upstream_message: Option<String>,
    /// The first words that a model has written in place of an image, as far as they are safe to show.
    pub(crate) model_text: Option<String>,
}

/// The reason why an attempt gave no image.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FailureCause {
    /// No connection could be made.
    NoConnection,
    /// The credentials of the account were refused.
    CredentialsRefused,
    /// The upstream rejects the request because of the account, such as its organization.
    AccountFault,
    /// The connection broke, or the answer could not be used.
    Broken,
    /// No answer came in time.
    Timeout,
    /// The answer contains no image.
    NoImage,
    /// The answer names a task in place of an image: the image is made later, and never received.
    AsyncTask,
    /// The answer has the address of an image in place of the image, and the image was not fetched from there.
    ImageByAddress,
    /// The answer has a content coding that cannot be decoded.
    UnknownCoding,
    /// The answer has the text of a model in place of an image, such as a question.
    TextInsteadOfImage,
    /// A model states in its text that it cannot draw here or now.
    DrawingUnavailable,
    /// The upstream states that it failed.
    Failed,
    /// The content policy refused the request.
    ContentRefused,
    /// The upstream rejects the request as invalid, so that every account would reject it.
    InvalidRequest {
        /// The parameter that the upstream names, if any.
        param: Option<String>,
        /// The message for the caller: that of the upstream, if it is safe to show.
        message: String,
    },
    /// The account's usage window is exhausted.
    Exhausted {
        /// The time until the window opens again, if stated.
        wait: Option<Duration>,
    },
    /// The account is not paid for: waiting does not help.
    AccountUnpaid,
    /// The upstream does not offer something that every caller of the image endpoints may request, or does not offer it
    /// to this account.
    NotOffered,
    /// The upstream does not know the model that the caller chose, or does not offer it to this account.
    UnknownModel,
    /// The upstream does not allow the account to do this, or does not allow this request.
    ForbiddenToAccount,
    /// A system in front of the upstream, such as a firewall, has refused the request with a page.
    BlockedByFirewall,
    /// The upstream rejects the request, but another account may accept it: the error is no clear fault of the caller.
    RejectedByAccount {
        /// The message for the caller: that of the upstream, if it is safe to show.
        message: String,
    },
    /// The account cannot read context of the request, because another account has made it.
    BoundElsewhere {
        /// The kind of the context.
        kind: BoundContext,
        /// The parameter that the upstream names, if any.
        param: Option<String>,
        /// The message for the caller: that of the upstream, if it is safe to show.
        message: String,
    },
    /// Too many requests for this account right now.
    Throttled {
        /// The wait that the upstream advises.
        wait: Option<Duration>,
    },
    /// The local disk has no space for the image. Nothing was sent.
    SpoolUnavailable,
    /// The local disk could not hold an image that had begun.
    SpoolFailed,
    /// The gateway is stopping and no longer waits for the answer.
    Cutoff,
}

/// A kind of context that belongs to one account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BoundContext {
    /// Encrypted content of an item, which only the account that made it can read.
    Ciphertext,
    /// An earlier response that the account stores.
    Stored,
}

/// The consequences of a failed call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FailureConsequences {
    /// May an image have been made already? Another attempt depends only on that.
    pub(crate) class: AttemptClass,
    /// The error for the caller, if this failure decides it.
    pub(crate) error: Error,
    /// The feedback about the account.
    pub(crate) finding: AccountFinding,
    /// The reason for which the call counts as failed by its account; `None` if the account is not the cause: the
    /// content was refused, the request is invalid, or the gateway gave the call up.
    pub(crate) reason: Option<RecordReason>,
}

/// The feedback about an account that one failure gives. A caller must not be able to put an account into a cooldown with
/// invalid requests, so a failure that a request can cause is only suspected, and a refusal gives neutral feedback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccountFinding {
    /// The feedback applies whatever the request was.
    Certain(AccountFeedback),
    /// The feedback applies only if another account accepts the same request; otherwise the request may be the cause.
    Suspected(AccountFeedback),
}

// === impl FailureCause ===

impl FailureCause {
    /// Returns the row of the table for this cause. `status` is that of the upstream.
    fn consequences(&self, status: Option<u16>) -> FailureConsequences {
        use AccountFeedback as Feedback;
        use AccountFinding::{Certain, Suspected};
        use AttemptClass::{MaybePaid, NothingDone, Refused, ReportedFailed};
        use Error::Upstream;
        use RecordReason as Reason;
        use UpstreamFault as Fault;

        let (failed, neutral) = (Certain(Feedback::Failed), Certain(Feedback::Neutral));
        let unauthorized = Feedback::Unauthorized { status: status.unwrap_or(401) };
        let forbidden = Suspected(Feedback::Unauthorized { status: 403 });
        let unavailable = |known| Feedback::ModelUnavailable { status: status.unwrap_or(known) };
        let undrawn = Suspected(Feedback::ModelUnavailable { status: STATUS_OF_TEXT });
        let exhausted = |wait| Certain(Feedback::Exhausted { wait });
        let throttled = |wait| Certain(Feedback::Throttled { wait });
        let cut_off = if status.is_some() { Reason::Broken } else { Reason::Network };
        let (rejected, idle) = (Upstream(Fault::RequestRejected), Upstream(Fault::NothingDone));
        let text = Upstream(Fault::TextInsteadOfImage);
        let row = |class, error, finding, reason| FailureConsequences { class, error, finding, reason };
        match self {
            Self::NoConnection => row(NothingDone, idle, failed, Some(Reason::Network)),
            Self::CredentialsRefused => row(NothingDone, idle, Certain(unauthorized), Some(Reason::Credentials)),
            Self::AccountFault => row(NothingDone, idle, neutral, Some(Reason::Credentials)),
            Self::AccountUnpaid => row(NothingDone, idle, Certain(unavailable(402)), Some(Reason::Quota)),
            Self::Exhausted { wait } => row(NothingDone, idle, exhausted(*wait), Some(Reason::Quota)),
            Self::Throttled { wait } => row(NothingDone, idle, throttled(*wait), Some(Reason::Throttled)),
            Self::NotOffered => {
                row(NothingDone, Upstream(Fault::NotOffered), Suspected(unavailable(404)), Some(Reason::Missing))
            }
            Self::UnknownModel => row(NothingDone, unknown_model_error(), Suspected(unavailable(404)), None),
            Self::ForbiddenToAccount => row(NothingDone, rejected, forbidden, Some(Reason::Credentials)),
            Self::BlockedByFirewall => row(NothingDone, rejected, neutral, Some(Reason::UpstreamRejected)),
            Self::RejectedByAccount { message } => {
                row(NothingDone, rejection_error(None, message), neutral, Some(Reason::UpstreamRejected))
            }
            Self::BoundElsewhere { kind, param, message } => {
                row(NothingDone, bound_context_error(*kind, param.as_ref(), message), neutral, None)
            }
            Self::DrawingUnavailable => row(NothingDone, text, undrawn, Some(Reason::TextInsteadOfImage)),
            Self::SpoolUnavailable => row(NothingDone, Error::Unavailable, neutral, None),
            Self::Failed => {
                row(ReportedFailed, Upstream(Fault::Failed), Suspected(Feedback::Failed), Some(Reason::UpstreamFailed))
            }
            Self::ContentRefused => row(Refused, Upstream(Fault::ContentRefused), neutral, None),
            Self::InvalidRequest { param, message } => {
                row(Refused, rejection_error(param.as_ref(), message), neutral, None)
            }
            Self::TextInsteadOfImage => row(Refused, text, neutral, None),
            Self::NoImage => row(MaybePaid, Upstream(Fault::NoImage), failed, Some(Reason::NoImageData)),
            Self::AsyncTask => row(MaybePaid, Upstream(Fault::AsyncTask), failed, Some(Reason::AsyncUpstream)),
            Self::ImageByAddress => {
                row(MaybePaid, Upstream(Fault::ImageByAddress), failed, Some(Reason::ImageByAddress))
            }
            Self::UnknownCoding => row(MaybePaid, Upstream(Fault::UnknownCoding), failed, Some(Reason::UnknownCoding)),
            // No other account is asked, so only other requests can show the cause.
            Self::Timeout => {
                row(MaybePaid, Upstream(Fault::Timeout), Certain(Feedback::Doubtful), Some(Reason::Timeout))
            }
            Self::Broken => row(MaybePaid, Upstream(Fault::Broken), failed, Some(cut_off)),
            Self::SpoolFailed => row(MaybePaid, Upstream(Fault::Broken), neutral, None),
            Self::Cutoff => row(MaybePaid, Upstream(Fault::Unknown), neutral, None),
        }
    }
}

fn unknown_model_error() -> Error {
    Rejection::new("model", RejectionReason::UpstreamRejected, UNKNOWN_MODEL).into()
}

fn rejection_error(param: Option<&String>, message: &str) -> Error {
    let reason = Some(RejectionReason::UpstreamRejected);
    Error::Invalid(Rejection { param: param.cloned(), reason, message: message.to_owned() })
}

fn bound_context_error(kind: BoundContext, param: Option<&String>, message: &str) -> Error {
    match kind {
        BoundContext::Ciphertext => {
            Error::UnreadableContext(Rejection { param: param.cloned(), reason: None, message: message.to_owned() })
        }
        BoundContext::Stored => rejection_error(param, message),
    }
}

// === impl AttemptFailure ===

impl AttemptFailure {
    /// Returns a failure without a status.
    pub(crate) const fn new(cause: FailureCause) -> Self {
        Self { cause, status: None, request_id: None, upstream_message: None, model_text: None }
    }

    /// Returns the same failure with a status.
    pub(crate) fn with_status(self, status: u16) -> Self {
        Self { status: Some(status), ..self }
    }

    /// Returns the consequences. The error has the words of a model if they are all that there is.
    pub(crate) fn consequences(&self) -> FailureConsequences {
        let consequences = self.cause.consequences(self.status);
        match (&consequences.error, &self.model_text) {
            (Error::Upstream(fault), Some(words)) => {
                FailureConsequences { error: Error::ModelText(*fault, words.clone()), ..consequences }
            }
            _ => consequences,
        }
    }

    /// Returns the class, which decides whether another account may be asked.
    pub(crate) fn class(&self) -> AttemptClass {
        self.cause.consequences(self.status).class
    }
    /// Returns a failure of this class.
    #[cfg(test)]
    pub(crate) fn of_class(class: AttemptClass) -> Self {
        let failure = Self::new(match class {
            AttemptClass::NothingDone => FailureCause::NoConnection,
            AttemptClass::ReportedFailed => FailureCause::Failed,
            AttemptClass::Refused => FailureCause::ContentRefused,
            AttemptClass::MaybePaid | AttemptClass::OutputBegun => FailureCause::Broken,
        });
        assert_eq!(failure.class(), class);
        failure
    }
}
