//! Page requests and page responses: HTTP messages without the HTTP server.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use cookie::Cookie;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, LOCATION, SET_COOKIE};
use http::{HeaderMap, Method, StatusCode};
use url::form_urlencoded;

use crate::gateway::admission::Admission;
#[cfg(test)]
use crate::gateway::admission::RequestBudgets;
use crate::gateway::flow::{GatewayAnswerBody, ImageFileBody};
use crate::gateway::spool::EditForm;

/// One request of a browser.
#[derive(Debug)]
pub(crate) struct PageRequest {
    /// The method.
    pub(crate) method: Method,
    /// The path, still percent-encoded.
    pub(crate) path: String,
    /// The fields of the query.
    pub(crate) query: UrlEncodedFields,
    /// The fields of the form, or the reason why it was not read. Empty if the method is not POST.
    pub(crate) form: Result<UrlEncodedFields, FormReadError>,
    /// The values of all `Cookie` headers, joined.
    pub(crate) cookies: String,
    /// The host of the request; `None` if the request names none, or several different ones.
    pub(crate) host: Option<String>,
    /// The header `Origin`; empty if it occurs more than once.
    pub(crate) origin: Option<String>,
    /// The header `Sec-Fetch-Site`; empty if it occurs more than once.
    pub(crate) fetch_site: Option<String>,
    /// The admission of the request, with the address of the client.
    pub(crate) admission: Admission,
    /// The header `User-Agent`, truncated.
    pub(crate) user_agent: String,
    /// The header `Accept-Language`.
    pub(crate) accept_language: String,
    /// The header `If-None-Match`.
    pub(crate) if_none_match: String,
    /// True if the script of a page asks for events instead of a page.
    pub(crate) wants_events: bool,
    /// The id of the request.
    pub(crate) request_id: String,
    /// The fields and images of the form that makes images, for the handler that takes them.
    pub(crate) image_form: Mutex<Option<EditForm>>,
}

/// The reason why a form was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FormReadError {
    /// The form is larger than the limit for forms.
    TooLarge,
    /// The body is not a form, or could not be read completely.
    NotAForm,
    /// There is no space for the form now.
    Unavailable,
}

/// The fields of a query or a form, in the order in which they were sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct UrlEncodedFields(Vec<(String, String)>);

/// The answer to a browser.
pub(crate) struct PageResponse {
    /// The status.
    pub(crate) status: StatusCode,
    /// All headers of the answer.
    pub(crate) headers: HeaderMap,
    /// The body.
    pub(crate) body: PageBody,
}

/// The body of the answer to a browser.
pub(crate) enum PageBody {
    /// A page, a file or an error.
    Whole(Bytes),
    /// The events of a request for images.
    Events(GatewayAnswerBody),
    /// The file of an image.
    Image(Box<ImageFileBody>),
}

// === impl PageRequest ===

impl PageRequest {
    /// The value of a cookie; `None` if the cookie is absent, or if it occurs more than once, because an attacker may
    /// have set one of them.
    pub(super) fn cookie(&self, name: &str) -> Option<String> {
        let mut cookies = Cookie::split_parse(self.cookies.as_str()).flatten().filter(|cookie| cookie.name() == name);
        let first = cookies.next()?;
        cookies.next().is_none().then(|| first.value().to_owned())
    }

