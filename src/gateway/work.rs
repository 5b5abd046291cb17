//! Work units: what requests cost the gateway itself, whether or not they become jobs.
//!
//! The limits of `limits` count jobs. A request that is refused, estimated, fetched for or repeated costs too, so every
//! request of a principal is charged here, and a user beyond `work_per_minute` is refused before a body is read. This
//! module decides the costs ([`cost`]) and whether a further request may begin ([`meter`]); it must not know requests.
//!
//! A cost that becomes known later is charged then: it may exceed the limit, and delays the next requests. All counts are
//! in the memory of this process and begin empty, so several nodes allow the work of a user once each.

mod cost;
mod meter;

pub(crate) use cost::Work;
pub(crate) use meter::{RequestWork, WORK_PER_MINUTE, WORK_WINDOW, WorkLimit, WorkMeter, WorkRefusal};
