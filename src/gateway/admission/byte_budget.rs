//! Byte budgets: the bytes of one kind that all requests may hold, those of one user, those of one key, and those from
//! one address.
//!
//! Only bytes that are held count, not the bytes that a request announces, so small requests are not refused because of
//! large ones.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::RequestBudgets;
use crate::error::Error;

/// The budget that a request would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BudgetExceeded {
    /// The budget of one user, one key or one address, or that of all requests.
    #[error("{scope} hold all the {resource} that they may hold")]
    Bytes {
        /// The resource.
        resource: SharedResource,
        /// The requests that share the budget.
        scope: BudgetScope,
    },
    /// The free space of the file system that is reserved for the database.
    #[error("the free disk space is reserved for the database")]
    FreeSpace,
}

/// A resource that requests share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SharedResource {
    /// Memory.
    Memory,
    /// Disk space.
    Disk,
    /// The bytes that compressed bodies decode to beyond the size that their own bytes justify.
    Expansion,
}

/// The requests that share a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum BudgetScope {
    /// The requests of one user, with all of its keys, tokens and sessions.
    User,
    /// The requests with one API key.
    Key,
    /// The requests from one address whose sender is not known yet.
    Address,
    /// All requests.
    All,
}

/// One user, one key or one address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct BudgetSubject {
    pub(super) scope: BudgetScope,
    pub(super) id: Arc<str>,
}

/// The budget of one kind of bytes.
#[derive(Debug)]
pub(super) struct ByteBudget {
    resource: SharedResource,
    max: u64,
    /// The most for one user or address.
    max_per_user: u64,
    max_per_key: u64,
    held: Mutex<HeldBytes>,
}

#[derive(Debug, Default)]
struct HeldBytes {
    all: u64,
    by_subject: HashMap<BudgetSubject, u64>,
}

/// Bytes that count against a budget until the share is dropped.
#[derive(Debug)]
pub(crate) struct ByteShare {
    budgets: Arc<RequestBudgets>,
    budget: fn(&RequestBudgets) -> &ByteBudget,
    subjects: [Option<BudgetSubject>; 2],
    /// False for answers, which were paid for.
    is_bounded: bool,
    bytes: u64,
}

/// Bytes, and the share of the memory that they hold.
struct ChargedBytes {
    bytes: Bytes,
    _share: ByteShare,
}

// === impl BudgetExceeded ===

impl BudgetExceeded {
    /// True if the request can be repeated when other requests of the same sender have ended.
    pub(crate) const fn is_own(self) -> bool {
        matches!(self, Self::Bytes { scope: BudgetScope::User | BudgetScope::Key | BudgetScope::Address, .. })
    }
}

/// Returns the error of a request that is refused. A retry may succeed.
impl From<BudgetExceeded> for Error {
    fn from(exceeded: BudgetExceeded) -> Self {
        if exceeded.is_own() {
            let advice = "Try again when other requests have ended.";
            Self::BudgetExceeded(format!("Too much data at once: {exceeded}. {advice}"))
        } else {
            Self::Unavailable
        }
    }
}

impl fmt::Display for SharedResource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Memory => "memory",
            Self::Disk => "disk space",
            Self::Expansion => "strongly compressed data",
        })
    }
}

impl fmt::Display for BudgetScope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::User => "the requests of this user",
            Self::Key => "the requests of this key",
            Self::Address => "the requests from this address",
            Self::All => "all requests together",
        })
    }
}

// === impl ChargedBytes ===

impl AsRef<[u8]> for ChargedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

// === impl ByteBudget ===

impl ByteBudget {
    pub(super) fn new(resource: SharedResource, max: u64, max_per_user: u64, max_per_key: u64) -> Self {
        Self { resource, max, max_per_user, max_per_key, held: Mutex::default() }
    }

    pub(super) fn held_bytes(&self) -> u64 {
        self.held().all
    }

