//! What operators say, checked field by field as the document has it.

use chrono::{DateTime, Utc};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::{Error, Reason, Rejection};
use crate::gateway::rules::{check_fields, read_object};
use crate::gateway::store::Timestamp;
use crate::tables::Field;
use crate::wire::admin::types;

/// Rows of a page where nobody says how many.
const PAGE: u32 = 50;

/// Reads a body by the table of its fields.
///
/// # Errors
///
/// The first field that cannot be used.
pub(super) fn read<T: DeserializeOwned>(table: &'static [Field], body: &[u8]) -> Result<T, Error> {
    let mut fields = read_object(body)?;
    check_fields("", table, &mut fields)?;
    checked(fields)
}

/// The same where at least one field must be there: a change of nothing is a mistake.
///
/// # Errors
///
/// As [`read`], and where there is none.
pub(super) fn read_change<T: DeserializeOwned>(table: &'static [Field], body: &[u8]) -> Result<T, Error> {
    let mut fields = read_object(body)?;
    check_fields("", table, &mut fields)?;
    if fields.is_empty() {
        let names: Vec<String> = table.iter().map(|field| format!("'{}'", field.name)).collect();
        let message = format!("Nothing is to be changed: expected at least one of {}.", names.join(", "));
        return Err(Rejection::whole(Reason::MissingParameter, message).into());
    }
    checked(fields)
}

/// The table knows each field, but not every pattern: what only the type refuses is told without a name.
fn checked<T: DeserializeOwned>(fields: Map<String, Value>) -> Result<T, Error> {
    let read = serde_json::from_value(Value::Object(fields));
    read.map_err(|error| {
        Rejection::whole(Reason::InvalidValue, format!("The request body cannot be used: {error}.")).into()
    })
}

/// How many rows a page is to have.
pub(super) fn limit(limit: Option<types::PageLimit>) -> u32 {
    limit.and_then(|limit| u32::try_from(limit.get()).ok()).unwrap_or(PAGE)
}

/// A moment as the store keeps it.
pub(super) fn moment(moment: Option<DateTime<Utc>>) -> Option<Timestamp> {
    moment.map(Timestamp::from)
}
