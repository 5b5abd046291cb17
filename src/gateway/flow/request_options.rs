//! The options that a request states in its headers, which are read and checked once.

use std::time::Duration;

use http::HeaderMap;
use http::header::HOST;
use http::uri::Authority;

use super::wait_preference::read_wait;
use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::admission::Admission;
use crate::gateway::config::FallbackPolicy;
use crate::gateway::keys::Caller;
use crate::tables::{
    AGENT_TURN_HEADER, IDEMPOTENCY_KEY_HEADER, IDEMPOTENCY_KEY_MAX_CHARACTERS, IMAGE_FALLBACK_HEADER,
    RETRY_COUNT_HEADER,
};

/// The longest name of a turn, in bytes (our choice). A longer value is ignored.
const AGENT_TURN_MAX_BYTES: usize = 256;
/// The longest idempotency key, in characters.
#[expect(clippy::cast_possible_truncation, reason = "the limit is a few hundred")]
const IDEMPOTENCY_KEY_MAX: usize = IDEMPOTENCY_KEY_MAX_CHARACTERS as usize;

/// The options that a request states in its headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestOptions {
    admission: Admission,
    /// The id of the request.
    pub(crate) request_id: String,
    /// The idempotency key. Requests of a caller with the same key get the same answer.
    pub(super) idempotency_key: Option<String>,
    /// The number of earlier attempts of the client, if the client states it.
    pub(super) retry_count: Option<u32>,
    /// The conversation turn of an agent, which may have sent this request before in the same turn without marking it.
    pub(super) agent_turn: Option<String>,
    /// The host and port under which the caller has reached the gateway, if the request names them.
    pub(super) host: Option<String>,
    /// The fallback policy of the request; `None` if that of the group applies.
    pub(super) fallback: Option<FallbackPolicy>,
    /// True if the caller gets the images only from the stored answer, so disk space is reserved before anything is spent.
    pub(super) needs_stored_answer: bool,
    /// The time for which the caller of a plain request waits, if it states one.
    pub(super) preferred_wait: Option<Duration>,
    /// The deployment that the path names, which stands for the model if the body names none.
    pub(super) deployment: Option<String>,
}

// === impl RequestOptions ===

impl RequestOptions {
    /// Reads the headers.
    ///
    /// # Errors
    ///
    /// Returns 400, with the name of the header, if a header that the gateway defines has an invalid value.
    pub(crate) fn from_headers(request_id: &str, headers: &HeaderMap, admission: &Admission) -> Result<Self, Error> {
        Ok(Self {
            admission: admission.clone(),
            request_id: request_id.to_owned(),
            idempotency_key: read_idempotency_key(headers)?,
            // The gateway does not define this header, so an unreadable value is ignored.
            retry_count: headers
                .get(RETRY_COUNT_HEADER)
                .and_then(|value| value.to_str().ok())
                .and_then(|text| text.parse().ok()),
            agent_turn: read_agent_turn(headers),
            host: read_host(headers),
            fallback: read_fallback(headers)?,
            needs_stored_answer: false,
            preferred_wait: read_wait(headers),
            deployment: None,
        })
    }

    /// Sets the deployment that the path names.
    pub(crate) fn with_deployment(self, deployment: Option<String>) -> Self {
        Self { deployment, ..self }
    }

    /// The options of a request that the gateway itself makes for a caller, such as a page or a tool. Its idempotency key
    /// is visible ASCII of at most the maximum length.
    pub(crate) fn with_idempotency_key(request_id: &str, idempotency_key: String, admission: &Admission) -> Self {
        Self {
            request_id: request_id.to_owned(),
            idempotency_key: Some(idempotency_key),
            ..Self::without_headers(admission)
        }
    }

    /// The options of a request without any, which is not recorded.
    pub(crate) fn without_headers(admission: &Admission) -> Self {
        Self {
            admission: admission.clone(),
            request_id: String::new(),
            idempotency_key: None,
            retry_count: None,
            agent_turn: None,
            host: None,
            fallback: None,
            deployment: None,
            needs_stored_answer: false,
            preferred_wait: None,
        }
    }

