//! Sign-in with a provider of OpenID Connect: with a real provider (`tests/clients/oidc_provider.mjs`), and with a fake
//! one that breaks every rule.

mod broken_provider;
mod connection;
mod first_sign_in;
mod flow;
mod forgery;
mod key_rotation;
mod real_provider;
mod step_up;
mod window;
