//! The admission of a request: what the request may hold of the memory and the disk of the process, from its head to the
//! last byte of its answer.
//!
//! Everything whose size a caller chooses is charged here before it is allocated: the bytes of an arriving body, the
//! window of a decoder, the values of a JSON text, and the files of an upload. A share is given back when it is dropped.
//! This module decides who may hold how much: first the user, then its key, then all requests together; before the
//! sender is known, its address. It must not know how bytes arrive, or their meaning. Rule: a request that would exceed
//! a budget is refused, and other requests keep what they hold.
//!
//! `front` makes one [`Admission`] for each request, and `endpoints` name its principal when the credentials were
//! checked.

mod byte_budget;

#[cfg(test)]
mod tests;

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

pub(crate) use byte_budget::{BudgetExceeded, ByteShare};
use byte_budget::{BudgetScope, BudgetSubject, ByteBudget, SharedResource};

use crate::gateway::config::UploadLimits;
use crate::gateway::store::{KeyId, UserId};
use crate::gateway::work::{RequestWork, Work};

/// The memory in bytes for requests whose sender is not known, such as sign-in forms (our choice): 256 of the largest.
const UNAUTHENTICATED_MEMORY: u64 = 16 * 1024 * 1024;
/// The part of it that one address may hold (our choice).
const UNAUTHENTICATED_MEMORY_PER_ADDRESS: u64 = 4 * 1024 * 1024;
/// The subject of the admin token of the settings, which belongs to no user.
const SETTINGS_SUBJECT: &str = "settings";

/// The budgets of all requests of the process.
#[derive(Debug)]
pub(crate) struct RequestBudgets {
    memory: ByteBudget,
    unauthenticated_memory: ByteBudget,
    disk: ByteBudget,
    refused: AtomicU64,
}

/// The bytes held at this moment, and the number of refusals.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BudgetUsage {
    /// The bytes of requests in memory.
    pub(crate) memory: u64,
    /// The bytes of uploads and answers on disk.
    pub(crate) disk: u64,
    /// The number of refusals since the start.
    pub(crate) refused: u64,
}

/// What one request may hold. Clones are the same admission.
#[derive(Clone, Debug)]
pub(crate) struct Admission(Arc<AdmittedRequest>);

#[derive(Debug)]
struct AdmittedRequest {
    budgets: Arc<RequestBudgets>,
    address: IpAddr,
    principal: OnceLock<Principal>,
}

/// The party for which a request is served, whose credentials were checked.
#[derive(Debug)]
pub(crate) struct Principal {
    user: Arc<str>,
    key: Option<Arc<str>>,
    work: RequestWork,
}

// === impl RequestBudgets ===

impl RequestBudgets {
    pub(crate) fn new(limits: &UploadLimits) -> Arc<Self> {
        let UploadLimits { memory, memory_per_user, memory_per_key, disk, disk_per_user, disk_per_key, .. } = *limits;
        let unauthenticated = (UNAUTHENTICATED_MEMORY, UNAUTHENTICATED_MEMORY_PER_ADDRESS);
        Arc::new(Self {
            memory: ByteBudget::new(SharedResource::Memory, memory, (memory_per_user, memory_per_key)),
            unauthenticated_memory: ByteBudget::new(SharedResource::Memory, unauthenticated.0, (unauthenticated.1, 0)),
            disk: ByteBudget::new(SharedResource::Disk, disk, (disk_per_user, disk_per_key)),
            refused: AtomicU64::new(0),
        })
    }