    /// The admission of the request.
    pub(crate) const fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Reserves disk space for the answer before anything is spent: its images are shown only from the stored answer.
    pub(crate) fn with_stored_answer(self) -> Self {
        Self { needs_stored_answer: true, ..self }
    }

    /// Sets the time until the caller of a plain request gets its answer or [`Error::InProgress`].
    pub(crate) fn with_preferred_wait(self, wait: Duration) -> Self {
        Self { preferred_wait: Some(wait), ..self }
    }

    /// Returns the fallback policy for images: that of the request, or else that of the group.
    pub(super) fn fallback_policy(&self, caller: &Caller) -> FallbackPolicy {
        self.fallback.unwrap_or_else(|| caller.group().fallback)
    }

    /// True if the client states for each request whether it is a retry, or is an agent that is known to repeat
    /// requests.
    pub(super) fn announces_retries(&self) -> bool {
        self.agent_turn.is_some() || self.retry_count.is_some()
    }

    /// True if the client states for each request how often it has sent it before.
    pub(super) const fn counts_retries(&self) -> bool {
        self.retry_count.is_some()
    }

    /// True if the client states that the request is a retry, or is an agent that may have sent the request before.
    pub(super) fn may_be_retry(&self) -> bool {
        self.agent_turn.is_some() || self.retry_count.is_some_and(|count| count > 0)
    }
}

fn read_idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Rejection> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY_HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let refuse = |reason, message: &str| Err(Rejection::new("Idempotency-Key", reason, message));
    if values.any(|other| other != value) {
        return refuse(
            RejectionReason::InvalidValue,
            "The header 'Idempotency-Key' is given twice, with different values.",
        );
    }
    let text = value.to_str().ok().map(str::trim).filter(|text| text.bytes().all(|byte| (0x20..0x7f).contains(&byte)));
    match text {
        None => refuse(
            RejectionReason::InvalidValue,
            "The header 'Idempotency-Key' may contain visible ASCII characters only.",
        ),
        Some("") => refuse(RejectionReason::StringBelowMin, "The header 'Idempotency-Key' is empty."),
        Some(text) if text.len() > IDEMPOTENCY_KEY_MAX => {
            let message = format!("The header 'Idempotency-Key' may have at most {IDEMPOTENCY_KEY_MAX} characters.");
            refuse(RejectionReason::StringAboveMax, &message)
        }
        Some(text) => Ok(Some(text.to_owned())),
    }
}

/// Reads the host of the request. An invalid one is ignored, because only links in the answer name it.
pub(crate) fn read_host(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(HOST)?.to_str().ok()?;
    let host = text.parse::<Authority>().ok().filter(|host| !host.as_str().contains('@'))?;
    Some(host.to_string())
}

/// Reads the turn of an agent, whose image tool repeats a call up to four times without marking the repeats. The gateway
/// does not define this header, so an unusable value is ignored.
fn read_agent_turn(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(AGENT_TURN_HEADER)?.to_str().ok()?;
    (1..=AGENT_TURN_MAX_BYTES).contains(&text.len()).then(|| text.to_owned())
}

