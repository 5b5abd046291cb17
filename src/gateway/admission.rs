//! The admission of a request: what the request may hold of the memory and the disk of the process, from its head to
//! the last byte of its answer.
//!
//! Everything whose size a caller chooses is charged here before it is allocated: the bytes of an arriving body, the
//! window of a decoder, the values of a JSON text, and the files of an upload. A share is given back when it is
//! dropped. This module decides who may hold how much: first the user, then its key, then all requests together; before
//! the sender is known, its address. It must not know how bytes arrive, or their meaning. Rule: a request that would
//! exceed a budget is refused, and other requests keep what they hold.
//!
//! It also takes the [`DeliveryReport`] of the answer to the connection, which knows if the caller has received it.
//!
//! `front` makes one [`Admission`] for each request, and `endpoints` name its principal when the credentials were
//! checked.

mod byte_budget;
mod counted_json;
mod delivery_report;

#[cfg(test)]
mod tests;

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

pub(crate) use byte_budget::{BudgetExceeded, ByteShare};
use byte_budget::{BudgetScope, BudgetSubject, ByteBudget, SharedResource};
use counted_json::ParserThreads;
pub(crate) use counted_json::{CountedJson, JSON_VALUE_BYTES, JSON_VALUES_MAX, JsonTextBuilder, JsonTextError};
pub(crate) use delivery_report::DeliveryReport;

use crate::gateway::config::UploadLimits;
use crate::gateway::store::{KeyId, UserId};
use crate::gateway::work::{RequestWork, Work};

/// The memory in bytes for requests whose sender is not known, such as sign-in forms (our choice): 256 of the largest.
const UNAUTHENTICATED_MEMORY: u64 = 16 * 1024 * 1024;
/// The part of it that one address may hold (our choice).
const UNAUTHENTICATED_MEMORY_PER_ADDRESS: u64 = 4 * 1024 * 1024;
/// The expansion of compressed bodies that one user or address may hold, in bytes (our choice): what is decoded beyond
/// the size that the received bytes justify.
pub(crate) const EXPANSION_MAX: u64 = 8 * 1024 * 1024;
/// The memory in bytes for large read buffers of connections (our choice), and the part that one user may hold. Other
/// connections read in small pieces.
const READ_BUFFERS: u64 = 32 * 1024 * 1024;
const READ_BUFFERS_PER_USER: u64 = 8 * 1024 * 1024;
/// The subject of the admin token of the settings, which belongs to no user.
const SETTINGS_SUBJECT: &str = "settings";

