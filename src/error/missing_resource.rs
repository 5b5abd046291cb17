//! The objects that can be missing, and the words for them.

use super::ApiErrorCode;
use super::url_advice::url_advice;

/// The resource that was not found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MissingResource {
    /// A model id.
    Model(String),
    /// A name or id of an upstream account. This variant and those below, up to `Record`, occur only in the console and
    /// in commands.
    Account(String),
    /// A key, by its id or public id.
    Key(String),
    /// A user, by id or name.
    User(String),
    /// A user whom a parameter names.
    UserParam {
        /// The parameter.
        param: &'static str,
        /// The id or name in it.
        user: String,
    },
    /// An admin token, by its id or public id.
    Token(String),
    /// A group, by its name.
    Group(String),
    /// A price of the store, by its model and its first day.
    Price(String),
    /// A record, by its request id.
    Record(String),
    /// The address does not exist.
    Url {
        /// The method, as sent.
        method: String,
        /// The path, as sent.
        path: String,
    },
    /// The address is one of Azure, and the caller does not have the dialect `azure`.
    UndeclaredUrl {
        /// The method, as sent.
        method: String,
        /// The path, as sent.
        path: String,
    },
    /// The address exists, but does not support the method.
    Method {
        /// The method, as sent.
        method: String,
        /// The path, as sent.
        path: String,
    },
}

// === impl MissingResource ===

impl MissingResource {
    pub(super) const fn code(&self) -> ApiErrorCode {
        match self {
            Self::Model(_) => ApiErrorCode::ModelNotFound,
            Self::Account(_) => ApiErrorCode::AccountNotFound,
            Self::Key(_) => ApiErrorCode::KeyNotFound,
            Self::User(_) | Self::UserParam { .. } => ApiErrorCode::UserNotFound,
            Self::Token(_) => ApiErrorCode::TokenNotFound,
            Self::Group(_) => ApiErrorCode::GroupNotFound,
            Self::Price(_) => ApiErrorCode::PriceNotFound,
            Self::Record(_) => ApiErrorCode::RecordNotFound,
            Self::Url { .. } | Self::UndeclaredUrl { .. } => ApiErrorCode::UnknownUrl,
            Self::Method { .. } => ApiErrorCode::MethodNotAllowed,
        }
    }
}

impl std::fmt::Display for MissingResource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Model(id) => write!(f, "The model '{id}' does not exist."),
            Self::Account(name) => write!(f, "The account '{name}' does not exist."),
            Self::Key(key) => write!(f, "The key '{key}' does not exist."),
            Self::User(user) | Self::UserParam { user, .. } => write!(f, "The user '{user}' does not exist."),
            Self::Token(token) => write!(f, "The admin token '{token}' does not exist."),
            Self::Group(name) => write!(f, "The group '{name}' does not exist."),
            Self::Price(price) => write!(f, "The store has no price of {price}."),
            Self::Record(id) => write!(f, "The record '{id}' does not exist."),
            Self::Url { method, path } => write!(f, "Invalid URL ({method} {path}).{}", url_advice(path)),
            Self::UndeclaredUrl { method, path } => write!(
                f,
                "Invalid URL ({method} {path}). The dialect 'azure' accepts this path; an administrator can declare it for \
                 the key or its group."
            ),
            Self::Method { method, path } => write!(f, "Not allowed to {method} on {path}"),
        }
    }
}
