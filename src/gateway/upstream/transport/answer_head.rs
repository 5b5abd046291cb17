//! Reads the head of an answer (RFC 9112, sections 4, 6 and 9.3). Pure.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING};
use http::{Method, StatusCode, Version};

use super::answer_framing::{AnswerFraming, ChunkedBody};

/// The most headers of an answer (our choice).
const MAX_HEADERS: usize = 100;

/// The head of an answer, with what it states about the body.
#[derive(Debug)]
pub(super) struct AnswerHead {
    pub(super) status: StatusCode,
    pub(super) version: Version,
    pub(super) headers: HeaderMap,
    pub(super) framing: AnswerFraming,
    /// True if the connection may carry another request after the body.
    pub(super) is_reusable: bool,
}

/// The received bytes are not the head of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum HeadError {
    #[error("the head has more than {MAX_HEADERS} headers, or too many bytes")]
    TooLarge,
    #[error("{0}")]
    Syntax(httparse::Error),
    #[error("{0}")]
    Invalid(&'static str),
}

// === impl AnswerHead ===

impl AnswerHead {
    /// Takes the next head out of the received bytes. Returns `None` if it is not complete. Interim answers (1xx) are
    /// skipped, but 101, which ends the connection as far as HTTP is concerned. A head has at most `max_bytes`.
    pub(super) fn take(received: &mut Bytes, method: &Method, max_bytes: usize) -> Result<Option<Self>, HeadError> {
        loop {
            let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
            let mut head = httparse::Response::new(&mut headers);
            let length = match head.parse(received) {
                Ok(httparse::Status::Complete(length)) => length,
                Ok(httparse::Status::Partial) if received.len() <= max_bytes => return Ok(None),
                Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                    return Err(HeadError::TooLarge);
                }
                Err(error) => return Err(HeadError::Syntax(error)),
            };
            if length > max_bytes {
                return Err(HeadError::TooLarge);
            }
            let status = head.code.and_then(|code| StatusCode::from_u16(code).ok());
            let status = status.ok_or(HeadError::Invalid("the status is invalid"))?;
            if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
                drop(received.split_to(length));
                continue;
            }
            let version = if head.version == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 };
            let mut fields = HeaderMap::with_capacity(head.headers.len());
            for header in head.headers.iter() {
                let invalid = HeadError::Invalid("a header is invalid");
                let name = HeaderName::from_bytes(header.name.as_bytes()).map_err(|_| invalid)?;
                fields.append(name, HeaderValue::from_bytes(header.value).map_err(|_| invalid)?);
            }
            drop(received.split_to(length));
            return Self::new(status, version, fields, method).map(Some);
        }
    }

    fn new(status: StatusCode, version: Version, headers: HeaderMap, method: &Method) -> Result<Self, HeadError> {
        let has_no_body = *method == Method::HEAD
            || matches!(status, StatusCode::SWITCHING_PROTOCOLS | StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let last_encoding = headers.get_all(TRANSFER_ENCODING).iter().next_back();
        let framing = if has_no_body {
            AnswerFraming::Length(0)
        } else if let Some(encoding) = last_encoding {
            if version == Version::HTTP_10 {
                return Err(HeadError::Invalid("an answer of HTTP/1.0 has a transfer coding"));
            }
            let chunked = || AnswerFraming::Chunked(ChunkedBody::default());
            if ends_with_chunked(encoding) { chunked() } else { AnswerFraming::UntilClose }
        } else {
            content_length(&headers)?.map_or(AnswerFraming::UntilClose, AnswerFraming::Length)
        };
        let is_reusable = keeps_connection(version, &headers)
            && status != StatusCode::SWITCHING_PROTOCOLS
            && framing != AnswerFraming::UntilClose
            // If the length is stated in two ways, the chunks count (RFC 9112, section 6.3), but not for another request.
            && !(last_encoding.is_some() && headers.contains_key(CONTENT_LENGTH));
        Ok(Self { status, version, headers, framing, is_reusable })
    }
}

fn ends_with_chunked(encodings: &HeaderValue) -> bool {
    let last = encodings.to_str().ok().and_then(|encodings| encodings.rsplit(',').next());
    last.is_some_and(|last| last.trim().eq_ignore_ascii_case("chunked"))
}

/// Returns the stated length of the body. It may be stated several times, but only as the same number.
fn content_length(headers: &HeaderMap) -> Result<Option<u64>, HeadError> {
    let invalid = HeadError::Invalid("the length of the body is invalid");
    let mut length = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        for number in value.to_str().map_err(|_| invalid)?.split(',') {
            let number = number.trim();
            // The parser of numbers accepts a sign.
            if !number.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(invalid);
            }
            let number: u64 = number.parse().map_err(|_| invalid)?;
            if length.replace(number).is_some_and(|before| before != number) {
                return Err(invalid);
            }
        }
    }
    Ok(length)
}

