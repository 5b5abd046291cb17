//! The admin API from `openapi/admin.json`, in the same generated parts as the public API. Its client has types of its
//! own: those of the gateway check requests, so an answer of a newer gateway would not fit into them.

mount! {
    /// The data models of the admin API, as the gateway checks and makes them.
    #[cfg(feature = "gateway")]
    pub mod types from "../../generated/admin_types.rs"
}

/// The data models of the admin API, as a client reads them.
#[cfg(all(feature = "admin", not(target_arch = "wasm32")))]
pub(crate) mod open {
    mount! {
        /// The data models of the admin API. A word of an answer may be one that this version does not know, and a
        /// struct of an answer keeps members that it does not name in `extra`.
        pub mod types from "../../generated/admin_open_types.rs"
    }
}

mount! {
    /// The generated client; [`crate::client::admin`] creates it.
    #[cfg(all(feature = "admin", not(target_arch = "wasm32")))]
    pub mod client from "../../generated/admin_client.rs", beside crate::wire::admin::open::types
}

mount! {
    /// The trait of the admin API, which the gateway implements.
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