/// Reads the fallback header, which accepts the words of the configuration.
fn read_fallback(headers: &HeaderMap) -> Result<Option<FallbackPolicy>, Rejection> {
    match headers.get(IMAGE_FALLBACK_HEADER).map(http::HeaderValue::as_bytes) {
        None => Ok(None),
        Some(b"never") => Ok(Some(FallbackPolicy::Never)),
        Some(b"unpaid") => Ok(Some(FallbackPolicy::Unpaid)),
        Some(b"always") => Ok(Some(FallbackPolicy::Always)),
        Some(_) => {
            let message = "The header 'x-imagate-fallback' may be 'never', 'unpaid' or 'always'.";
            Err(Rejection::new(IMAGE_FALLBACK_HEADER, RejectionReason::InvalidValue, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use http::{HeaderName, HeaderValue};

    use super::*;
    use crate::gateway::admission::RequestBudgets;

    static ADMISSION: LazyLock<Admission> = LazyLock::new(|| RequestBudgets::default_for_test().begin_for_test());

    fn read(headers: &[(&'static str, &str)]) -> Result<RequestOptions, Error> {
        let pairs = headers.iter().map(|(name, value)| {
            let value = HeaderValue::from_bytes(value.as_bytes()).expect("the value is valid");
            (HeaderName::from_static(name), value)
        });
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(name, value);
        }
        RequestOptions::from_headers("r1", &map, &ADMISSION)
    }

    #[test]
    fn without_headers_no_option_is_set() {
        let plain = RequestOptions { request_id: "r1".to_owned(), ..RequestOptions::without_headers(&ADMISSION) };
        assert_eq!(read(&[]), Ok(plain.clone()));
        assert_eq!(read(&[("x-stainless-retry-count", "many")]), Ok(plain));
    }

    #[test]
    fn each_header_is_read() {
        let options =
            read(&[("idempotency-key", " k-1 "), ("x-stainless-retry-count", "2"), ("x-imagate-fallback", "never")])
                .expect("the headers are valid");
        let off = Some(FallbackPolicy::Never);
        assert_eq!(
            (options.idempotency_key.as_deref(), options.retry_count, options.fallback),
            (Some("k-1"), Some(2), off)
        );
        assert!(options.may_be_retry());
        let first = read(&[("x-stainless-retry-count", "0")]).expect("the headers are valid");
        assert!(first.announces_retries() && !first.may_be_retry());
        assert!(!read(&[]).expect("the headers are valid").announces_retries());
    }

    #[test]
    fn the_fallback_header_accepts_configured_and_older_words() {
        for (value, choice) in
            [("never", FallbackPolicy::Never), ("unpaid", FallbackPolicy::Unpaid), ("always", FallbackPolicy::Always)]
        {
            assert_eq!(
                read(&[(IMAGE_FALLBACK_HEADER, value)]).expect("the headers are valid").fallback,
                Some(choice),
                "{value}"
            );
        }
    }

    #[test]
    fn an_agent_turn_is_read_if_it_is_short_enough() {
        let options = read(&[(AGENT_TURN_HEADER, "turn-1")]).expect("the headers are valid");
        assert_eq!((options.agent_turn.as_deref(), options.may_be_retry()), (Some("turn-1"), true));
        for ignored in ["", &"t".repeat(AGENT_TURN_MAX_BYTES + 1)] {
            assert!(!read(&[(AGENT_TURN_HEADER, ignored)]).expect("the headers are valid").may_be_retry(), "{ignored}");
        }
    }

    #[test]
    fn an_invalid_header_of_the_gateway_is_named() {
        let long = "k".repeat(IDEMPOTENCY_KEY_MAX + 1);
        for (headers, param, reason) in [
            (&[("idempotency-key", "")][..], "Idempotency-Key", RejectionReason::StringBelowMin),
            (&[("idempotency-key", long.as_str())], "Idempotency-Key", RejectionReason::StringAboveMax),
            (&[("idempotency-key", "schlüssel")], "Idempotency-Key", RejectionReason::InvalidValue),
            (&[("idempotency-key", "a"), ("idempotency-key", "b")], "Idempotency-Key", RejectionReason::InvalidValue),
            (&[("x-imagate-fallback", "yes")], "x-imagate-fallback", RejectionReason::InvalidValue),
        ] {
            let Err(Error::Invalid(rejection)) = read(headers) else { panic!("{headers:?} was accepted") };
            assert_eq!((rejection.param.as_deref(), rejection.reason), (Some(param), Some(reason)), "{headers:?}");
        }
        read(&[("idempotency-key", &long[1..])]).expect("the longest key is valid");
        read(&[("idempotency-key", "a"), ("idempotency-key", "a")]).expect("two equal values are valid");
    }
}