    pub(crate) fn usage(&self) -> BudgetUsage {
        BudgetUsage {
            memory: self.memory.held_bytes() + self.unauthenticated_memory.held_bytes(),
            disk: self.disk.held_bytes(),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    /// Counts a refusal and returns it as an I/O error.
    pub(crate) fn refuse(&self, exceeded: BudgetExceeded) -> io::Error {
        self.refused.fetch_add(1, Ordering::Relaxed);
        io::Error::new(io::ErrorKind::QuotaExceeded, exceeded)
    }

    /// Returns a share of the disk for an answer. Nothing refuses it, because the answer was paid for.
    pub(crate) fn answer_disk(self: &Arc<Self>) -> ByteShare {
        ByteShare::unbounded(Arc::clone(self), |budgets| &budgets.disk)
    }
}

#[cfg(test)]
impl RequestBudgets {
    /// The budgets with the default limits.
    pub(crate) fn default_for_test() -> Arc<Self> {
        Self::new(&UploadLimits::DEFAULT)
    }

    /// The budgets with these limits.
    pub(crate) fn with_limits(change: impl FnOnce(&mut UploadLimits)) -> Arc<Self> {
        let mut limits = UploadLimits::DEFAULT;
        change(&mut limits);
        Self::new(&limits)
    }

    /// The admission of a request whose sender is not known.
    pub(crate) fn begin_for_test(self: &Arc<Self>) -> Admission {
        Admission::begin(self, IpAddr::from([127, 0, 0, 1]))
    }

    /// The admission of a request with this key of this user.
    pub(crate) fn admit_for_test(self: &Arc<Self>, user: &str, key: &str) -> Admission {
        let admission = self.begin_for_test();
        admission.set_principal(Principal::of_key(&user.into(), &key.into()));
        admission
    }
}

// === impl Admission ===

impl Admission {
    /// Begins the admission of a request from this address.
    pub(crate) fn begin(budgets: &Arc<RequestBudgets>, address: IpAddr) -> Self {
        let (budgets, principal) = (Arc::clone(budgets), OnceLock::new());
        Self(Arc::new(AdmittedRequest { budgets, address, principal }))
    }

    /// Names the party whose credentials were checked. What the request holds from now on counts for it. The first
    /// principal of a request stays.
    pub(crate) fn set_principal(&self, principal: Principal) {
        // A second principal is that of the same credentials.
        drop(self.0.principal.set(principal));
    }

    /// The address from which the request comes.
    pub(crate) fn address(&self) -> IpAddr {
        self.0.address
    }

    /// The party whose credentials were checked; `None` before that.
    pub(crate) fn principal(&self) -> Option<&Principal> {
        self.0.principal.get()
    }

    /// Charges work to the party whose credentials were checked. Before that, nobody is charged: the budgets by address
    /// bound the request.
    pub(crate) fn charge(&self, work: Work) {
        if let Some(principal) = self.principal() {
            principal.work.charge(work);
        }
    }

    /// Returns a share of the memory.
    pub(crate) fn memory(&self) -> ByteShare {
        match self.principal() {
            Some(principal) => self.share(|budgets| &budgets.memory, principal.subjects()),
            None => self.share(|budgets| &budgets.unauthenticated_memory, self.address_subject()),
        }
    }

    /// Returns a share of the disk.
    pub(crate) fn disk(&self) -> ByteShare {
        let subjects = self.principal().map_or_else(|| self.address_subject(), Principal::subjects);
        self.share(|budgets| &budgets.disk, subjects)
    }

    /// The budgets of the process.
    pub(crate) fn budgets(&self) -> &Arc<RequestBudgets> {
        &self.0.budgets
    }

    fn share(&self, budget: fn(&RequestBudgets) -> &ByteBudget, subjects: [Option<BudgetSubject>; 2]) -> ByteShare {
        ByteShare::bounded(Arc::clone(&self.0.budgets), budget, subjects)
    }

    fn address_subject(&self) -> [Option<BudgetSubject>; 2] {
        [Some(BudgetSubject { scope: BudgetScope::Address, id: self.0.address.to_string().into() }), None]
    }
}

impl PartialEq for Admission {
    /// True for clones of one admission.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Admission {}

// === impl Principal ===

impl Principal {
    /// The owner of a key. A key that belongs to no person counts as a user of its own.
    pub(crate) fn of_key(user: &UserId, key: &KeyId) -> Self {
        let key = Arc::<str>::from(key.as_str());
        let user = if user.is_nobody() { Arc::clone(&key) } else { user.as_str().into() };
        Self { user, key: Some(key), work: RequestWork::default() }
    }

    /// A signed-in user, or the admin token of the settings.
    pub(crate) fn of_actor(user: Option<&UserId>) -> Self {
        let user = user.map_or(SETTINGS_SUBJECT, UserId::as_str).into();
        Self { user, key: None, work: RequestWork::default() }
    }

    /// Names the work of the request, which what it reads is charged to.
    pub(crate) fn with_work(self, work: RequestWork) -> Self {
        Self { work, ..self }
    }

    /// The id of the user, under which all of its keys, tokens and sessions count together.
    pub(crate) const fn user(&self) -> &Arc<str> {
        &self.user
    }

    /// The id of the key, if the request has one.
    pub(crate) const fn key(&self) -> Option<&Arc<str>> {
        self.key.as_ref()
    }

    fn subjects(&self) -> [Option<BudgetSubject>; 2] {
        let user = BudgetSubject { scope: BudgetScope::User, id: Arc::clone(&self.user) };
        let key = self.key.as_ref().map(|key| BudgetSubject { scope: BudgetScope::Key, id: Arc::clone(key) });
        [Some(user), key]
    }
}
