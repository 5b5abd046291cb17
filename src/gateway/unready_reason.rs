//! The reasons why the gateway is not ready.

/// The reason why `/readyz` reports that the gateway is not ready, so that load balancers send it no more requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnreadyReason {
    /// The process was asked to end.
    Stopping,
    /// The last periodic read of the accounts from the database failed or took too long.
    StoreReads,
    /// The database does not accept records, or takes too long to write them.
    StoreWrites,
    /// Less than half of the disk space that is reserved for the database is free.
    DiskSpace,
}

// === impl UnreadyReason ===

impl UnreadyReason {
    /// The word for the reason in the answer of `/readyz`.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Stopping => "stopping",
            Self::StoreReads => "store_reads",
            Self::StoreWrites => "store_writes",
            Self::DiskSpace => "disk_space",
        }
    }
}
