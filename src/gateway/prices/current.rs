//! The table of prices that is in force. It changes while requests run; each record uses the one at its end.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use super::table::PriceTable;
use crate::gateway::config::ModelPrice;
use crate::gateway::store::{PriceStore, StoreError};

/// The pause between two reads of the store (our choice): the maximum delay until the price that a command sets takes
/// effect.
const REFRESH_INTERVAL: Duration = Duration::from_secs(2);

/// The table of prices in force, shared by all requests.
#[derive(Debug)]
pub(crate) struct CurrentPrices {
    table: RwLock<Arc<PriceTable>>,
    /// The prices that the table was made of. The lock is held while the table is made, so that a change of one of them
    /// cannot undo a change of the other.
    sources: Mutex<PriceSources>,
}

#[derive(Debug, Default)]
struct PriceSources {
    file: Vec<ModelPrice>,
    store: Vec<ModelPrice>,
}

// === impl CurrentPrices ===

impl CurrentPrices {
    /// Creates the table of these prices of the configuration file and of the store.
    pub(crate) fn new(file: &[ModelPrice], store: Vec<ModelPrice>) -> Self {
        let table = RwLock::new(Arc::new(PriceTable::new(file, &store)));
        Self { table, sources: Mutex::new(PriceSources { file: file.to_vec(), store }) }
    }

    /// Returns the table.
    pub(crate) fn table(&self) -> Arc<PriceTable> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the prices of the configuration file.
    pub(crate) fn set_file_prices(&self, prices: &[ModelPrice]) {
        self.change(|sources| prices.clone_into(&mut sources.file));
    }

    /// Replaces the prices of the store.
    pub(crate) fn set_store_prices(&self, prices: Vec<ModelPrice>) {
        let is_same = self.sources.lock().unwrap_or_else(PoisonError::into_inner).store == prices;
        if !is_same {
            self.change(|sources| sources.store = prices);
        }
    }

    /// Reads the prices of the store, and starts the task that reads them again and again, because commands change them. The
    /// task ends with the last reference to these prices.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read.
    pub(crate) async fn start(file: &[ModelPrice], store: Arc<dyn PriceStore>) -> Result<Arc<Self>, StoreError> {
        let prices = Arc::new(Self::new(file, store.list_prices().await?));
        let refreshed = Arc::downgrade(&prices);
        tokio::runtime::Handle::current().spawn(async move {
            while let Some(prices) = refreshed.upgrade() {
                prices.read_store(&*store).await;
                drop(prices);
                tokio::time::sleep(REFRESH_INTERVAL).await;
            }
        });
        Ok(prices)
    }

    async fn read_store(&self, store: &dyn PriceStore) {
        match store.list_prices().await {
            Ok(stored) => self.set_store_prices(stored),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(error, "the prices could not be read; the read will be repeated");
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut PriceSources)) {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut sources);
        let table = Arc::new(PriceTable::new(&sources.file, &sources.store));
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = table;
    }
}
