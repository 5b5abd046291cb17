//! Lists and retrieves models. The list has the text models that the group may use, and the image models if the operator
//! has chosen so; an image model can be retrieved although the list omits it.

use super::image_models;
use super::image_services::ImageServices;
use super::refusal_count::count_if_refused;
use crate::error::{Error, MissingResource};
use crate::gateway::catalog::TextModel;
use crate::gateway::config::ImageModelSpec;
use crate::gateway::keys::Caller;
use crate::wire::types;

/// The time of creation of a model whose upstream states none, in Unix seconds (our choice): clients only need a
/// number.
const DEFAULT_CREATED: i64 = 1_776_729_600;
/// The owner of a model whose upstream states none.
const DEFAULT_OWNER: &str = "imagate";

/// Handles `GET /v1/models`, in a stable order: text models before image models.
pub(crate) async fn list_models(services: &ImageServices, caller: &Caller) -> types::ModelList {
    let mut data: Vec<_> = list_text_models(services, caller).await.into_iter().map(to_wire_text_model).collect();
    if services.settings.image_models.are_listed() {
        let models = image_models::allowed_models(services, caller);
        data.extend(models.map(|model| to_wire_image_model(services, model)));
    }
    types::ModelList { object: types::ListObject::List, data, extra: serde_json::Map::new() }
}

/// Handles `GET /v1/models/{model}`. An image model is answered without a call to any upstream.
///
/// # Errors
///
/// Returns 404 for an id that is not served.
pub(crate) async fn retrieve_model(services: &ImageServices, caller: &Caller, id: &str) -> Result<types::Model, Error> {
    if let Some(model) = services.settings.image_models.for_group(caller.group_name()).find(id) {
        return Ok(types::Model { id: id.to_owned(), ..to_wire_image_model(services, &model) });
    }
    let model = list_text_models(services, caller).await.into_iter().find(|model| model.id == id);
    let model = model.map(to_wire_text_model).ok_or_else(|| Error::NotFound(MissingResource::Model(id.to_owned())));
    count_if_refused(&services.keys, caller, model)
}

/// Lists the text models, without image models that an upstream lists or the operator has added.
async fn list_text_models(services: &ImageServices, caller: &Caller) -> Vec<TextModel> {
    let group = caller.group_name();
    let image_models = services.settings.image_models.for_group(group);
    let mut models = services.catalog.models_for_group(group, caller.group().text_models.as_deref()).await;
    models.retain(|model| !image_models.contains(&model.id));
    models
}

fn to_wire_text_model(model: TextModel) -> types::Model {
    to_wire_model(model.id, model.created, model.owned_by)
}

fn to_wire_image_model(services: &ImageServices, model: &ImageModelSpec) -> types::Model {
    let capabilities = Some(image_models::capabilities(services, model));
    types::Model { capabilities, ..to_wire_model(model.id.clone(), None, None) }
}

fn to_wire_model(id: String, created: Option<i64>, owned_by: Option<String>) -> types::Model {
    types::Model {
        id,
        object: types::ModelObject::Model,
        created: created.unwrap_or(DEFAULT_CREATED),
        owned_by: owned_by.unwrap_or_else(|| DEFAULT_OWNER.to_owned()),
        shutdown_date: None,
        capabilities: None,
        extra: serde_json::Map::new(),
    }
}
