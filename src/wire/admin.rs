//! The API of the operators from `openapi/admin.json`, with the same parts as the API of the callers.

mount! {
    /// The data models of the operators' API.
    pub mod types from "../../generated/admin_types.rs"
}

mount! {
    /// The generated client; [`crate::client::admin`] creates it.
    #[cfg(feature = "admin")]
    pub mod client from "../../generated/admin_client.rs", beside crate::wire::admin::types
}

mount! {
    /// The trait that the gateway serves to operators.
    #[cfg(feature = "gateway")]
    pub(crate) mod server from "../../generated/admin_server.rs", beside crate::wire::admin::types, beside crate::gateway::front
}

mount! {
    /// The schema of each type, for the description of the served API.
    #[cfg(feature = "gateway")]
    mod schemas from "../../generated/admin_schemas.rs", beside crate::wire::admin::types
}

/// The functions that generated code calls to take schemas from the document.
#[cfg(feature = "gateway")]
mod served {
    use std::sync::LazyLock;

    use schemars::r#gen::SchemaGenerator;
    use schemars::schema::Schema;

    use crate::tables;
    use crate::wire::served::SchemaComponents;

    static COMPONENTS: LazyLock<SchemaComponents> =
        LazyLock::new(|| SchemaComponents::from_document(tables::ADMIN_OPENAPI));

    pub(super) fn component(name: &str, generator: &mut SchemaGenerator) -> Schema {
        COMPONENTS.component(name, generator)
    }

    pub(super) fn schema(json: &str, generator: &mut SchemaGenerator) -> Schema {
        COMPONENTS.schema(json, generator)
    }
}
