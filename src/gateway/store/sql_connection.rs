//! The difference between the connections of the databases that the shared statements must know, and the connection of a
//! transaction.

use std::ops::{Deref, DerefMut};

use sqlx::Database;
use sqlx::pool::PoolConnection;

/// A connection to a database.
pub(super) trait SqlConnection {
    /// The statement that begins the transaction of a change. Such transactions take turns: one that reads before it
    /// writes must not decide by rows that another one is changing.
    const BEGIN_CHANGE: &'static str;

    /// The statement that begins a transaction whose reads all see the database at one moment.
    const BEGIN_READ: &'static str;
}

/// Returns the statement that begins the transaction of a change on this connection.
pub(super) const fn begin_change<C: SqlConnection>(_connection: &C) -> &'static str {
    C::BEGIN_CHANGE
}

/// Returns the statement that begins a transaction whose reads all see the database at one moment.
pub(super) const fn begin_read<C: SqlConnection>(_connection: &C) -> &'static str {
    C::BEGIN_READ
}

/// Returns the statement that begins a transaction that takes no turn.
pub(super) const fn begin<C: SqlConnection>(_connection: &C) -> &'static str {
    "BEGIN"
}

/// A connection of a pool for one transaction. It is closed when it is dropped before the transaction came to its end.
///
/// - If the caller goes away while the server of PostgreSQL begins a transaction, the driver does not know that one was
///   begun. The connection would return to the pool inside of it, with its locks.
/// - If the disk is full, SQLite ends a transaction by itself, which the driver does not notice, and every later
///   transaction on that connection would fail.
pub(super) struct TransactionConnection<D: Database> {
    connection: PoolConnection<D>,
    is_reusable: bool,
}

/// The value of a transaction that has come to its end. It keeps a block of [`rollback`] apart from an ordinary result:
/// no `return Ok(…)` undoes the changes by mistake.
pub(super) struct TransactionValue<T>(pub(super) T);

/// The value of a transaction whose changes are undone.
pub(super) const fn rollback<T>(value: T) -> TransactionValue<T> {
    TransactionValue(value)
}

// === impl TransactionConnection ===

impl<D: Database> TransactionConnection<D> {
    pub(super) const fn new(connection: PoolConnection<D>) -> Self {
        Self { connection, is_reusable: false }
    }

    /// States that the transaction was committed, or that the driver knows that it must be rolled back.
    pub(super) const fn set_reusable(&mut self) {
        self.is_reusable = true;
    }
}

impl<D: Database> Deref for TransactionConnection<D> {
    type Target = D::Connection;

    fn deref(&self) -> &D::Connection {
        &self.connection
    }
}

impl<D: Database> DerefMut for TransactionConnection<D> {
    fn deref_mut(&mut self) -> &mut D::Connection {
        &mut self.connection
    }
}

impl<D: Database> Drop for TransactionConnection<D> {
    fn drop(&mut self) {
        if !self.is_reusable {
            self.connection.close_on_drop();
        }
    }
}
