//! The order in which the other modules of the gateway handle a request. Only this module knows that order.
//!
//! Each operation has its own file. A request for images or a response passes these steps: `Caller` → `Job` → `Lease` →
//! `Reply` → `Record`; `Lease` and `Reply` repeat for each attempt. All such requests share one attempt loop
//! ([`attempt_loop`]).

mod account_call;
mod answer_size;
mod attempt_context;
mod attempt_deadlines;
mod attempt_history;
mod attempt_loop;
mod attempt_round;
mod attempt_types;
mod caller_admission;
mod caller_error;
mod cost_estimate;
mod delivered_images;
mod detachable_job;
mod early_stream;
mod fallback_order;
mod fan_out;
mod fan_out_branch;
mod fan_out_progress;
mod format_conversion;
mod gateway_answer;
mod gif_conversion;
mod group_permissions;
mod image_edit;
mod image_estimate;
mod image_files;
mod image_generation;
mod image_job;
mod image_models;
mod image_run;
mod image_services;
mod job_closing;
mod job_context;
mod job_run;
mod models;
mod prompt_screening;
mod record_draft;
mod refusal_count;
mod repeated_request;
mod request_adaptation;
mod request_failure;
mod request_limits;
mod request_options;
mod request_work;
mod response_creation;
mod shared_record;
mod strict_budget;
mod token_usage;
mod url_answer;
mod wait_preference;

pub(crate) use caller_admission::{admit, admit_owner};
pub(crate) use gateway_answer::{ADAPTED_HEADER, GatewayAnswer, GatewayAnswerBody, OperationAnswer};
pub(crate) use image_edit::edit_image;
pub(crate) use image_estimate::estimate_image;
pub(crate) use image_files::{LinkedImage, base_url, find_linked_image, link_paths};
pub(crate) use image_generation::create_image;
pub(crate) use image_models::{allowed_models, list_image_models};
pub(crate) use image_run::{
    IMAGE_OPERATIONS, ImageFileBody, find_image_run, find_image_run_by_id, list_image_runs, open_image,
};
pub(crate) use image_services::ImageServices;
pub(crate) use models::{list_models, retrieve_model};
pub(crate) use refusal_count::count_if_refused;
pub(crate) use request_failure::RequestFailure;
pub(crate) use request_options::{RequestOptions, read_host};
pub(crate) use request_work::{begin_of_actor, check_upload, count_repeat};
pub(crate) use response_creation::create_response;
