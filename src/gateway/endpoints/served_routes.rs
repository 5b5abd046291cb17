//! Lists the registered routes for the drift tests.

use super::api_description;

/// Returns each route that the main listener registers, as `METHOD path`. Empty if two routes conflict.
#[must_use]
pub fn served_routes() -> Vec<String> {
    let router = api_description().map(dropshot::ApiDescription::into_router);
    let routes = router.iter().flat_map(|router| router.endpoints(None));
    // The path that the iterator gives lacks the mark of a parameter for all further segments.
    routes.map(|(_, _, endpoint)| format!("{} {}", endpoint.method, endpoint.path)).collect()
}
