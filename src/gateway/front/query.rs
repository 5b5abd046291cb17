//! Query parameters, each of them checked as the document says and named where it is refused.
//!
//! dropshot's own extractor says only that something of the query is wrong, drops what it does not know, and lets the last
//! of two win; this one holds the text until somebody was let in, and then goes through it by the table of the operation.

use std::marker::PhantomData;

use async_trait::async_trait;
use dropshot::{
    ApiEndpointBodyContentType, ExtractorMetadata, HttpError, RequestContext, ServerContext, SharedExtractor,
};
use percent_encoding::percent_decode_str;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use url::form_urlencoded;

use crate::error::{Error, Reason, Rejection};
use crate::gateway::rules::check_fields;
use crate::tables::{ADMIN_OPERATIONS, Field, Kind};

/// The query parameters of one operation.
pub(crate) trait Parameters: DeserializeOwned + JsonSchema + Send + Sync + 'static {
    /// What each of them may be.
    const TABLE: &'static [Field];
}

/// A query, unread. It is described as a `T`.
pub(crate) struct Query<T> {
    text: String,
    described: PhantomData<fn() -> T>,
}

// === impl Query ===

impl<T: Parameters> Query<T> {
    /// Reads the parameters.
    ///
    /// # Errors
    ///
    /// 400 for the first that cannot be used, by its name.
    pub(crate) fn get(self) -> Result<T, Error> {
        let mut given = pairs(T::TABLE, &self.text)?;
        check_fields("", T::TABLE, &mut given)?;
        serde_json::from_value(Value::Object(given)).map_err(|error| {
            tracing::error!(%error, "the table of an operation does not fit its parameters");
            Error::Internal
        })
    }
}

/// Nothing may stand in the query of an operation of the operators that has no parameters there.
///
/// # Errors
///
/// 400 with the name of the first that does.
pub(crate) fn check_query(context: &RequestContext<impl ServerContext>) -> Result<(), Error> {
    let mut operations = ADMIN_OPERATIONS.iter().filter(|operation| operation.id == context.endpoint.operation_id);
    if operations.any(|operation| operation.queries) {
        return Ok(());
    }
    let mut given = pairs(&[], context.request.uri().query().unwrap_or_default())?;
    Ok(check_fields("", &[], &mut given)?)
}

/// The parameters by name, as far as their kinds can be read. One without a value counts as absent.
fn pairs(table: &'static [Field], text: &str) -> Result<Map<String, Value>, Rejection> {
    let mut given = Map::new();
    let mut seen = Vec::new();
    let pieces = text.split('&').filter(|piece| !piece.is_empty());
    for (piece, (name, value)) in pieces.zip(form_urlencoded::parse(text.as_bytes())) {
        // Read as something else it would be looked for, and not found.
        if percent_decode_str(piece).decode_utf8().is_err() {
            let message = format!("Invalid '{name}': the text is not UTF-8.");
            return Err(Rejection::new(name, Reason::InvalidValue, message));
        }
        if seen.contains(&name) {
            let message = format!("Duplicate parameter: '{name}' may be given once.");
            return Err(Rejection::new(name, Reason::InvalidValue, message));
        }
        let known = table.iter().find(|field| field.name == name);
        if known.is_none() || !value.is_empty() {
            given.insert(name.to_string(), typed(known, &value));
        }
        seen.push(name);
    }
    Ok(given)
}

/// A text as the value that the table asks for, or as it is where it is none: then the table says so.
fn typed(field: Option<&Field>, text: &str) -> Value {
    match field.map(|field| field.kind) {
        Some(Kind::Integer { .. }) => text.parse::<i64>().map_or_else(|_| text.into(), Value::from),
        Some(Kind::Boolean) => text.parse::<bool>().map_or_else(|_| text.into(), Value::from),
        _ => text.into(),
    }
}

#[async_trait]
impl<T: Parameters> SharedExtractor for Query<T> {
    async fn from_request<C: ServerContext>(context: &RequestContext<C>) -> Result<Self, HttpError> {
        let text = context.request.uri().query().unwrap_or_default().to_owned();
        Ok(Self { text, described: PhantomData })
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

    fn read<T: Parameters>(text: &str) -> Result<T, Error> {
        Query { text: text.to_owned(), described: PhantomData }.get()
    }

    #[track_caller]
    fn check_refused(text: &str, param: &str, reason: Reason) {
        let Err(Error::Invalid(rejection)) = read::<ListKeysQuery>(text) else { panic!("{text} is read") };
        assert_eq!((rejection.param.as_deref(), rejection.reason), (Some(param), Some(reason)), "{text}");
    }

    #[test]
    fn parameters_are_read_by_their_kinds() {
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
    fn a_parameter_at_fault_is_named() {
        check_refused("serch=a", "serch", Reason::UnknownParameter);
        check_refused("serch=", "serch", Reason::UnknownParameter);
        check_refused("limit=7&limit=8", "limit", Reason::InvalidValue);
        check_refused("&&limit=7&search=%ff", "search", Reason::InvalidValue);
        check_refused("search=&search=", "search", Reason::InvalidValue);
        check_refused("limit=seven", "limit", Reason::InvalidType);
        check_refused("limit=7.5", "limit", Reason::InvalidType);
        check_refused("limit=0", "limit", Reason::IntegerBelowMin);
        check_refused("limit=501", "limit", Reason::IntegerAboveMax);
        check_refused("state=tired", "state", Reason::InvalidValue);
        let day = read::<RetrieveUsageQuery>("until=yesterday").unwrap_err();
        assert_eq!(day.param(), Some("until"));
    }
}
