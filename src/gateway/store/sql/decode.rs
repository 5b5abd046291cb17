//! Decodes the cells of a row. A cell that does not parse is a decode error and never becomes a default value.

use std::str::FromStr;

use super::driver::SqlRow;
use crate::gateway::money::Usd;
use crate::gateway::store::Timestamp;

/// Decodes a cell that holds a text, such as an id or a name.
pub(super) fn text<T: From<String>>(row: &SqlRow, column: &str) -> sqlx::Result<T> {
    row.try_get::<String, _>(column).map(T::from)
}

/// Decodes a cell whose text must be parsed.
pub(super) fn parsed<T>(row: &SqlRow, column: &str) -> sqlx::Result<T>
where
    T: FromStr<Err: Into<Box<dyn std::error::Error + Send + Sync>>>,
{
    let text: &str = row.try_get(column)?;
    text.parse().map_err(|error: T::Err| sqlx::Error::Decode(error.into()))
}

/// Decodes a nullable cell that holds a time.
pub(super) fn optional_timestamp(row: &SqlRow, column: &str) -> sqlx::Result<Option<Timestamp>> {
    let text: Option<&str> = row.try_get(column)?;
    text.map(str::parse).transpose().map_err(|error: chrono::ParseError| sqlx::Error::Decode(error.into()))
}

/// Decodes a nullable cell that holds one of a few words.
pub(super) fn optional_parsed<T>(row: &SqlRow, column: &str) -> sqlx::Result<Option<T>>
where
    T: FromStr<Err: Into<Box<dyn std::error::Error + Send + Sync>>>,
{
    let text: Option<&str> = row.try_get(column)?;
    text.map(str::parse).transpose().map_err(|error: T::Err| sqlx::Error::Decode(error.into()))
}

/// Decodes a count that may be unknown.
pub(super) fn optional_count<T: TryFrom<i64>>(row: &SqlRow, column: &str) -> sqlx::Result<Option<T>>
where
    T::Error: std::error::Error + Send + Sync + 'static,
{
    let number: Option<i64> = row.try_get(column)?;
    number.map(T::try_from).transpose().map_err(|error| sqlx::Error::Decode(error.into()))
}

/// Decodes an amount that may be unknown, in billionths of a dollar.
pub(super) fn optional_usd(row: &SqlRow, column: &str) -> sqlx::Result<Option<Usd>> {
    Ok(optional_count(row, column)?.map(Usd::from_nanos))
}

/// Decodes a list that is stored as JSON.
pub(super) fn list<T: serde::de::DeserializeOwned>(row: &SqlRow, column: &str) -> sqlx::Result<Vec<T>> {
    let text: &str = row.try_get(column)?;
    serde_json::from_str(text).map_err(|error| sqlx::Error::Decode(error.into()))
}

/// Decodes a cell of 32 bytes.
pub(super) fn hash(row: &SqlRow, column: &str) -> sqlx::Result<[u8; 32]> {
    let bytes: &[u8] = row.try_get(column)?;
    bytes.try_into().map_err(|error: std::array::TryFromSliceError| sqlx::Error::Decode(error.into()))
}
