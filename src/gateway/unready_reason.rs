//! The reasons why the gateway is not ready.

use crate::words::word_enum;

word_enum! {
    /// The reason why `/readyz` reports that the gateway is not ready, so that load balancers send it no more requests.
    pub(crate) enum UnreadyReason {
        /// The process was asked to end.
        Stopping = "stopping",
        /// The last periodic read of the accounts from the database failed or took too long.
        StoreReads = "store_reads",
        /// The database does not accept records, or takes too long to write them.
        StoreWrites = "store_writes",
        /// Less than half of the disk space that is reserved for the database is free.
        DiskSpace = "disk_space",
    }
}
