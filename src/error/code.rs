//! The codes of the error table. The drift test compares them with the documents in both directions.

use crate::tables;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $status:literal, $kind:literal;)+) => {
        /// A row of the error table: the stable code that programs compare.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum ApiErrorCode { $($(#[$doc])* $name,)+ }

        impl ApiErrorCode {
            /// All codes.
            #[cfg(test)]
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)+];

            /// Returns `error.code`.
            pub(crate) const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// Returns the HTTP status of the code.
            pub(crate) const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)+ }
            }

            /// Returns `error.type`.
            pub(crate) const fn kind(self) -> &'static str {
                match self { $(Self::$name => $kind,)+ }
            }
        }
    };
}

codes! {
    /// The key is absent, unknown, disabled, deleted or expired.
    InvalidApiKey = "INVALID_API_KEY", 401, "authentication_error";
    /// A parameter is invalid, or conflicts with another parameter.
    InvalidRequest = "invalid_request_error", 400, "invalid_request_error";
    /// No account can read encrypted content of the request.
    InvalidEncryptedContent = "invalid_encrypted_content", 400, "invalid_request_error";
    /// The usage window of the upstream accounts is exhausted.
    UsageLimitReached = "usage_limit_reached", 429, "usage_limit_reached";
    /// The upstream gave no image, the network failed, or the content was refused.
    UpstreamError = "upstream_error", 502, "upstream_error";
    /// No account may serve this request.
    NoAvailableAccounts = "no_available_accounts", 503, "server_error";
    /// There are too many requests at the moment, or the unfinished requests of the key use up its budget.
    RateLimitExceeded = "rate_limit_exceeded", 429, "rate_limit_error";
    /// A limit by the day, or a budget, is used up.
    InsufficientQuota = "insufficient_quota", 429, "insufficient_quota";
    /// There is a budget, but the model has no price.
    PriceUnknown = "price_unknown", 503, "server_error";
    /// The answer deadline of a plain request has passed, and its job still runs.
    ImageInProgress = "image_in_progress", 409, "server_error";
    /// The body, or one file in it, is too large.
    RequestTooLarge = "request_too_large", 413, "invalid_request_error";
    /// The content type or content encoding is not supported here.
    UnsupportedMediaType = "unsupported_media_type", 415, "invalid_request_error";
    /// The address does not exist.
    UnknownUrl = "unknown_url", 404, "invalid_request_error";
    /// The address does not support this method.
    MethodNotAllowed = "method_not_allowed", 405, "invalid_request_error";
    /// No model has this id.
    ModelNotFound = "model_not_found", 404, "invalid_request_error";
    /// The caller may not do this, or a decision of an admin about the key forbids it.
    PermissionDenied = "permission_denied", 403, "invalid_request_error";
    /// No key has this id or public id.
    KeyNotFound = "key_not_found", 404, "invalid_request_error";
    /// No user has this id or name.
    UserNotFound = "user_not_found", 404, "invalid_request_error";
    /// No admin token has this id or public id.
    TokenNotFound = "token_not_found", 404, "invalid_request_error";
    /// No group has this name.
    GroupNotFound = "group_not_found", 404, "invalid_request_error";
    /// No record has this request id.
    RecordNotFound = "record_not_found", 404, "invalid_request_error";
    /// The member already has the maximum number of keys, or has deleted too many keys within a day.
    KeyLimitReached = "key_limit_reached", 409, "invalid_request_error";
    /// The user already has the maximum number of admin tokens.
    TokenLimitReached = "token_limit_reached", 409, "invalid_request_error";
    /// A user has this name already.
    UserExists = "user_exists", 409, "invalid_request_error";
    /// A group has this name already.
    GroupExists = "group_exists", 409, "invalid_request_error";
    /// Keys belong to the group, or it is the default group.
    GroupInUse = "group_in_use", 409, "invalid_request_error";
    /// The group comes from the settings file, so it can only be changed or removed in that file.
    GroupReadOnly = "group_read_only", 409, "invalid_request_error";
    /// No other admin would be able to sign in.
    LastAdmin = "last_admin", 409, "invalid_request_error";
    /// No account has this name or id.
    AccountNotFound = "account_not_found", 404, "invalid_request_error";
    /// An account has this name already.
    AccountExists = "account_exists", 409, "invalid_request_error";
    /// The account comes from the settings file, so the requested change can only be made in that file.
    AccountReadOnly = "account_read_only", 409, "invalid_request_error";
    /// The store has no price of this model from this day on.
    PriceNotFound = "price_not_found", 404, "invalid_request_error";
    /// The price comes from the settings file, so it can only be changed or removed in that file.
    PriceReadOnly = "price_read_only", 409, "invalid_request_error";
    /// A fault of the gateway.
    InternalError = "internal_error", 500, "server_error";
    /// The store does not answer.
    ServiceUnavailable = "service_unavailable", 503, "server_error";
}

impl ApiErrorCode {
    /// Returns the message from the error tables of the documents, for errors without details of their own.
    pub(crate) fn message(self) -> &'static str {
        let row = tables::ERRORS.iter().chain(tables::ADMIN_ERRORS).find(|row| row.code == self.as_str());
        // The drift test ensures that the row exists. If it is missing, the answer is sent with a general message.
        row.map_or("The request failed", |row| row.message)
    }
}
