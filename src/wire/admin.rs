//! The API of the operators, as `openapi/admin.json` has it: the same again as for the API of the callers.

mount! {
    /// The data models of the operators' API.
    pub mod types from "../../generated/admin_types.rs"
}

mount! {
    /// The client as generated; [`crate::client::admin`] makes one.
    #[cfg(feature = "admin")]
    pub mod client from "../../generated/admin_client.rs", beside crate::wire::admin::types
}

mount! {
    /// The trait that the gateway serves to operators.
    #[cfg(feature = "gateway")]
    pub(crate) mod server from "../../generated/admin_server.rs", beside crate::wire::admin::types, beside crate::gateway::front
}

mount! {
    /// The schema of each type, for the description of what is served.
    #[cfg(feature = "gateway")]
    mod schemas from "../../generated/admin_schemas.rs", beside crate::wire::admin::types
}

/// What generated code calls to answer from the document.
#[cfg(feature = "gateway")]
mod served {
    use std::sync::LazyLock;

    use schemars::r#gen::SchemaGenerator;
    use schemars::schema::Schema;

    use crate::tables;
    use crate::wire::served::Components;

    static COMPONENTS: LazyLock<Components> = LazyLock::new(|| Components::of(tables::ADMIN_OPENAPI));

    pub(super) fn component(name: &str, generator: &mut SchemaGenerator) -> Schema {
        COMPONENTS.component(name, generator)
    }

    pub(super) fn schema(json: &str, generator: &mut SchemaGenerator) -> Schema {
        COMPONENTS.schema(json, generator)
    }
}
