//! The columns of a claim, as each driver reads them.

use sqlx::postgres::PgRow;
use sqlx::{FromRow, Row as _};

use super::sql::driver::SqlRow;
use super::{ReplayClaim, ReplayState, StoredAnswerRow, StoredReplay};

/// A row, as any driver reads it.
pub(super) struct ReplayColumns {
    scope: Vec<u8>,
    digest: Vec<u8>,
    fingerprint: Option<Vec<u8>>,
    retry_until: Option<String>,
    repeat_expected: i64,
    request_id: String,
    node: String,
    created_at: String,
    expires_at: String,
    status: Option<i64>,
    content_type: Option<String>,
    headers: Option<String>,
    file: Option<String>,
    size: Option<i64>,
    sealed_key: Option<Vec<u8>>,
}

/// Reads the columns with this method of a row.
macro_rules! read_columns {
    ($row:ident.$get:ident) => {
        Ok(Self {
            scope: $row.$get("scope")?,
            digest: $row.$get("digest")?,
            fingerprint: $row.$get("fingerprint")?,
            retry_until: $row.$get("retry_until")?,
            repeat_expected: $row.$get("repeat_expected")?,
            request_id: $row.$get("request_id")?,
            node: $row.$get("node")?,
            created_at: $row.$get("created_at")?,
            expires_at: $row.$get("expires_at")?,
            status: $row.$get("status")?,
            content_type: $row.$get("content_type")?,
            headers: $row.$get("headers")?,
            file: $row.$get("file")?,
            size: $row.$get("size")?,
            sealed_key: $row.$get("sealed_key")?,
        })
    };
}

impl TryFrom<&SqlRow> for ReplayColumns {
    type Error = sqlx::Error;

    fn try_from(row: &SqlRow) -> sqlx::Result<Self> {
        read_columns!(row.try_get)
    }
}

impl FromRow<'_, PgRow> for ReplayColumns {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        read_columns!(row.try_get)
    }
}

impl TryFrom<&rusqlite::Row<'_>> for ReplayColumns {
    type Error = rusqlite::Error;

    fn try_from(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        read_columns!(row.get)
    }
}

impl ReplayColumns {
    /// Decodes the row. A cell that does not parse is an error and never becomes a default value.
    pub(super) fn decode(self) -> Result<StoredReplay, Box<dyn std::error::Error + Send + Sync>> {
        let state = match self.status {
            None => ReplayState::Running,
            Some(status) => ReplayState::Stored(StoredAnswerRow {
                status: status.try_into()?,
                content_type: self.content_type.ok_or("a content type is missing")?,
                headers: self.headers.ok_or("headers are missing")?,
                file: self.file.ok_or("a file is missing")?,
                size: self.size.ok_or("a size is missing")?.try_into()?,
                sealed_key: self.sealed_key.ok_or("a key is missing")?,
            }),
        };
        let claim = ReplayClaim {
            scope: self.scope.as_slice().try_into()?,
            digest: self.digest.as_slice().try_into()?,
            fingerprint: self.fingerprint.as_deref().map(TryInto::try_into).transpose()?,
            retry_until: self.retry_until.as_deref().map(str::parse).transpose()?,
            repeat_expected: self.repeat_expected != 0,
            request_id: self.request_id.into(),
            node: self.node.into(),
            created_at: self.created_at.parse()?,
            expires_at: self.expires_at.parse()?,
        };
        Ok(StoredReplay { claim, state })
    }
}