/// The budgets of all requests of the process.
#[derive(Debug)]
pub(crate) struct RequestBudgets {
    memory: ByteBudget,
    unauthenticated_memory: ByteBudget,
    disk: ByteBudget,
    expansion: ByteBudget,
    read_buffers: ByteBudget,
    parsers: ParserThreads,
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

/// The memory and disk that one request may hold. Clones are the same admission.
#[derive(Clone, Debug)]
pub(crate) struct Admission(Arc<AdmittedRequest>);

#[derive(Debug)]
struct AdmittedRequest {
    budgets: Arc<RequestBudgets>,
    address: IpAddr,
    principal: OnceLock<Principal>,
    /// The shares that the request holds until it ends.
    held: Mutex<Vec<ByteShare>>,
    /// The report that the answer has left to the connection.
    delivery: Mutex<Option<DeliveryReport>>,
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
        Arc::new(Self {
            memory: ByteBudget::new(SharedResource::Memory, memory, memory_per_user, memory_per_key),
            unauthenticated_memory: ByteBudget::new(
                SharedResource::Memory,
                UNAUTHENTICATED_MEMORY,
                UNAUTHENTICATED_MEMORY_PER_ADDRESS,
                0,
            ),
            disk: ByteBudget::new(SharedResource::Disk, disk, disk_per_user, disk_per_key),
            expansion: ByteBudget::new(SharedResource::Expansion, u64::MAX, EXPANSION_MAX, EXPANSION_MAX),
            read_buffers: ByteBudget::new(
                SharedResource::Memory,
                READ_BUFFERS,
                READ_BUFFERS_PER_USER,
                READ_BUFFERS_PER_USER,
            ),
            parsers: ParserThreads::default(),
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

    /// Returns a share of the memory for the head of a request from this address; `None` for the address of a proxy,
    /// which stands for many clients.
    pub(crate) fn head_memory(self: &Arc<Self>, address: Option<IpAddr>) -> ByteShare {
        let subjects = [address.map(BudgetSubject::of_address), None];
        ByteShare::bounded(Arc::clone(self), |budgets| &budgets.unauthenticated_memory, subjects)
    }

    /// Returns a share of the memory for the decoders of an answer. Nothing refuses it, because the answer may have been
    /// paid for.
    pub(crate) fn answer_memory(self: &Arc<Self>) -> ByteShare {
        ByteShare::unbounded(Arc::clone(self), |budgets| &budgets.memory)
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

// === impl BudgetSubject ===

impl BudgetSubject {
    fn of_address(address: IpAddr) -> Self {
        Self { scope: BudgetScope::Address, id: network_of(address).to_string().into() }
    }
}

/// The network that counts as one sender: an IPv4 address itself, and the /64 network of an IPv6 address, because one
/// IPv6 customer has at least 2^64 addresses.
pub(crate) fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
        address @ IpAddr::V4(_) => address,
    }
}

// === impl Admission ===

impl Admission {
    /// Begins the admission of a request from this address.
    pub(crate) fn begin(budgets: &Arc<RequestBudgets>, address: IpAddr) -> Self {
        let (principal, held) = (OnceLock::new(), Mutex::default());
        let delivery = Mutex::default();
        Self(Arc::new(AdmittedRequest { budgets: Arc::clone(budgets), address, principal, held, delivery }))
    }

    /// Names the party whose credentials were checked. All that the request holds from now on counts for it. The first
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
        self.share(|budgets| &budgets.disk, self.subjects())
    }

    /// Returns a share of the bytes that compressed bodies decode to without justifying them.
    pub(crate) fn expansion(&self) -> ByteShare {
        self.share(|budgets| &budgets.expansion, self.subjects())
    }

    /// Charges a large read buffer until the request ends. Returns false if the sender is not known, or holds too
    /// many: its body is then read in small pieces.
    pub(crate) fn hold_read_buffer(&self, bytes: u64) -> bool {
        let Some(principal) = self.principal() else { return false };
        let mut share = self.share(|budgets| &budgets.read_buffers, principal.subjects());
        let is_held = share.try_set_bytes(bytes).is_ok();
        if is_held {
            self.hold(share);
        }
        is_held
    }

    /// Holds a share until the request ends.
    pub(crate) fn hold(&self, share: ByteShare) {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner).push(share);
    }

    /// Leaves the report of the delivery to the connection of the request: the answer has been read to its end.
    pub(crate) fn defer_delivery(&self, report: DeliveryReport) {
        let earlier = self.0.delivery.lock().unwrap_or_else(PoisonError::into_inner).replace(report);
        drop(earlier);
    }

    /// Returns the report that was left, for the connection.
    pub(crate) fn take_delivery(&self) -> Option<DeliveryReport> {
        self.0.delivery.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Ends the request, and gives back the shares that it holds: the last byte of its answer is sent.
    pub(crate) fn end(&self) {
        let held = std::mem::take(&mut *self.0.held.lock().unwrap_or_else(PoisonError::into_inner));
        drop(held);
    }

    /// The budgets of the process.
    pub(crate) fn budgets(&self) -> &Arc<RequestBudgets> {
        &self.0.budgets
    }

    fn share(&self, budget: fn(&RequestBudgets) -> &ByteBudget, subjects: [Option<BudgetSubject>; 2]) -> ByteShare {
        ByteShare::bounded(Arc::clone(&self.0.budgets), budget, subjects)
    }

    fn subjects(&self) -> [Option<BudgetSubject>; 2] {
        self.principal().map_or_else(|| self.address_subject(), Principal::subjects)
    }

    fn address_subject(&self) -> [Option<BudgetSubject>; 2] {
        [Some(BudgetSubject::of_address(self.0.address)), None]
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

    fn subjects(&self) -> [Option<BudgetSubject>; 2] {
        let user = BudgetSubject { scope: BudgetScope::User, id: Arc::clone(&self.user) };
        let key = self.key.as_ref().map(|key| BudgetSubject { scope: BudgetScope::Key, id: Arc::clone(key) });
        [Some(user), key]
    }
}
