//! The record of one job, as it is stored and as `imagate usage --json` prints it.
//!
//! The order and the spelling of the fields are binding: they are the order and the names of the JSON line.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{KeyId, RequestId, Timestamp, UserId};

/// Everything that is kept about one job.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Record {
    /// The id of the request everywhere: in the answer, in logs, here.
    pub(crate) request_id: RequestId,
    /// When the job began.
    pub(crate) created_at: Timestamp,
    /// The operation of the document, such as `create_image`.
    pub(crate) operation: String,
    /// The model asked for.
    pub(crate) model: Option<String>,
    /// Whether events were asked for.
    pub(crate) stream: bool,
    /// What became of it.
    pub(crate) state: State,
    /// The code that the caller read.
    pub(crate) error_code: Option<String>,
    /// The size asked for.
    pub(crate) size: Option<String>,
    /// The quality asked for.
    pub(crate) quality: Option<String>,
    /// The format asked for.
    pub(crate) output_format: Option<String>,
    /// How many images were asked for.
    pub(crate) n: Option<u32>,
    /// What really was in the answer, image by image.
    pub(crate) delivered: Vec<Delivered>,
    /// The tokens of the model that makes images, as the upstream counted them.
    pub(crate) usage: Option<Usage>,
    /// What it cost, where a price is known.
    pub(crate) cost_usd: Option<f64>,
    /// From the start of the job to its end.
    pub(crate) latency_ms: Option<u64>,
    /// From the start of the job to the first byte for the caller.
    pub(crate) first_byte_ms: Option<u64>,
    /// Every upstream call, in order.
    pub(crate) attempts: Vec<Attempt>,
    /// The account of the last attempt; of an intent that of the attempt that comes first.
    pub(crate) account: Option<String>,
    /// The name of the group.
    pub(crate) group: String,
    /// The id of the user.
    pub(crate) user: UserId,
    /// The id of the key.
    pub(crate) key: KeyId,
    /// The `safety_identifier` field of the request, or else its `user` field.
    pub(crate) end_user: Option<String>,
    /// What was made instead of what was asked for, where the caller or the group allowed it.
    pub(crate) fallback: Option<String>,
    /// Whether the gateway put an image tool into the request, as the group allows it for coding agents.
    pub(crate) injected_tool: bool,
    /// The upstream's id of the response. A later request may continue from it, at the same account.
    #[serde(skip)]
    pub(crate) response_id: Option<String>,
    /// The keyed hash of API key and request by which a client's own retry of this job is recognized.
    #[serde(skip)]
    pub(crate) fingerprint: Option<[u8; 32]>,
    /// The reason of the failure, in a word of the gateway.
    pub(crate) error_reason: Option<String>,
    /// The reason of the failure, in words of the upstream that are safe to show.
    pub(crate) error_detail: Option<String>,
    /// The number of the images asked for that a complete answer lacks, if any.
    pub(crate) missing: Option<u32>,
    /// The model that made the images, as the upstream names it, or else as the request does.
    pub(crate) image_model: Option<String>,
    /// The text model that ran the image tool, or made a response without one, as the upstream names it.
    pub(crate) host_model: Option<String>,
    /// The tokens of that text model, as the upstream counted them.
    pub(crate) host_usage: Option<Usage>,
    /// True if a smaller image was asked for although the larger one, whose call failed, may have been paid for as well.
    pub(crate) maybe_paid_twice: bool,
}

// === impl Record ===

impl Record {
    /// Longest free text of a request that is kept. A record stays under a kilobyte whatever a caller sends.
    pub(crate) const MAX_TEXT_BYTES: usize = 256;

    /// The text of a caller as a record has it.
    pub(crate) fn clip(mut text: String) -> String {
        text.truncate(text.floor_char_boundary(Self::MAX_TEXT_BYTES));
        text
    }

    /// The number of the images asked for that the answer lacks; `None` unless it is complete and lacks some.
    pub(crate) fn count_missing(&self) -> Option<u32> {
        let delivered = u32::try_from(self.delivered.len()).unwrap_or(u32::MAX);
        let missing = self.n.filter(|_| self.state == State::Succeeded)?.saturating_sub(delivered);
        (missing > 0).then_some(missing)
    }

