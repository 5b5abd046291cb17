//! The form of an answer that the header `Accept` of a client allows (RFC 9110, section 12.5.1).

use http::HeaderMap;
use http::header::ACCEPT;

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// The forms that a client accepts; at least one of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AcceptedForm {
    /// One JSON value.
    pub(super) json: bool,
    /// Events, which can also tell the progress of a call.
    pub(super) events: bool,
}

// === impl AcceptedForm ===

impl AcceptedForm {
    /// Reads the headers of a request; `None` if they exclude every form. A client that states nothing accepts everything,
    /// but does not ask for events.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let ranges: Vec<&str> = headers
            .get_all(ACCEPT)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .map(str::trim)
            .filter(|range| !range.is_empty())
            .collect();
        let json = ranges.is_empty() || accepts(&ranges, &["*/*", "application/*", JSON]);
        // Only a client that names events reads a stream of them where one JSON value suffices.
        let events = accepts(&ranges, if json { &[EVENTS] } else { &["*/*", "text/*", EVENTS] });
        (json || events).then_some(Self { json, events })
    }
}

/// True if the most specific of the matching ranges, which come last in `matching`, does not have the weight 0.
fn accepts(ranges: &[&str], matching: &[&str]) -> bool {
    let weighted = ranges.iter().filter_map(|range| {
        let (essence, parameters) = range.split_once(';').unwrap_or((range, ""));
        let rank = matching.iter().position(|name| name.eq_ignore_ascii_case(essence.trim()))?;
        Some((rank, !parameters.split(';').any(is_zero_weight)))
    });
    weighted.max_by_key(|(rank, is_accepted)| (*rank, *is_accepted)).is_some_and(|(_, is_accepted)| is_accepted)
}

/// True for `q=0`, in any of its spellings.
fn is_zero_weight(parameter: &str) -> bool {
    let Some((name, weight)) = parameter.split_once('=') else { return false };
    name.trim().eq_ignore_ascii_case("q") && weight.trim().parse::<f32>().is_ok_and(|weight| weight == 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(values: &[&'static str]) -> Option<(bool, bool)> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(ACCEPT, http::HeaderValue::from_static(value));
        }
        AcceptedForm::from_headers(&headers).map(|form| (form.json, form.events))
    }

    #[test]
    fn json_is_sent_unless_it_is_excluded() {
        for values in [
            &[][..],
            &[""],
            &["*/*"],
            &["*/*;q=0.1"],
            &["application/*"],
            &["application/json"],
            &["Application/JSON; charset=utf-8"],
            &["text/html, */*;q=0.5"],
            &["application/*;q=0, application/json"],
            &["text/event-stream;q=0, application/json"],
        ] {
            assert_eq!(read(values), Some((true, false)), "{values:?}");
        }
        for values in [
            &["application/json, text/event-stream"][..],
            &["text/event-stream;q=0.5, application/json;q=0.9"],
            &["text/event-stream", "*/*"],
        ] {
            assert_eq!(read(values), Some((true, true)), "{values:?}");
        }
    }

    #[test]
    fn events_are_sent_if_json_is_excluded() {
        for values in [
            &["text/event-stream"][..],
            &["application/json;q=0, text/event-stream"],
            &["application/json; q=0.0, */*"],
        ] {
            assert_eq!(read(values), Some((false, true)), "{values:?}");
        }
        for values in [&["text/html"][..], &["application/json;q=0"], &["*/*;q=0"], &["image/png, application/xml"]] {
            assert_eq!(read(values), None, "{values:?}");
        }
    }
}
