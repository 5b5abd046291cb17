//! `Lease` + `Job` → `Reply`: one call to one account, and what its failure means.
//!
//! One file for each protocol. This room never tries twice, never follows a redirect, and nothing that it says about
//! an account is for a caller: addresses and reasons go to the log, a class and a cause go to the corridor.
//! It carries the attempt classes of the money rules.

mod call;
mod calls;
mod classify;
mod edits;
mod images;
mod reply;
mod responses;
mod simulated;
mod simulator;
mod tool;
mod transport;

pub(crate) use calls::CallFailed;
pub(crate) use classify::{error_in_answer, is_refusal};
pub(crate) use reply::{Cause, Class, Failure, Reply, ReplyBody, ReplyError};
pub(crate) use transport::TransportError;

use std::time::Duration;

use tokio::time::Instant;

use super::accounts::{Endpoint, Lease};
use super::rules::Task;
use crate::tables::UPSTREAM_TLS_SECONDS;
use simulated::Studio;
use transport::{Settings, Transport};

/// Makes the calls. One for the process: connections and budgets are shared.
#[derive(Debug)]
pub(crate) struct Upstream {
    transport: Transport,
    studio: Studio,
}

// === impl Upstream ===

impl Upstream {
    /// Prepares connections; opens none. `connect` bounds the greeting; with `tls` the machine's certificates are read
    /// now, so that a start fails instead of every call.
    ///
    /// # Errors
    ///
    /// Where the machine's certificates cannot be read.
    pub(crate) fn new(connect: Duration, tls: bool) -> Result<Self, TransportError> {
        let settings = Settings {
            connect_timeout: connect,
            tls_timeout: Duration::from_secs(UPSTREAM_TLS_SECONDS),
            ..Settings::default()
        };
        let transport = Transport::new(settings)?;
        if tls {
            transport.prepare_tls()?;
        }
        Ok(Self { transport, studio: Studio::new() })
    }

    /// Loads the machine's certificates now, if that has not happened yet.
    ///
    /// # Errors
    ///
    /// Returns an error if they cannot be read.
    pub(crate) fn prepare_tls(&self) -> Result<(), TransportError> {
        self.transport.prepare_tls()
    }

    /// One attempt: returns when the upstream has answered with a head, or failed.
    pub(crate) async fn send<'a>(
        &self,
        lease: &Lease,
        task: impl Into<Task<'a>>,
        until: Instant,
    ) -> Result<Reply, Failure> {
        match (lease.endpoint(), task.into()) {
            (Endpoint::Simulator, Task::Images(job)) => self.studio.send(job).await,
            (Endpoint::Simulator, Task::Response(job)) => self.studio.respond(job).await,
            (Endpoint::Images(address), Task::Images(job)) => {
                images::send(&self.transport, lease, address, job, until).await
            }
            (Endpoint::Responses(host), Task::Response(job)) => {
                responses::send(&self.transport, lease, host.address(), job, until).await
            }
            (Endpoint::Responses(host), Task::Images(job)) => {
                tool::send(&self.transport, lease, host, job, until).await
            }
            // No lease is given out for this: what draws only cannot talk.
            (Endpoint::Images(_), Task::Response(_)) => Err(Failure::new(Class::N, Cause::Unreachable)),
        }
    }
}
