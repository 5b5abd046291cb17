//! One request with everything that it takes to answer it, of either kind.

use std::future::pending;
use std::sync::{Arc, OnceLock};

use super::attempt::Asker;
use super::made::Made;
use super::{Ask, deliver, respond};
use crate::error::{Error, Fault};
use crate::gateway::Gateway;
use crate::gateway::config::Fallback;
use crate::gateway::keys::Caller;
use crate::gateway::ledger::{OpenRecord, Outcome};
use crate::gateway::replay::Expected;
use crate::gateway::rules::SharedTask;

/// One request, with everything that it takes to answer it.
pub(super) struct Work {
    pub(super) gateway: Arc<Gateway>,
    pub(super) caller: Caller,
    pub(super) ask: Ask,
    pub(super) task: SharedTask,
    /// By what a client's own retry is known.
    fingerprint: OnceLock<[u8; 32]>,
}

// === impl Work ===

impl Work {
    pub(super) fn new(gateway: &Arc<Gateway>, caller: Caller, ask: Ask, task: SharedTask) -> Self {
        Self { gateway: Arc::clone(gateway), caller, ask, task, fingerprint: OnceLock::new() }
    }

    /// By what a retry of the client's own is known, also after a restart. To be asked for before the job begins.
    pub(super) async fn expected(&self) -> Expected {
        let marks_retries = self.ask.marks_retries();
        let found = self.gateway.replay().fingerprint(&self.caller, &self.task, marks_retries).await;
        let fingerprint = found.map(|found| *self.fingerprint.get_or_init(|| found));
        Expected { request_id: self.ask.request_id.clone(), marks_retries, fingerprint }
    }

    /// The same where it is known.
    pub(super) fn fingerprint(&self) -> Option<[u8; 32]> {
        self.fingerprint.get().copied()
    }

    /// The whole job, from its intent on. `abandoned` resolves when nobody wants it any more; it is asked as long as
    /// nothing was spent.
    pub(super) async fn begin(self: &Arc<Self>, abandoned: impl Future<Output = ()> + Send) -> Result<Made, Error> {
        let record = self.open().await?;
        self.make(record, abandoned).await
    }

    /// The same for a caller who takes the job along when leaving, at whatever point this future is dropped.
    pub(super) async fn begin_with_caller(self: &Arc<Self>) -> Result<Made, Error> {
        let mut record = self.open().await?;
        record.when_dropped(Outcome::cancelled());
        self.make(record, pending()).await
    }

    /// Whether a lesser image is rather wanted than none: the caller's word, or else the group's. Of a response nothing is
    /// lesser.
    fn takes_fallback(&self) -> bool {
        let group = self.gateway.fallback(self.caller.group_name()) == Fallback::Ladder;
        matches!(self.task, SharedTask::Images(_)) && self.ask.fallback.unwrap_or(group)
    }

    pub(super) fn asker(&self) -> Asker<'_> {
        Asker { gateway: &self.gateway, caller: &self.caller, fallback: self.takes_fallback() }
    }

    /// Some clients send a request again whose answer broke off, although they have been told not to.
    pub(super) async fn remember_break(&self) {
        if !self.task.stream() && self.ask.idempotency_key.is_none() {
            let broken = Error::Upstream(Fault::Broken);
            self.gateway.replay().remember(&self.caller, self.task.clone(), &broken).await;
        }
    }

    /// The intent, durable before the first upstream byte.
    async fn open(&self) -> Result<OpenRecord, Error> {
        let draft = match &self.task {
            SharedTask::Images(job) => deliver::draft(self, job),
            SharedTask::Response(job) => respond::draft(self, job),
        };
        self.gateway.ledger().open(draft).await.map_err(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "an intent could not be recorded");
            Error::Unavailable
        })
    }

    /// In a box: it is the larger part of what a request holds while it waits.
    async fn make(
        self: &Arc<Self>,
        record: OpenRecord,
        abandoned: impl Future<Output = ()> + Send,
    ) -> Result<Made, Error> {
        match &self.task {
            SharedTask::Images(job) => Box::pin(deliver::make(self, job, record, abandoned)).await,
            SharedTask::Response(job) => Box::pin(respond::make(self, job, record, abandoned)).await,
        }
    }
}
