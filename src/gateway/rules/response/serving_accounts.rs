//! The accounts that may and should serve a response job, because they have its context or its cached beginning.

use crate::gateway::store::BindingDigest;

/// The accounts to which the context and the conversation of a job belong, and what belongs to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServingAccounts {
    /// The name of the only account that can serve the job, because it stores what the job names.
    pub(crate) only: Option<String>,
    /// The name of the account that is asked first while it is healthy.
    pub(crate) home: Option<String>,
    /// The values of the job that belong to the caller, and its conversation. They belong to the account that serves the
    /// job.
    pub(crate) values: Vec<ContextValue>,
}

/// A value that belongs to an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContextValue {
    /// Its digest.
    pub(crate) digest: BindingDigest,
    /// The account to which the store binds it with a use on this day; `None` if the use has to be written.
    pub(crate) stored_account: Option<String>,
}

// === impl ServingAccounts ===

impl ServingAccounts {
    /// Returns the values whose bindings have to be written if this account serves the job.
    pub(crate) fn values_to_bind<'a>(&'a self, account: Option<&'a str>) -> impl Iterator<Item = &'a BindingDigest> {
        let changed = self.values.iter().filter(move |value| value.stored_account.as_deref() != account);
        changed.map(|value| &value.digest)
    }
}
