//! The cost of images that have arrived: as their answer states it, or else by the prices that the service lists.
//!
//! The service is asked for its prices once, beside the first request, so that no image waits for them. No price is
//! built in here: without a stated one, the cost is not known, and is not printed as a number.

mod listed_prices;

use std::time::Duration;

use tokio::task::JoinSet;

use crate::client::{Client, Error, ErrorKind, ImageModel, Images, ModelName};
use listed_prices::ListedPrices;

/// The time within which the prices must arrive (our choice). A gateway answers from memory, and almost every image
/// takes longer than this.
const LIMIT: Duration = Duration::from_secs(3);

/// The cost of the images of one answer, in US dollars.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ImageCost {
    /// The service stated it with the answer.
    Stated(f64),
    /// The tokens of the answer at the prices that the service lists.
    ByPrices(f64),
    Unknown,
}

/// The prices of a service, from the question to the answer.
pub(super) enum PriceLookup {
    /// The service is being asked.
    Asked(JoinSet<Result<Vec<ImageModel>, Error>>),
    Answered(ListedPrices),
    /// There are no prices; the reason, if it is a fault of the service or of the network.
    Unanswered(Option<String>),
}

/// A request, as far as its cost depends on it.
pub(super) struct CostFactors {
    /// The model that the request names.
    pub(super) model: Option<String>,
    pub(super) is_edit: bool,
}

// === impl PriceLookup ===

impl PriceLookup {
    /// Asks the service for its prices, unless it is known to list none.
    pub(super) fn start(client: &Client) -> Self {
        if client.is_provider() {
            return Self::Unanswered(None);
        }
        let (client, mut task) = (client.clone(), JoinSet::new());
        task.spawn(async move { client.models().list_images_once(LIMIT).await });
        Self::Asked(task)
    }

    /// Returns the cost of an answer. Waits for the prices if they are needed.
    pub(super) async fn cost(&mut self, request: CostFactors, images: &Images) -> ImageCost {
        if let Some(stated) = stated_usd(images) {
            return ImageCost::Stated(stated);
        }
        self.finish().await;
        let Self::Answered(prices) = self else { return ImageCost::Unknown };
        let model = request.model.unwrap_or_else(|| ModelName::default().as_str().to_owned());
        prices.cost(&model, request.is_edit, images).map_or(ImageCost::Unknown, ImageCost::ByPrices)
    }

    /// Returns the reason why there are no prices, if it is a fault.
    pub(super) fn fault(&self) -> Option<String> {
        let Self::Unanswered(Some(fault)) = self else { return None };
        Some(format!("note: the prices of the service are not known: {fault}"))
    }

    async fn finish(&mut self) {
        if let Self::Asked(task) = self {
            *self = match task.join_next().await {
                Some(Ok(Ok(models))) => Self::Answered(ListedPrices::new(&models)),
                Some(Ok(Err(error))) => Self::Unanswered(is_fault(&error).then(|| error.to_string())),
                Some(Err(error)) => Self::Unanswered(Some(error.to_string())),
                None => Self::Unanswered(None),
            };
        }
    }
}

/// False if the error only shows that the service has no such list, as services that are no gateway.
fn is_fault(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Answer => error.status().is_some_and(|status| status >= 500 && status != 501),
        kind => kind != ErrorKind::Unintelligible,
    }
}

// === impl ImageCost ===

impl ImageCost {
    pub(super) fn usd(self) -> Option<f64> {
        match self {
            Self::Stated(usd) | Self::ByPrices(usd) => Some(usd),
            Self::Unknown => None,
        }
    }

    /// Returns the word for the origin of the amount.
    pub(super) fn source(self) -> Option<&'static str> {
        match self {
            Self::Stated(_) => Some("service"),
            Self::ByPrices(_) => Some("prices"),
            Self::Unknown => None,
        }
    }
}

/// Returns the cost that the answer states. `OpenRouter` does so in `usage.cost`, and LiteLLM in a header. A gateway of
/// this project states that nothing was paid: for images that were made before, and for those of its simulator.
fn stated_usd(images: &Images) -> Option<f64> {
    if images.is_replayed() || images.is_simulated() {
        return Some(0.0);
    }
    let stated = images.json().member("usage").and_then(|usage| usage.member("cost")?.read::<f64>());
    let stated = stated.or_else(|| images.meta().header("x-litellm-response-cost")?.parse().ok());
    stated.filter(|cost| cost.is_finite()).map(rounded_usd)
}

/// Rounds an amount to a billionth of a dollar, as the gateway does: sums of fractions have digits that mean nothing.
pub(super) fn rounded_usd(usd: f64) -> f64 {
    (usd * 1e9).round() / 1e9
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::client::{Transport, TransportError, TransportFuture, reqwest};

    /// Counts the requests, and sends none.
    struct RequestCount(AtomicUsize);

    impl Transport for RequestCount {
        fn send<'a>(&'a self, _: reqwest::Request, _: &'a reqwest::Client) -> TransportFuture<'a> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Box::pin(async { Err(TransportError::not_sent("the test sends nothing")) })
        }
    }

    /// Returns the number of requests for the prices of a service, and the note on its fault.
    fn asked(base_url: &str) -> (usize, Option<String>) {
        let count = Arc::new(RequestCount(AtomicUsize::new(0)));
        let builder = Client::builder().base_url(base_url).api_key("sk-test").transport(Arc::clone(&count));
        let client = builder.build().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let note = runtime.block_on(async {
            let mut lookup = PriceLookup::start(&client);
            lookup.finish().await;
            lookup.fault()
        });
        (count.0.load(Ordering::Relaxed), note)
    }

    #[test]
    fn the_provider_itself_is_not_asked_and_another_service_once() {
        assert_eq!(asked("https://api.openai.com/v1"), (0, None));
        let (requests, note) = asked("https://images.example/v1");
        assert_eq!(requests, 1, "not even a request that was never sent is sent again");
        assert!(note.unwrap().starts_with("note: the prices of the service are not known: "));
    }

    #[test]
    fn an_amount_has_no_digits_that_mean_nothing() {
        assert_eq!([0.1 + 0.2, 0.052_930_000_000_000_005].map(|usd| rounded_usd(usd).to_string()), ["0.3", "0.05293"]);
    }
}
