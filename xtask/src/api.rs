//! The documents that code is generated from, and in what their code differs.

/// A document, and how its code is called.
#[derive(Debug)]
pub(crate) struct Api {
    /// Where it stands, from the root of the repository.
    pub(crate) document: &'static str,
    /// What the names of its files begin with.
    pub(crate) prefix: &'static str,
    /// The trait that serves it.
    pub(crate) trait_name: &'static str,
    /// What its client carries along with every call, if anything.
    pub(crate) inner: Option<&'static str>,
    /// How long its client waits by itself.
    pub(crate) timeout_seconds: u64,
    /// Its answers may come from a service that knows more words than the document.
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
