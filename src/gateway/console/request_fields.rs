//! Reads request bodies and checks them field by field against the API document. Also converts the page size and times
//! of parsed requests.

use chrono::{DateTime, Utc};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::rules::{check_fields, read_object};
use crate::gateway::store::Timestamp;
use crate::tables::Field;
use crate::wire::admin::types;

/// The number of rows of a page if the request names no limit.
const DEFAULT_PAGE_SIZE: u32 = 50;

/// Reads a body, and checks its fields by the table.
///
/// # Errors
///
/// Returns an error for the first field that cannot be used.
pub(super) fn read_body<T: DeserializeOwned>(table: &'static [Field], body: &[u8]) -> Result<T, Error> {
    let mut fields = read_object(body)?;
    check_fields("", table, &mut fields)?;
    deserialize_fields(fields)
}

/// Like [`read_body`], for a change: at least one field must be given, because an empty change is a mistake.
///
/// # Errors
///
/// The errors of [`read_body`], and an error if no field is given.
pub(super) fn read_change_body<T: DeserializeOwned>(table: &'static [Field], body: &[u8]) -> Result<T, Error> {
    let mut fields = read_object(body)?;
    check_fields("", table, &mut fields)?;
    if fields.is_empty() {
        let names: Vec<String> = table.iter().map(|field| format!("'{}'", field.name)).collect();
        let message = format!("The request changes nothing: expected at least one of {}.", names.join(", "));
        return Err(Rejection::for_body(RejectionReason::MissingParameter, message).into());
    }
    deserialize_fields(fields)
}

/// Converts the fields to their type. The type may refuse a value that the table accepts, because the table does not
/// contain every pattern. The error then names no field.
fn deserialize_fields<T: DeserializeOwned>(fields: Map<String, Value>) -> Result<T, Error> {
    let parsed = serde_json::from_value(Value::Object(fields));
    parsed.map_err(|error| {
        Rejection::for_body(RejectionReason::InvalidValue, format!("The request body cannot be used: {error}.")).into()
    })
}

/// Returns the number of rows of a page.
pub(super) fn page_size(limit: Option<types::PageLimit>) -> u32 {
    limit.and_then(|limit| u32::try_from(limit.get()).ok()).unwrap_or(DEFAULT_PAGE_SIZE)
}

/// Converts a time to the form of the store.
pub(super) fn to_timestamp(time: Option<DateTime<Utc>>) -> Option<Timestamp> {
    time.map(Timestamp::from)
}
