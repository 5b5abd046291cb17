//! The operations on alerts.

use super::error_conversion::from_store_error;
use super::request_fields::page_size;
use super::{Console, list_object, require_admin};
use crate::error::Error;
use crate::gateway::alerts::{self, alert_data};
use crate::gateway::people::Actor;
use crate::gateway::store::{AlertRow, DeliveryRow};
use crate::wire::admin::server::ListAlertsQuery;
use crate::wire::admin::types;

// === impl Console ===

impl Console {
    /// Returns the newest alerts. For admins.
    ///
    /// # Errors
    ///
    /// 403 for members.
    pub(crate) async fn list_alerts(&self, actor: &Actor, query: &ListAlertsQuery) -> Result<types::AlertList, Error> {
        require_admin(actor)?;
        let rows = self.store.list_alerts(page_size(query.limit)).await.map_err(from_store_error)?;
        let data = rows.into_iter().map(to_wire_alert).collect();
        Ok(types::AlertList { object: list_object(), data })
    }

    /// Sends a test by each channel of the settings, and stores nothing. For admins.
    ///
    /// # Errors
    ///
    /// 403 for members.
    pub(crate) async fn test_alerts(&self, actor: &Actor) -> Result<types::AlertTestList, Error> {
        require_admin(actor)?;
        let data = alerts::send_test(&self.config.alerts).await.map_err(from_store_error)?;
        Ok(types::AlertTestList { object: list_object(), data })
    }

    /// True if alerts are delivered by at least one channel.
    pub(crate) fn delivers_alerts(&self) -> bool {
        self.config.alerts.webhook.is_some() || self.config.alerts.email.is_some()
    }
}

fn to_wire_alert(AlertRow { alert, deliveries }: AlertRow) -> types::Alert {
    types::Alert {
        id: alert.id,
        type_: alert.event,
        created_at: alert.created_at.into(),
        data: alert_data(&alert.details),
        deliveries: deliveries.into_iter().map(to_wire_delivery).collect(),
    }
}

fn to_wire_delivery(row: DeliveryRow) -> types::AlertDelivery {
    types::AlertDelivery {
        channel: row.channel,
        // The store writes only the words of the document.
        state: row.state.parse().unwrap_or(types::AlertDeliveryState::Pending),
        attempts: row.attempts.into(),
        at: row.due_at.into(),
        last_error: row.last_error,
    }
}
