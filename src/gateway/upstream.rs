//! Makes one call of a job to the account of a [`Lease`], and classifies its failure.
//!
//! There is one file for each protocol. The module never repeats a call and never follows a redirect. It returns an
//! attempt class of the money rules and a cause to the request flow; addresses and reasons go only to the log, so
//! callers see nothing about an account.

mod failure_cause;
mod failure_classification;
mod fetched_answer;
mod generation_call;
mod image_download;
mod image_tool;
mod images;
mod masked_body;
mod multipart_form;
mod oidc_call;
mod reply;
mod responses;
mod service_calls;
mod simulated_upstream;
mod simulator;
mod transport;
mod webhook_call;

pub(crate) use failure_cause::{AccountFinding, AttemptFailure, BoundContext, FailureCause, FailureConsequences};
pub(crate) use failure_classification::{
    FaultScope, classify_imageless_answer, is_fault_of_request, is_image_parameter,
};
pub(crate) use fetched_answer::AddressedAnswer;
pub(crate) use image_download::{DownloadError, ImageDownloader};
pub(crate) use oidc_call::OidcClient;
pub(crate) use reply::{Reply, ReplyBody, ReplyError};
pub(crate) use service_calls::ServiceCallError;
pub(crate) use transport::TransportError;
pub(crate) use webhook_call::WebhookClient;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::accounts::{AccountEndpoint, Lease};
use super::admission::RequestBudgets;
use super::config::AddressPolicy;
use super::rules::TaskRef;
use crate::tables::UPSTREAM_TLS_SECONDS;
use simulated_upstream::SimulatedUpstream;
use transport::{Transport, TransportSettings};

/// Makes the calls to upstreams. The process has one client, because connections and budgets are shared.
#[derive(Debug)]
pub(crate) struct UpstreamClient {
    transport: Transport,
    simulator: SimulatedUpstream,
}

// === impl UpstreamClient ===

impl UpstreamClient {
    /// Prepares the client; opens no connection. The decoders of answers are charged to `budgets`. `connect_timeout` limits
    /// the name resolution and the connection together.
    ///
    /// # Errors
    ///
    /// Returns an error if the client cannot be prepared.
    pub(crate) fn new(
        connect_timeout: Duration,
        addresses: AddressPolicy,
        budgets: Arc<RequestBudgets>,
    ) -> Result<Self, TransportError> {
        let settings = TransportSettings {
            connect_timeout,
            addresses,
            budgets,
            tls_timeout: Duration::from_secs(UPSTREAM_TLS_SECONDS),
            ..TransportSettings::default()
        };
        Ok(Self { transport: Transport::new(settings)?, simulator: SimulatedUpstream::new() })
    }

    /// Loads the machine's certificates now, if that has not happened yet, so that a missing certificate store makes the
    /// start fail rather than every call.
    ///
    /// # Errors
    ///
    /// Returns an error if the certificates cannot be read.
    pub(crate) fn prepare_tls(&self) -> Result<(), TransportError> {
        self.transport.prepare_tls()
    }

    /// Makes one attempt. Returns when the headers of the upstream's answer have arrived, or the attempt has failed.
    pub(crate) async fn send<'a>(
        &self,
        lease: &Lease,
        task: impl Into<TaskRef<'a>>,
        until: Instant,
    ) -> Result<Reply, AttemptFailure> {
        match (lease.endpoint(), task.into()) {
            (AccountEndpoint::Simulator, TaskRef::Images(job)) => self.simulator.draw_images(job).await,
            (AccountEndpoint::Simulator, TaskRef::Response(job)) => self.simulator.begin_response(job).await,
            (AccountEndpoint::Images(address), TaskRef::Images(job)) => {
                images::send(&self.transport, lease, address, job, until).await
            }
            (AccountEndpoint::Responses(host), TaskRef::Response(job)) => {
                responses::send(&self.transport, lease, host.address(), job, until).await
            }
            (AccountEndpoint::Responses(host), TaskRef::Images(job)) => {
                image_tool::send(&self.transport, lease, host, job, until).await
            }
            // The selection grants no such lease: an account that only makes images cannot answer a response request.
            (AccountEndpoint::Images(_), TaskRef::Response(_)) => Err(AttemptFailure::new(FailureCause::NoConnection)),
        }
    }
}
