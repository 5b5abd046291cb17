//! The models: text models as configured; the image models are retrievable although the list omits them.

use crate::error::{Error, Missing};
use crate::gateway::Gateway;
use crate::tables::{IMAGE_GENERATION_FIELDS, Kind, field};
use crate::wire::types;

/// The day the service began to serve models, in Unix seconds: clients only need a number here.
const CREATED: i64 = 1_776_729_600;
const OWNER: &str = "imagate";

/// `GET /v1/models`. Its order is that of the configuration.
pub(crate) fn list_models(gateway: &Gateway) -> types::ModelList {
    let data = gateway.models().iter().map(|id| model(id)).collect();
    types::ModelList { object: types::ListObject::List, data, extra: serde_json::Map::new() }
}

/// `GET /v1/models/{model}`.
///
/// # Errors
///
/// 404 for an id that is not served.
pub(crate) fn retrieve_model(gateway: &Gateway, id: &str) -> Result<types::Model, Error> {
    let known = gateway.models().iter().any(|model| model == id) || image_models().contains(&id);
    if known { Ok(model(id)) } else { Err(Error::NotFound(Missing::Model(id.to_owned()))) }
}

/// The ids that the document allows in a generation.
fn image_models() -> &'static [&'static str] {
    match field(IMAGE_GENERATION_FIELDS, "model").map(|field| field.kind) {
        Some(Kind::Choice(ids)) => ids,
        _ => &[],
    }
}

fn model(id: &str) -> types::Model {
    types::Model {
        id: id.to_owned(),
        object: types::ModelObject::Model,
        created: CREATED,
        owned_by: OWNER.to_owned(),
        shutdown_date: None,
        extra: serde_json::Map::new(),
    }
}
