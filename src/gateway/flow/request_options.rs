//! The options that a request states outside its body: its headers, read once and checked.

use http::HeaderMap;

use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::config::FallbackPolicy;
use crate::tables::IDEMPOTENCY_KEY_MAX_CHARACTERS;

const IDEMPOTENCY_KEY_HEADER: &str = "idempotency-key";
const FALLBACK_HEADER: &str = "x-imagate-fallback";
/// The official clients count their own retries in this header, from 0.
const RETRY_COUNT_HEADER: &str = "x-stainless-retry-count";
/// The image tool of Codex repeats a call up to four times without saying so, but it names the turn of the call.
const AGENT_TURN_HEADER: &str = "x-codex-image-turn-id";
/// The most bytes in the name of a turn. A longer value is ignored.
const AGENT_TURN_MAX_BYTES: usize = 256;
/// The greatest length of an idempotency key.
#[expect(clippy::cast_possible_truncation, reason = "a few hundred")]
const IDEMPOTENCY_KEY_MAX: usize = IDEMPOTENCY_KEY_MAX_CHARACTERS as usize;

/// The options that a request states outside its body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestOptions {
    /// The id of the request.
    pub(crate) request_id: String,
    /// The idempotency key. Requests with the same key are one request.
    pub(super) idempotency_key: Option<String>,
    /// The number of earlier tries, if the client states it.
    pub(super) retry_count: Option<u32>,
    /// The turn of an agent, which may have sent this request before, in the same turn, without saying so.
    pub(super) agent_turn: Option<String>,
    /// The choice between a smaller image and an error; `None` leaves it to the group.
    pub(super) fallback: Option<FallbackPolicy>,
}

// === impl RequestOptions ===

impl RequestOptions {
    /// Reads the headers.
    ///
    /// # Errors
    ///
    /// Returns 400, with the name of the header, if one of our own headers has an invalid value.
    pub(crate) fn from_headers(request_id: &str, headers: &HeaderMap) -> Result<Self, Error> {
        Ok(Self {
            request_id: request_id.to_owned(),
            idempotency_key: read_idempotency_key(headers)?,
            // This is not one of our headers, so an unreadable value is ignored.
            retry_count: headers
                .get(RETRY_COUNT_HEADER)
                .and_then(|value| value.to_str().ok())
                .and_then(|text| text.parse().ok()),
            agent_turn: read_agent_turn(headers),
            fallback: read_fallback(headers)?,
        })
    }

    /// True if the client marks each request as a first try or a retry, or if it is of a kind that is known to send
    /// requests again.
    pub(super) fn marks_retries(&self) -> bool {
        self.agent_turn.is_some() || self.retry_count.is_some()
    }

    /// True if the client states that it has sent this request before, or if it is of a kind that may have done so.
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

/// Reads the turn of an agent. This is not one of our headers, so an unusable value is ignored.
fn read_agent_turn(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(AGENT_TURN_HEADER)?.to_str().ok()?;
    (1..=AGENT_TURN_MAX_BYTES).contains(&text.len()).then(|| text.to_owned())
}

/// Reads the fallback header, which takes the words of the configuration and two older ones of its own.
fn read_fallback(headers: &HeaderMap) -> Result<Option<FallbackPolicy>, Rejection> {
    match headers.get(FALLBACK_HEADER).map(http::HeaderValue::as_bytes) {
        None => Ok(None),
        Some(b"never" | b"off") => Ok(Some(FallbackPolicy::Never)),
        Some(b"unpaid" | b"ladder") => Ok(Some(FallbackPolicy::Unpaid)),
        Some(b"always") => Ok(Some(FallbackPolicy::Always)),
        Some(_) => {
            let message = "The header 'x-imagate-fallback' may be 'never', 'unpaid' or 'always'.";
            Err(Rejection::new(FALLBACK_HEADER, RejectionReason::InvalidValue, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn read(headers: &[(&'static str, &str)]) -> Result<RequestOptions, Error> {
        let pairs = headers.iter().map(|(name, value)| {
            let value = HeaderValue::from_bytes(value.as_bytes()).expect("a value");
            (HeaderName::from_static(name), value)
        });
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(name, value);
        }
        RequestOptions::from_headers("r1", &map)
    }

    #[test]
    fn without_headers_nothing_is_asked() {
        let plain = RequestOptions { request_id: "r1".to_owned(), ..RequestOptions::default() };
        assert_eq!(read(&[]), Ok(plain.clone()));
        assert_eq!(read(&[("x-stainless-retry-count", "many")]), Ok(plain));
    }

    #[test]
    fn each_header_is_read() {
        let ask =
            read(&[("idempotency-key", " k-1 "), ("x-stainless-retry-count", "2"), ("x-imagate-fallback", "off")])
                .expect("all of it is legal");
        let off = Some(FallbackPolicy::Never);
        assert_eq!((ask.idempotency_key.as_deref(), ask.retry_count, ask.fallback), (Some("k-1"), Some(2), off));
        assert!(ask.may_be_retry());
        let first = read(&[("x-stainless-retry-count", "0")]).expect("legal");
        assert!(first.marks_retries() && !first.may_be_retry());
        assert!(!read(&[]).expect("legal").marks_retries());
    }

    #[test]
    fn a_fallback_has_the_words_of_the_configuration_and_two_older_ones() {
        for (word, choice) in [
            ("never", FallbackPolicy::Never),
            ("off", FallbackPolicy::Never),
            ("unpaid", FallbackPolicy::Unpaid),
            ("ladder", FallbackPolicy::Unpaid),
            ("always", FallbackPolicy::Always),
        ] {
            assert_eq!(read(&[(FALLBACK_HEADER, word)]).expect("legal").fallback, Some(choice), "{word}");
        }
    }

    #[test]
    fn a_turn_of_an_agent_is_known_by_its_name() {
        let ask = read(&[(AGENT_TURN_HEADER, "turn-1")]).expect("legal");
        assert_eq!((ask.agent_turn.as_deref(), ask.may_be_retry()), (Some("turn-1"), true));
        for nothing in ["", &"t".repeat(AGENT_TURN_MAX_BYTES + 1)] {
            assert!(!read(&[(AGENT_TURN_HEADER, nothing)]).expect("legal").may_be_retry(), "{nothing}");
        }
    }

    #[test]
    fn a_header_of_ours_that_means_nothing_is_named() {
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
        read(&[("idempotency-key", &long[1..])]).expect("the longest");
        read(&[("idempotency-key", "a"), ("idempotency-key", "a")]).expect("twice the same");
    }
}
