//! Query parameters, checked against the API document. An error names the parameter.
//!
//! dropshot's own extractor does not name the invalid parameter, ignores unknown parameters, and takes the last of two
//! values. The extractor here stores the raw query until the caller is authenticated, and then checks it against the
//! table of the operation.

use std::marker::PhantomData;

use async_trait::async_trait;
use dropshot::{
    ApiEndpointBodyContentType, ExtractorMetadata, HttpError, RequestContext, ServerContext, SharedExtractor,
};
use http::Uri;
use percent_encoding::percent_decode_str;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use url::form_urlencoded;

use super::request::RequestHead;
use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::rules::check_fields;
use crate::tables::{ADMIN_OPERATIONS, Field, FieldKind};

/// The query parameters of one operation.
pub(crate) trait QueryParameters: DeserializeOwned + JsonSchema + Send + Sync + 'static {
    /// The allowed parameters and their values.
    const TABLE: &'static [Field];
}

/// An unread query. The API description gives it the schema of `T`.
pub(crate) struct Query<T> {
    raw_query: String,
    schema_marker: PhantomData<fn() -> T>,
}

// === impl Query ===

impl<T> Query<T> {
    pub(super) fn new(uri: &Uri) -> Self {
        Self { raw_query: uri.query().unwrap_or_default().to_owned(), schema_marker: PhantomData }
    }
}

impl<T: QueryParameters> Query<T> {
    /// Parses and checks the parameters.
    ///
    /// # Errors
    ///
    /// Returns 400 with the name of the first invalid parameter.
    pub(crate) fn parse(self) -> Result<T, Error> {
        let mut parameters = parse_pairs(T::TABLE, &self.raw_query)?;
        check_fields("", T::TABLE, &mut parameters)?;
        serde_json::from_value(Value::Object(parameters)).map_err(|error| {
            tracing::error!(%error, "the table of an operation does not fit its parameters");
            Error::Internal
        })
    }
}

/// Checks that a request of the admin API has no query if its operation has no query parameters.
///
/// # Errors
///
/// Returns 400 with the name of the first parameter.
pub(crate) fn check_query<C>(head: &RequestHead<C>) -> Result<(), Error> {
    let mut operations = ADMIN_OPERATIONS.iter().filter(|operation| operation.id == head.operation());
    if operations.any(|operation| operation.queries) {
        return Ok(());
    }
    let mut parameters = parse_pairs(&[], head.uri().query().unwrap_or_default())?;
    Ok(check_fields("", &[], &mut parameters)?)
}

/// Parses the query into typed values by name. A known parameter with an empty value counts as absent.
fn parse_pairs(table: &'static [Field], text: &str) -> Result<Map<String, Value>, Rejection> {
    let mut parameters = Map::new();
    let mut seen_names = Vec::new();
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    for (pair, (name, value)) in pairs.zip(form_urlencoded::parse(text.as_bytes())) {
        // `form_urlencoded` would insert replacement characters, and a search for such a value would find nothing.
        if percent_decode_str(pair).decode_utf8().is_err() {
            let message = format!("Invalid '{name}': the text is not UTF-8.");
            return Err(Rejection::new(name, RejectionReason::InvalidValue, message));
        }
        // PostgreSQL has no texts with this character.
        if value.contains('\0') {
            let message = format!("Invalid '{name}': the text has a null character.");
            return Err(Rejection::new(name, RejectionReason::InvalidValue, message));
        }
        if seen_names.contains(&name) {
            let message = format!("Duplicate parameter: '{name}' may be given once.");
            return Err(Rejection::new(name, RejectionReason::InvalidValue, message));
        }
        let known = table.iter().find(|field| field.name == name);
        if known.is_none() || !value.is_empty() {
            parameters.insert(name.to_string(), to_typed_value(known, &value));
        }
        if known.is_none() {
            // The query is refused for it, so the names that are compared are at most those of the table.
            break;
        }
        seen_names.push(name);
    }
    Ok(parameters)
}

/// Converts a text to the type that the table requires. A text that cannot be converted stays a string, which
/// `check_fields` then refuses.
fn to_typed_value(field: Option<&Field>, text: &str) -> Value {
    match field.map(|field| field.kind) {
        Some(FieldKind::Integer { .. }) => text.parse::<i64>().map_or_else(|_| text.into(), Value::from),
        Some(FieldKind::Boolean) => text.parse::<bool>().map_or_else(|_| text.into(), Value::from),
        _ => text.into(),
    }
}

#[async_trait]
impl<T: QueryParameters> SharedExtractor for Query<T> {
    async fn from_request<C: ServerContext>(context: &RequestContext<C>) -> Result<Self, HttpError> {
        Ok(Self::new(context.request.uri()))
    }

    fn metadata(content_type: ApiEndpointBodyContentType) -> ExtractorMetadata {
        <dropshot::Query<T> as SharedExtractor>::metadata(content_type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::admin::server::{ListKeysQuery, RetrieveUsageQuery};
    use crate::wire::admin::types;

    fn read<T: QueryParameters>(text: &str) -> Result<T, Error> {
        Query { raw_query: text.to_owned(), schema_marker: PhantomData }.parse()
    }

    #[track_caller]
    fn check_refused(text: &str, param: &str, reason: RejectionReason) {
        let Err(Error::Invalid(rejection)) = read::<ListKeysQuery>(text) else { panic!("{text} is accepted") };
        assert_eq!((rejection.param.as_deref(), rejection.reason), (Some(param), Some(reason)), "{text}");
    }

    #[test]
    fn parameters_are_read_with_their_types() {
        let query: ListKeysQuery = read("search=a%20b%2Bc+d&limit=7&state=disabled&user=&before=key_1").unwrap();
        assert_eq!(query.search.as_deref(), Some("a b+c d"));
        assert_eq!(query.limit.map(types::PageLimit::get), Some(7));
        assert_eq!((query.state, query.user), (Some(types::KeyState::Disabled), None));
        let query: RetrieveUsageQuery = read("since=2026-11-21&user=42").unwrap();
        assert_eq!(query.since.map(|day| day.to_string()).as_deref(), Some("2026-11-21"));
        assert_eq!(query.user.as_deref(), Some("42"));
        assert!(read::<ListKeysQuery>("").unwrap().limit.is_none());
    }

    #[test]
    fn an_invalid_parameter_is_named_in_the_error() {
        check_refused("serch=a", "serch", RejectionReason::UnknownParameter);
        check_refused("serch=", "serch", RejectionReason::UnknownParameter);
        check_refused("limit=7&limit=8", "limit", RejectionReason::InvalidValue);
        check_refused("&&limit=7&search=%ff", "search", RejectionReason::InvalidValue);
        check_refused("search=&search=", "search", RejectionReason::InvalidValue);
        check_refused("search=a%00b", "search", RejectionReason::InvalidValue);
        check_refused("limit=seven", "limit", RejectionReason::InvalidType);
        check_refused("limit=7.5", "limit", RejectionReason::InvalidType);
        check_refused("limit=0", "limit", RejectionReason::IntegerBelowMin);
        check_refused("limit=501", "limit", RejectionReason::IntegerAboveMax);
        check_refused("state=tired", "state", RejectionReason::InvalidValue);
        // The first unknown name ends the reading, however many names follow.
        check_refused("serch=a&limit=7&limit=8&search=%ff", "serch", RejectionReason::UnknownParameter);
        let day = read::<RetrieveUsageQuery>("until=yesterday").unwrap_err();
        assert_eq!(day.param(), Some("until"));
    }
}
