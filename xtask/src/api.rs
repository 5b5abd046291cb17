//! The API documents from which code is generated, and the differences of their generated code.

/// An API document and the properties of its generated code.
#[derive(Debug)]
pub(crate) struct Api {
    /// The path from the root of the repository.
    pub(crate) document: &'static str,
    /// The prefix of the names of its generated files.
    pub(crate) prefix: &'static str,
    /// The name of its pages in the reference that the gateway serves.
    pub(crate) page: &'static str,
    /// The environment variable with the secret of a caller, in examples.
    pub(crate) secret_variable: &'static str,
    /// The name of the server trait.
    pub(crate) trait_name: &'static str,
    /// The generic type for which an implementation of the trait is generated, and the bound of its parameter, the server.
    pub(crate) endpoints: Option<(&'static str, &'static str)>,
    /// The type of the state that the generated client passes to every call, if there is one.
    pub(crate) inner: Option<&'static str>,
    /// The default timeout of the generated client.
    pub(crate) timeout_seconds: u64,
    /// The types of the generated client.
    pub(crate) client_types: ClientTypes,
}

/// The types of a generated client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientTypes {
    /// Those of the server. Words of answers are open: the gateway makes them, and the client reads any word.
    Shared,
    /// Types in this module and a file of their own, in which every component of an answer is open. The server checks
    /// requests with its types, so they have to be strict, and they share most components with answers.
    Own(&'static str),
}

/// The API of the callers.
pub(crate) const GATEWAY: Api = Api {
    document: "openapi/gateway.json",
    prefix: "",
    page: "gateway",
    secret_variable: "IMAGATE_API_KEY",
    trait_name: "GatewayApi",
    endpoints: None,
    inner: Some("crate::client::Session"),
    // The longest call of the specification: an image above 2560x1440.
    timeout_seconds: 300,
    client_types: ClientTypes::Shared,
};

/// The API of the operators.
pub(crate) const ADMIN: Api = Api {
    document: "openapi/admin.json",
    prefix: "admin_",
    page: "admin",
    secret_variable: "IMAGATE_ADMIN_TOKEN",
    trait_name: "AdminApi",
    endpoints: Some(("AdminEndpoints", "AdminServer")),
    inner: Some("crate::client::admin::AdminSession"),
    timeout_seconds: 30,
    client_types: ClientTypes::Own("crate::wire::admin::open::types"),
};
