//! Reads request bodies and checks them field by field against the API document. Also converts the page size and times
//! of parsed requests.

use chrono::{DateTime, Utc};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::require_admin;
use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::config::{ConfigProblem, check_limits};
use crate::gateway::people::Actor;
use crate::gateway::rules::{check_fields, read_object};
use crate::gateway::store::Timestamp;
use crate::tables::Field;
use crate::wire::admin::types;

/// The number of rows of a page if the request names no limit, as the API document states.
const DEFAULT_PAGE_SIZE: u32 = 50;

/// The limits that a request sets, in the form in which they are stored: `None` removes all limits.
pub(super) type StoredLimits = Option<String>;

/// Reads a body, and checks its fields by the table.
///
/// # Errors
///
/// Returns an error for the first field that cannot be used.
pub(super) fn read_body<T: DeserializeOwned>(table: &'static [Field], body: &[u8]) -> Result<T, Error> {
    deserialize_fields(read_fields(table, body)?)
}

/// Like [`read_body`], for a body that may set limits. Only admins can set them.
///
/// # Errors
///
/// The errors of [`read_body`], and 403 if a member sets limits.
pub(super) fn read_body_with_limits<T: DeserializeOwned>(
    actor: &Actor,
    table: &'static [Field],
    body: &[u8],
) -> Result<(T, Option<StoredLimits>), Error> {
    let mut fields = read_fields(table, body)?;
    let limits = take_limits(actor, &mut fields)?;
    Ok((deserialize_fields(fields)?, limits))
}

/// Like [`read_body_with_limits`], for a change: at least one field must be given, because an empty change is a mistake.
///
/// # Errors
///
/// The errors of [`read_body_with_limits`], and an error if no field is given.
pub(super) fn read_change_body<T: DeserializeOwned>(
    actor: &Actor,
    table: &'static [Field],
    body: &[u8],
) -> Result<(T, Option<StoredLimits>), Error> {
    let mut fields = read_fields(table, body)?;
    if fields.is_empty() {
        return Err(empty_change_rejection(table).into());
    }
    let limits = take_limits(actor, &mut fields)?;
    Ok((deserialize_fields(fields)?, limits))
}

/// Returns the rejection of a change without any field of the table.
pub(super) fn empty_change_rejection(table: &[Field]) -> Rejection {
    let names: Vec<String> = table.iter().map(|field| format!("'{}'", field.name)).collect();
    let message = format!("The request changes nothing: expected at least one of {}.", names.join(", "));
    Rejection::for_body(RejectionReason::MissingParameter, message)
}

fn read_fields(table: &'static [Field], body: &[u8]) -> Result<Map<String, Value>, Error> {
    let mut fields = read_object(body)?;
    check_fields("", table, &mut fields)?;
    Ok(fields)
}

/// The member of a request that holds limits.
const LIMITS_FIELD: &str = "limits";

/// Takes the limits out of the fields of a body, because the settings define them and not the API document: an error
/// then names the limit. Returns `None` if the request does not set limits.
///
/// # Errors
///
/// 403 if the actor is a member, who could loosen the limits of an admin; 400 that names the first limit that cannot be
/// used.
fn take_limits(actor: &Actor, fields: &mut Map<String, Value>) -> Result<Option<StoredLimits>, Error> {
    let Some(Value::Object(limits)) = fields.remove(LIMITS_FIELD) else { return Ok(None) };
    require_admin(actor)?;
    check_limits(&limits).map(Some).map_err(|problems| {
        let setting = problems.first().and_then(ConfigProblem::setting);
        let param = setting.map_or_else(|| LIMITS_FIELD.to_owned(), |setting| format!("{LIMITS_FIELD}.{setting}"));
        let problems = problems.iter().map(ConfigProblem::message).collect::<Vec<_>>().join("; ");
        Rejection::new(param, RejectionReason::InvalidValue, format!("Invalid limits: {problems}.")).into()
    })
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
