//! The API documents from which code is generated, and the differences of their generated code.

/// An API document and the properties of its generated code.
#[derive(Debug)]
pub(crate) struct Api {
    /// The path from the root of the repository.
    pub(crate) document: &'static str,
    /// The prefix of the names of its generated files.
    pub(crate) prefix: &'static str,
    /// The name of the server trait.
    pub(crate) trait_name: &'static str,
    /// The type of the state that the generated client passes to every call, if there is one.
    pub(crate) inner: Option<&'static str>,
    /// The default timeout of the generated client.
    pub(crate) timeout_seconds: u64,
    /// Its answers may come from a service with more enumeration values than the document.
    pub(crate) has_open_answers: bool,
}

/// The API of the callers.
pub(crate) const GATEWAY: Api = Api {
    document: "openapi/gateway.json",
    prefix: "",
    trait_name: "GatewayApi",
    inner: Some("crate::client::Session"),
    // The longest call of the specification: an image above 2560x1440.
    timeout_seconds: 300,
    has_open_answers: true,
};

/// The API of the operators.
pub(crate) const ADMIN: Api = Api {
    document: "openapi/admin.json",
    prefix: "admin_",
    trait_name: "AdminApi",
    inner: None,
    timeout_seconds: 30,
    has_open_answers: false,
};