fn keeps_connection(version: Version, headers: &HeaderMap) -> bool {
    let has = |option: &[u8]| {
        let values = headers.get_all(CONNECTION).iter();
        values.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).any(|found| {
            // A value that is not ASCII can begin with the word.
            found.trim_ascii().get(..option.len()).is_some_and(|found| found.eq_ignore_ascii_case(option))
        })
    };
    !has(b"close") && (version == Version::HTTP_11 || has(b"keep-alive"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1024;

    fn take(text: &str) -> Result<Option<AnswerHead>, HeadError> {
        AnswerHead::take(&mut Bytes::copy_from_slice(text.as_bytes()), &Method::POST, MAX)
    }

    #[track_caller]
    fn framing(head: &str) -> (AnswerFraming, bool) {
        let head = take(&format!("{head}\r\n\r\n")).unwrap().unwrap();
        (head.framing, head.is_reusable)
    }

    #[test]
    fn the_head_states_the_framing_of_the_body_and_whether_the_connection_stays() {
        let chunked = || AnswerFraming::Chunked(ChunkedBody::default());
        for (head, expected) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 7", (AnswerFraming::Length(7), true)),
            ("HTTP/1.1 200 OK\r\ncontent-length: 7\r\nContent-Length: 7", (AnswerFraming::Length(7), true)),
            ("HTTP/1.1 200 OK\r\ncontent-length: 7, 7", (AnswerFraming::Length(7), true)),
            ("HTTP/1.1 200", (AnswerFraming::UntilClose, false)),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked", (chunked(), true)),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\ntransfer-encoding: chunked", (chunked(), true)),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked", (chunked(), true)),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked, gzip", (AnswerFraming::UntilClose, false)),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 7", (chunked(), false)),
            ("HTTP/1.1 200 OK\r\ncontent-length: 7\r\nconnection: x, Close", (AnswerFraming::Length(7), false)),
            ("HTTP/1.0 200 OK\r\ncontent-length: 7", (AnswerFraming::Length(7), false)),
            ("HTTP/1.0 200 OK\r\ncontent-length: 7\r\nconnection: Keep-Alive", (AnswerFraming::Length(7), true)),
            ("HTTP/1.1 204 No\r\ncontent-length: 7", (AnswerFraming::Length(0), true)),
            ("HTTP/1.1 304 No\r\ntransfer-encoding: chunked", (AnswerFraming::Length(0), true)),
            ("HTTP/1.1 101 Other", (AnswerFraming::Length(0), false)),
        ] {
            assert_eq!(framing(head), expected, "{head}");
        }
        let mut received = Bytes::from_static(b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n");
        let head = AnswerHead::take(&mut received, &Method::HEAD, MAX).unwrap().unwrap();
        assert_eq!(head.framing, AnswerFraming::Length(0));
    }

    #[test]
    fn the_bytes_after_the_head_stay() {
        let mut received =
            Bytes::from_static(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Made\r\na: b\r\na: c\r\n\r\nbody");
        let head = AnswerHead::take(&mut received, &Method::POST, MAX).unwrap().unwrap();
        assert_eq!(head.headers.get_all("a").iter().collect::<Vec<_>>(), ["b", "c"]);
        assert_eq!((head.status.as_u16(), &received[..]), (201, &b"body"[..]));
    }

    #[test]
    fn an_invalid_head_is_an_error_and_an_incomplete_one_is_not() {
        for head in ["", "HTTP/1.1 2", "HTTP/1.1 200 OK\r\na: b\r\n", "HTTP/1.1 100 Continue\r\n\r\nHTTP"] {
            assert!(take(head).unwrap().is_none(), "{head}");
        }
        for head in [
            "SSH-2.0\r\n\r\n",
            "HTTP/2.0 200 OK\r\n\r\n",
            "HTTP/1.1 abc OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\na b: c\r\n\r\n",
            "HTTP/1.1 200 OK\r\na: b\r\n c\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: +1\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: \r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n",
            "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        ] {
            assert!(matches!(take(head), Err(HeadError::Syntax(_) | HeadError::Invalid(_))), "{head}");
        }
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a:\r\n".repeat(MAX_HEADERS + 1));
        let long = format!("HTTP/1.1 200 OK\r\na: {}", "x".repeat(MAX));
        for head in [many, format!("{long}\r\n\r\n"), long] {
            assert_eq!(take(&head).unwrap_err(), HeadError::TooLarge, "{head:.40}");
        }
    }
}
