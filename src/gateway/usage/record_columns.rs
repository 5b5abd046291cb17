//! The columns of records, which the admin API's document lists: in comma-separated values, on the page of the records, and
//! in a terminal. Each of them shows those columns that have what it needs, in the order of the document.

use serde_json::Value;

include!("../../../generated/record_columns.rs");

/// A column of a list of records.
#[derive(Debug)]
pub(crate) struct RecordColumn {
    /// The name of the column in comma-separated values, which have all columns.
    pub(crate) name: &'static str,
    /// The place of the value in the JSON of a record, as a JSON pointer.
    path: &'static str,
    /// The key of the title of the column on the page; `None` if the page does not have the column.
    pub(crate) title: Option<&'static str>,
    /// The CSS class of the column on the page.
    pub(crate) class: &'static str,
    /// The order by which the page can be sorted there, as the API names it.
    pub(crate) sort: Option<&'static str>,
    /// The heading of the column in a terminal; `None` if a terminal does not show the column.
    pub(crate) heading: Option<&'static str>,
}

// === impl RecordColumn ===

impl RecordColumn {
    /// Returns the value of the column in the JSON of a record.
    pub(crate) fn value<'a>(&self, record: &'a Value) -> Option<&'a Value> {
        record.pointer(self.path)
    }
}