    const fn max_of(&self, scope: BudgetScope) -> u64 {
        match scope {
            BudgetScope::User | BudgetScope::Address => self.max_per_user,
            BudgetScope::Key => self.max_per_key,
            BudgetScope::All => self.max,
        }
    }

    fn held(&self) -> MutexGuard<'_, HeldBytes> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl HeldBytes ===

impl HeldBytes {
    fn of(&self, subject: &BudgetSubject) -> u64 {
        self.by_subject.get(subject).copied().unwrap_or_default()
    }

    fn set(&mut self, subject: &BudgetSubject, bytes: u64) {
        if bytes == 0 {
            self.by_subject.remove(subject);
        } else if let Some(held) = self.by_subject.get_mut(subject) {
            *held = bytes;
        } else {
            self.by_subject.insert(subject.clone(), bytes);
        }
    }
}

// === impl ByteShare ===

impl ByteShare {
    pub(super) fn bounded(
        budgets: Arc<RequestBudgets>,
        budget: fn(&RequestBudgets) -> &ByteBudget,
        subjects: [Option<BudgetSubject>; 2],
    ) -> Self {
        Self { budgets, budget, subjects, is_bounded: true, bytes: 0 }
    }

    pub(super) fn unbounded(budgets: Arc<RequestBudgets>, budget: fn(&RequestBudgets) -> &ByteBudget) -> Self {
        let mut share = Self::bounded(budgets, budget, [None, None]);
        share.is_bounded = false;
        share
    }

    /// The number of bytes of this share.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Sets the number of bytes of this share.
    ///
    /// # Errors
    ///
    /// Returns [`BudgetExceeded`] if a budget does not allow an increase; the share stays as it is then.
    pub(crate) fn set_bytes(&mut self, bytes: u64) -> io::Result<()> {
        self.change_to(bytes).map_err(|exceeded| self.budgets.refuse(exceeded))
    }

    /// Sets the number of bytes of this share, like [`Self::set_bytes`], but counts no refusal: nothing is refused
    /// because of it.
    ///
    /// # Errors
    ///
    /// Like [`Self::set_bytes`].
    pub(crate) fn try_set_bytes(&mut self, bytes: u64) -> Result<(), BudgetExceeded> {
        self.change_to(bytes)
    }

    /// Returns the bytes with this share, which is given back when the last of their clones and slices is dropped.
    pub(crate) fn attach_to(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(ChargedBytes { bytes, _share: self })
    }

    /// Adds bytes to this share.
    ///
    /// # Errors
    ///
    /// Like [`Self::set_bytes`].
    pub(crate) fn add_bytes(&mut self, bytes: u64) -> io::Result<()> {
        self.set_bytes(self.bytes.saturating_add(bytes))
    }

    fn change_to(&mut self, bytes: u64) -> Result<(), BudgetExceeded> {
        let budget = (self.budget)(&self.budgets);
        let (increase, decrease) = (bytes.saturating_sub(self.bytes), self.bytes.saturating_sub(bytes));
        let mut held = budget.held();
        let after = |held: u64| held.saturating_add(increase).saturating_sub(decrease);
        let check = |scope: BudgetScope, held: u64| match after(held) <= budget.max_of(scope) {
            true => Ok(()),
            false => Err(BudgetExceeded::Bytes { resource: budget.resource, scope }),
        };
        let subjects = || self.subjects.iter().flatten();
        if self.is_bounded && increase > 0 {
            subjects().try_for_each(|subject| check(subject.scope, held.of(subject)))?;
            check(BudgetScope::All, held.all)?;
        }
        for subject in subjects() {
            let bytes = after(held.of(subject));
            held.set(subject, bytes);
        }
        held.all = after(held.all);
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for ByteShare {
    fn drop(&mut self) {
        // A decrease is never refused.
        let _: Result<(), BudgetExceeded> = self.change_to(0);
    }
}
