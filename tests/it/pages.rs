//! The pages of the console in a real Chromium that can reach only the gateway, with and without JavaScript; and
//! requests that an attacker sends to the pages.

mod accounts;
mod album;
mod browser;
mod browser_driver;
mod budgets;
mod cors;
mod failures;
pub(crate) mod first_form;
mod forgery;
mod groups;
mod harness;
mod hostile;
mod identity_proof;
mod key_dialects;
mod key_list;
mod keyboard;
mod limits;
mod members;
mod playground;
mod playground_runs;
mod playground_tour;
mod prices;
mod provider_sign_in;
mod reference;
mod request_limits;
mod second_factor;
mod seed;
mod sessions;
mod stale_forms;
mod usage_views;
pub(crate) mod users;
pub(crate) mod visitor;
mod walk;