    /// Takes the fields and images of the form that makes images; `None` if there are none, or they were taken before.
    pub(super) fn take_image_form(&self) -> Option<EditForm> {
        self.image_form.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// True if the method is POST, which submits a form.
    pub(super) fn is_post(&self) -> bool {
        self.method == Method::POST
    }

    /// A field of the form without surrounding white space; empty if the field was not sent.
    pub(super) fn form_field(&self, name: &str) -> &str {
        self.form.as_ref().map_or("", |form| form.get(name)).trim()
    }

    /// A field of the form with its white space, for example a password; empty if the field was not sent.
    pub(super) fn raw_form_field(&self, name: &str) -> &str {
        self.form.as_ref().map_or("", |form| form.get(name))
    }

    /// A value of the query without surrounding white space; `None` if it is absent or nothing remains.
    pub(super) fn query_param(&self, name: &str) -> Option<&str> {
        Some(self.query.get(name).trim()).filter(|value| !value.is_empty())
    }

    /// A value of the query with its white space, for names that may begin or end with spaces; `None` if it is absent
    /// or has only white space.
    pub(super) fn raw_query_param(&self, name: &str) -> Option<String> {
        self.query_param(name).map(|_| self.query.get(name).to_owned())
    }
}

/// Percent-encodes a name as a segment of a path.
pub(super) fn encode_path_segment(name: &str) -> String {
    percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
impl PageRequest {
    /// A request for the page with this query.
    pub(super) fn with_query(query: &str) -> Self {
        Self { method: Method::GET, query: UrlEncodedFields::parse(query.as_bytes()), ..Self::with_form(b"") }
    }

    /// A request that submits this form.
    pub(super) fn with_form(encoded: &[u8]) -> Self {
        Self {
            method: Method::POST,
            path: "/".to_owned(),
            query: UrlEncodedFields::default(),
            form: Ok(UrlEncodedFields::parse(encoded)),
            cookies: String::new(),
            host: None,
            origin: None,
            fetch_site: None,
            admission: RequestBudgets::default_for_test().begin_for_test(),
            user_agent: String::new(),
            accept_language: String::new(),
            if_none_match: String::new(),
            wants_events: false,
            request_id: String::new(),
            image_form: Mutex::default(),
        }
    }
}

// === impl UrlEncodedFields ===

impl UrlEncodedFields {
    /// The fields of a form that came in another encoding.
    pub(crate) fn from_pairs(fields: impl Iterator<Item = (String, String)>) -> Self {
        Self(fields.collect())
    }

    /// Parses the query of a URL, or the body of a form. Null characters, which PostgreSQL refuses in texts, are replaced
    /// like bytes that are not UTF-8.
    pub(crate) fn parse(encoded: &[u8]) -> Self {
        let fields = form_urlencoded::parse(encoded).into_owned();
        Self(fields.map(|(name, value)| (name, value.replace('\0', "\u{fffd}"))).collect())
    }

    /// The first value with this name; empty if there is none.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    /// All values with this name.
    pub(super) fn get_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// All fields, in the order in which they were sent.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The fields that are not empty, without those with these names, as a query string.
    pub(super) fn to_query_without(&self, names: &[&str]) -> String {
        let fields = self.0.iter().filter(|(key, value)| !names.contains(&key.as_str()) && !value.is_empty());
        form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
    }

    /// The fields that are not empty, as a query string in which the field `name` has this value.
    pub(super) fn to_query_with(&self, name: &str, value: &str) -> String {
        let fields = self.0.iter().filter(|(key, value)| key != name && !value.is_empty());
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(fields).append_pair(name, value).finish()
    }
}

// === impl PageResponse ===

impl PageResponse {
    /// An HTML page.
    pub(super) fn html(status: StatusCode, html: String) -> Self {
        Self::new(status, "text/html; charset=utf-8", html.into())
    }

    /// An answer with this content type.
    pub(super) fn new(status: StatusCode, content_type: &'static str, body: Bytes) -> Self {
        Self::with_body(status, content_type, PageBody::Whole(body))
    }

    /// An answer with this content type and body.
    pub(super) fn with_body(status: StatusCode, content_type: &'static str, body: PageBody) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        Self { status, headers, body }
    }

    /// A redirect that the browser follows with GET. `path` is a path of the gateway, which begins with exactly one
    /// slash.
    pub(super) fn redirect(path: &str) -> Self {
        let mut headers = HeaderMap::new();
        headers.extend(HeaderValue::try_from(path).map(|path| (LOCATION, path)));
        Self { status: StatusCode::SEE_OTHER, headers, body: PageBody::Whole(Bytes::new()) }
    }

    /// Adds a header.
    pub(super) fn with_header(mut self, name: HeaderName, value: &str) -> Self {
        self.headers.extend(HeaderValue::try_from(value).map(|value| (name, value)));
        self
    }

    /// Adds a cookie.
    pub(super) fn with_cookie(mut self, cookie: &Cookie<'_>) -> Self {
        if let Ok(value) = HeaderValue::try_from(cookie.to_string()) {
            self.headers.append(SET_COOKIE, value);
        }
        self
    }
}

// === impl PageBody ===

#[cfg(test)]
impl PageBody {
    /// The bytes of a body that is complete.
    pub(super) fn whole(&self) -> &[u8] {
        if let Self::Whole(bytes) = self { bytes } else { &[] }
    }
}

impl std::fmt::Debug for PageResponse {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("PageResponse").field("status", &self.status).finish_non_exhaustive()
    }
}