    /// The tokens of both models together: those that went in, those that came out, and all of them.
    pub(crate) fn tokens(&self) -> [Option<u64>; 3] {
        let both = |count: fn(&Usage) -> Option<u64>| {
            let counts = [&self.usage, &self.host_usage].map(|usage| usage.as_ref().and_then(count));
            counts.into_iter().flatten().reduce(u64::saturating_add)
        };
        [both(|usage| usage.input_tokens), both(|usage| usage.output_tokens), both(|usage| usage.total_tokens)]
    }
}

/// What became of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// It is not over, or the process that ran it is gone and nobody has looked yet.
    Running,
    /// The caller got the image.
    Succeeded,
    /// No image was made, and it is known why.
    Failed,
    /// The upstream refused the content.
    Refused,
    /// The caller left.
    Cancelled,
    /// It ended in the middle: an image may have been made and paid.
    Interrupted,
}

impl State {
    const ALL: [Self; 6] =
        [Self::Running, Self::Succeeded, Self::Failed, Self::Refused, Self::Cancelled, Self::Interrupted];

    /// The spelling in rows and records.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
        }
    }
}

impl FromStr for State {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|state| state.as_str() == text);
        found.ok_or_else(|| format!("`{text}` is not the state of a record"))
    }
}

/// One image as it was in the answer; what could not be read from its first bytes is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Delivered {
    /// `<width>x<height>`.
    pub(crate) size: Option<String>,
    /// `png`, `jpeg` or `webp`.
    pub(crate) output_format: Option<String>,
    /// The quality with which it was made, as the upstream names it, or else as the request does.
    #[serde(default)]
    pub(crate) quality: Option<String>,
}

/// Tokens of one model as the upstream counted them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Usage {
    /// All tokens that went in.
    pub(crate) input_tokens: Option<u64>,
    /// What they were.
    pub(crate) input_tokens_details: Option<TokenDetails>,
    /// All tokens that came out.
    pub(crate) output_tokens: Option<u64>,
    /// What they were.
    pub(crate) output_tokens_details: Option<TokenDetails>,
    /// Both together.
    pub(crate) total_tokens: Option<u64>,
}

/// Tokens by what they stand for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct TokenDetails {
    /// Of images.
    pub(crate) image_tokens: Option<u64>,
    /// Of text.
    pub(crate) text_tokens: Option<u64>,
}

/// One upstream call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attempt {
    /// The name of the account.
    pub(crate) account: String,
    /// How it failed; `None` where it did not.
    pub(crate) class: Option<Class>,
    /// The status of the upstream, where there was one.
    pub(crate) status: Option<u16>,
    /// The duration of the call; `None` if its process did not live to see the end.
    pub(crate) latency_ms: Option<u64>,
    /// The upstream's own id of the call, if it sends one.
    #[serde(default)]
    pub(crate) upstream_request_id: Option<String>,
}

/// The class of a failed attempt, by whether an image can have been made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Class {
    /// Nothing was done.
    N,
    /// The upstream says that it failed.
    F,
    /// Ambiguous: an image may exist.
    X,
    /// Refused for its content.
    R,
    /// Output had begun.
    O,
}

/// Which records to list. What is not said does not matter.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecordFilter {
    /// Only those of this user: what somebody else's are does not exist.
    pub(crate) owner: Option<UserId>,
    /// Only those of this key, by its id or its public id.
    pub(crate) key: Option<String>,
    /// Only those of this user, by id or name.
    pub(crate) user: Option<String>,
    /// Only those of the group of this name.
    pub(crate) group: Option<String>,
    /// Only those of this end user, cut as in a record.
    pub(crate) end_user: Option<String>,
    /// Only those in this state; otherwise all that are finished.
    pub(crate) state: Option<State>,
    /// Only those that began then or later.
    pub(crate) since: Option<Timestamp>,
    /// Only those that began before then.
    pub(crate) until: Option<Timestamp>,
    /// Only those that began before this one. None where there is no such record.
    pub(crate) before: Option<RequestId>,
    /// At most so many, the newest ones.
    pub(crate) limit: Option<u32>,
}
