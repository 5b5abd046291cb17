//! Describes the image models that a caller may use: their parameters, and the prices in force.

use chrono::Utc;

use super::image_services::ImageServices;
use crate::gateway::config::{FIGURE_NAMES, FieldOperations, ImageModelSpec};
use crate::gateway::keys::Caller;
use crate::gateway::rules::operation_names;
use crate::wire::types;

/// The name of the price of an image. All other prices are those of a million tokens.
const PER_IMAGE: &str = "per_image";

/// Handles `GET /v1/images/models`, in the order of the models.
pub(crate) fn list_image_models(services: &ImageServices, caller: &Caller) -> types::ImageModelList {
    let data = allowed_models(services, caller).map(|model| describe(services, model)).collect();
    types::ImageModelList { object: types::ListObject::List, data, extra: serde_json::Map::new() }
}

/// Returns the image models that the limits of the key, its user and its group allow.
pub(crate) fn allowed_models<'a>(
    services: &'a ImageServices,
    caller: &'a Caller,
) -> impl Iterator<Item = &'a ImageModelSpec> {
    let is_allowed = move |model: &&ImageModelSpec| {
        caller.all_limits().filter_map(|limits| limits.written.models.as_ref()).all(|models| models.contains(&model.id))
    };
    services.settings.image_models.all().map(|model| &**model).filter(is_allowed)
}

/// Returns what can be asked of a model.
pub(super) fn capabilities(services: &ImageServices, model: &ImageModelSpec) -> types::ImageModelCapabilities {
    types::ImageModelCapabilities {
        operations: operation_names(FieldOperations::Both),
        supports_streaming: model.can_stream,
        passthrough: model.passes_unknown,
        parameters: services.settings.image_models.parameters(model),
        extra: serde_json::Map::new(),
    }
}

fn describe(services: &ImageServices, model: &ImageModelSpec) -> types::ImageModelDescription {
    types::ImageModelDescription {
        id: model.id.clone(),
        object: "image_model".to_owned(),
        name: model.name.clone(),
        capabilities: capabilities(services, model),
        prices: prices(services, &model.id),
        extra: serde_json::Map::new(),
    }
}

/// Returns the prices of a model today.
fn prices(services: &ImageServices, model: &str) -> Vec<types::ImageModelPrice> {
    let table = services.prices.table();
    let Some(price) = table.price(model, Utc::now().date_naive()) else { return Vec::new() };
    let figures = FIGURE_NAMES.into_iter().zip(price.price.figures.values());
    let known = figures.filter_map(|(name, price)| Some((name, price?)));
    known
        .map(|(name, price)| types::ImageModelPrice {
            billable: name.to_owned(),
            unit: if name == PER_IMAGE { "image" } else { "million_tokens" }.to_owned(),
            usd: price.dollars(),
            extra: serde_json::Map::new(),
        })
        .collect()
}
