//! Lists the registered routes for the drift tests.

use super::api_description;

/// Returns the operation, the method and the path of each route that the main listener registers. Empty if two routes
/// conflict.
#[must_use]
pub fn served_routes() -> Vec<[String; 3]> {
    let router = api_description().map(dropshot::ApiDescription::into_router);
    let routes = router.iter().flat_map(|router| router.endpoints(None));
    // The path that the iterator gives lacks the mark of a parameter for all further segments.
    let row = |endpoint: &dropshot::ApiEndpoint<_>| {
        [endpoint.operation_id.clone(), endpoint.method.to_string(), endpoint.path.clone()]
    };
    routes.map(|(_, _, endpoint)| row(endpoint)).collect()
}
