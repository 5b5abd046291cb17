//! The difference between the connections of the databases that the shared statements must know.

/// A connection to a database.
pub(super) trait SqlConnection {
    /// The statement that begins the transaction of a change. Such transactions take turns: one that reads before it
    /// writes must not decide by rows that another one is changing.
    const BEGIN_CHANGE: &'static str;

    /// The statement that begins a transaction whose reads all see the database at one moment.
    const BEGIN_READ: &'static str;
}

/// Returns the statement that begins the transaction of a change on this connection.
pub(super) fn begin_statement<C: SqlConnection>(_connection: &C) -> &'static str {
    C::BEGIN_CHANGE
}
