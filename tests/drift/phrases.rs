//! The phrases of prose that contain numbers, each with the origins of its numbers.
//!
//! A `{}` stands for a number. A phrase is checked in every text that contains it; if two phrases match the same words,
//! the earlier one is used. Numbers of the documents come from the folder that is checked, all others from the source.

use crate::facts::{Facts, source_number};

/// The origin of one number of a phrase.
pub(crate) type Origin = fn(&Facts<'_>) -> u64;

/// A phrase, and the origin of each number in it.
pub(crate) type Phrase = (&'static str, &'static [Origin]);

const MIB: u64 = 1024 * 1024;

/// Time, bytes and characters.
const LIMITS: &[Phrase] = &[
    ("a limit: {} units, or", &[|_| source_number("src/gateway/config.rs", "DEFAULT_WORK_PER_MINUTE: u32 = ")]),
    ("a request | {} |", &[|_| work_units("Self::Request => ")]),
    ("refused because of its content | {} more", &[|_| work_units("Self::Refusal | Self::Estimate => ")]),
    ("an estimate | {} |", &[|_| work_units("Self::Refusal | Self::Estimate => ")]),
    ("generations, MCP, the admin API | {} |", &[|_| work_units("Self::ParsedBytes(bytes) => by_size(bytes, ")]),
    ("a response request or a JSON edit | {} |", &[|_| work_units("Self::ScannedBytes(bytes) => by_size(bytes, ")]),
    ("or of a fetched image | {} |", &[|_| work_units("Self::SpooledBytes(bytes) => by_size(bytes, ")]),
    ("that is decompressed | {} more", &[|_| work_units("Self::DecodedBytes(bytes) => by_size(bytes, ")]),
    ("fetched by its address | {} |", &[|_| work_units("Self::FetchedImage => ")]),
    ("that is sent again | {} |", &[|_| work_units("Self::RepeatedBytes(bytes) => by_size(bytes, ")]),
    ("a preview for an agent | {} |", &[|_| work_units("Self::Preview => ")]),
    ("the admin API, or a page | {} |", &[|_| work_units("Self::Operation => ")]),
    ("a report of usage | {} more", &[|_| work_units("Self::Report => ")]),
    ("page that the console writes | {} |", &[|_| work_units("Self::WrittenBytes(bytes) => by_size(bytes, ")]),
    (
        "the newest {} records that pass the filter",
        &[|_| source_number("src/gateway/store/record.rs", "pub(crate) const SORTED_MAX: u32 = ")],
    ),
    (
        "the newest {} records that pass the other filters",
        &[|_| source_number("src/gateway/store/record.rs", "pub(crate) const SORTED_MAX: u32 = ")],
    ),
    (
        "larger than {} tokens of four bytes",
        &[|_| source_number("src/gateway/mcp/result.rs", "const RESULT_MAX_BYTES: usize = ") / 4],
    ),
    (
        "with the exit codes {} and {}",
        &[
            |_| source_number("src/cli/image_command/stop_signal.rs", "Self::Interrupt => "),
            |_| source_number("src/cli/image_command/stop_signal.rs", "Self::Terminate => "),
        ],
    ),
    (
        "the same command within {} hours gets the image",
        &[|_| {
            let path = "src/cli/image_command/unfinished_request.rs";
            source_number(path, "const KEY_LIFETIME: Duration = Duration::from_secs(") / 3600
        }],
    ),
    (
        "or after {} seconds, and then looks again",
        &[|_| source_number("src/gateway/pages/playground_run.rs", "const WAIT_MAX: Duration = Duration::from_secs(")],
    ),
    (
        "up to {} such requests of the last {} hours",
        &[
            |_| source_number("src/gateway/pages/stored_images.rs", "const RECENT_MAX: u32 = "),
            |_| source_number("src/gateway/replay.rs", "const RUN_WINDOW: Duration = Duration::from_secs(") / 3600,
        ],
    ),
    ("at most {} keys are", &[|_| source_number("src/client/unfinished_calls.rs", "const MAX_KEYS: usize = ")]),
    (
        "has waited for {} seconds returns",
        &[|_| source_number("src/gateway/mcp/image_tools.rs", "const WAIT_MAX: Duration = Duration::from_secs(")],
    ),
    (
        "all of its slots stay taken for {} seconds",
        &[|_| source_number("src/gateway/accounts.rs", "const HOME_WAIT_MAX: Duration = Duration::from_secs(")],
    ),
    (
        "remembered for {} days after their last use",
        &[|_| source_number("src/gateway/store/account_bindings.rs", "pub(crate) const BINDING_DAYS: u32 = ")],
    ),
    (
        "At most {} image tools of a request may differ",
        &[|_| source_number("src/gateway/rules/response/tool_summary.rs", "const IMAGE_TOOLS_MAX: usize = ")],
    ),
    (
        "these texts, up to {} MiB, in pieces",
        &[|_| source_number("src/gateway/flow/prompt_screening.rs", "const MODERATED_MAX: usize = ") / MIB],
    ),
    (
        "if nothing arrives for {} seconds",
        &[|_| source_number("src/cli/skills/web_client.rs", "silence: Duration::from_secs(")],
    ),
    ("never above {}", &[|facts| facts.limit("retry_after_max_seconds")]),
    ("every {} seconds; every reader", &[|facts| facts.limit("heartbeat_seconds")]),
    ("first comment after {} seconds", &[|facts| facts.limit("heartbeat_seconds")]),
    ("sent again every {} seconds while", &[|facts| facts.limit("image_call_heartbeat_seconds")]),
    (
        "takes up to {} minutes, one above `…` up to {}:",
        &[|facts| facts.limit("client_timeout_seconds") / 60, |facts| facts.limit("client_timeout_large_seconds") / 60],
    ),
    (
        "of your client to {} and {} seconds",
        &[|facts| facts.limit("client_timeout_seconds"), |facts| facts.limit("client_timeout_large_seconds")],
    ),
    (
        "Wait up to {} seconds, and {} for",
        &[|facts| facts.limit("client_timeout_seconds"), |facts| facts.limit("client_timeout_large_seconds")],
    ),
    ("that half is less than {} seconds", &[|facts| facts.limit("client_timeout_seconds")]),
    ("allow {} seconds for it", &[|facts| facts.limit("client_timeout_large_seconds")]),
    (
        "half of the time that is left, {} of {} minutes at first",
        &[|facts| facts.limit("request_total_seconds") / 120, |facts| facts.limit("request_total_seconds") / 60],
    ),
    ("give up at {} seconds", &[|facts| facts.limit("client_timeout_large_seconds")]),
    ("({} seconds by default)", &[|facts| facts.limit("answer_deadline_seconds")]),
    ("up to {} visible characters", &[|facts| facts.limit("idempotency_key_max_characters")]),
    ("answers for {} hours", &[|_| replay_seconds("idempotency_window") / 3600]),
    ("paid once within {} hours", &[|_| replay_seconds("idempotency_window") / 3600]),
    ("for {} minutes after it, also after a restart", &[|_| replay_seconds("orphan_window") / 60]),
    ("may be as large as {} MiB", &[|facts| facts.limit("max_responses_body_bytes") / MIB]),
    ("Conversations of up to {} MiB", &[|facts| facts.limit("max_responses_body_bytes") / MIB]),
    (
        "under {} MiB ({} bytes)",
        &[|facts| facts.limit("max_upload_image_bytes") / MIB, |facts| facts.limit("max_upload_image_bytes")],
    ),
    ("be under {} MiB", &[|facts| facts.limit("max_upload_image_bytes") / MIB]),
    ("must be smaller than {} MiB, and all images", &[|facts| facts.limit("max_upload_image_bytes") / MIB]),
    (
        "of which it follows at most {}.",
        &[|_| source_number("src/gateway/upstream/image_download.rs", "const MAX_REDIRECTS: usize = ")],
    ),
    ("each smaller than {} MiB", &[|facts| facts.limit("max_upload_image_bytes") / MIB]),
    (
        "{} images, a mask and {} MiB of text",
        &[
            |facts| facts.limit("max_edit_images"),
            |facts| {
                let files = (facts.limit("max_edit_images") + 1) * facts.limit("max_upload_image_bytes");
                facts.limit("max_edit_form_body_bytes").saturating_sub(files) / MIB
            },
        ],
    ),
    (
        "{} data URLs of the greatest length and {} MiB of text",
        &[
            |facts| facts.limit("max_edit_images") + 1,
            |facts| {
                let urls = (facts.limit("max_edit_images") + 1) * facts.component_number("ImageUrl", "maxLength");
                facts.limit("max_edit_json_body_bytes").saturating_sub(urls) / MIB
            },
        ],
    ),
    ("There must be {} to {} of them", &[|_| 1, |facts| facts.limit("max_edit_images")]),
    ("must arrive at {} KiB a second", &[|facts| facts.limit("client_body_bytes_per_second") / 1024]),
];

/// The four size rules.
const SIZES: &[Phrase] = &[
    ("longer than {} px", &[|facts| facts.size("max_edge_px")]),
    ("multiples of {} px", &[|facts| facts.size("grid_px")]),
    ("at most {} times the short edge", &[|facts| facts.size("max_ratio")]),
    ("between {} and {}, both", &[|facts| facts.size("min_pixels"), |facts| facts.size("max_pixels")]),
    (
        "both multiples of {}, no edge above {}, at most {}:{}, between {} and {} pixels",
        &[
            |facts| facts.size("grid_px"),
            |facts| facts.size("max_edge_px"),
            |facts| facts.size("max_ratio"),
            |_| 1,
            |facts| facts.size("min_pixels"),
            |facts| facts.size("max_pixels"),
        ],
    ),
];

/// Bounds and defaults: of the schema that the text describes, of components, and of grace periods.
const SCHEMAS: &[Phrase] = &[
    ("{} to {} characters", &[|facts| facts.schema_number("minLength"), |facts| facts.schema_number("maxLength")]),
    ("{} to {} letters", &[|facts| facts.schema_number("minLength"), |facts| facts.schema_number("maxLength")]),
    ("to make, {} to {}.", &[|facts| facts.schema_number("minimum"), |facts| facts.schema_number("maximum")]),
    ("the final one, {} to {}.", &[|facts| facts.schema_number("minimum"), |facts| facts.schema_number("maximum")]),
    (
        "{} is the smallest file, {} the best",
        &[|facts| facts.schema_number("minimum"), |facts| facts.schema_number("maximum")],
    ),
    ("only {} is accepted", &[|facts| facts.component_number("OutputCompression", "default")]),
    ("below {} with `…`", &[|facts| facts.component_number("OutputCompression", "default")]),
    ("above {} without `…`", &[|facts| facts.component_number("PartialImages", "default")]),
    ("`…` with `…` above {} (", &[|facts| facts.component_number("ImageCount", "default")]),
    ("With `…` only {} is possible", &[|facts| facts.component_number("ImageCount", "minimum")]),
    (
        "states, at most {} days for a window",
        &[|_| {
            let days = "const STATED_WAIT_MAX: Duration = Duration::from_secs(";
            source_number("src/gateway/accounts/cooldown.rs", days) / (24 * 3600)
        }],
    ),
    (
        "discarded for at most {} seconds, so that",
        &[|_| source_number("src/gateway/front/connection_activity.rs", " discard: Duration::from_secs(")],
    ),
    (
        "A rest of at most {} KiB is read",
        &[|_| source_number("src/gateway/front/request_body.rs", "const SMALL_REST_MAX: u64 = ") / 1024],
    ),
    (
        "sends nothing for {} seconds, or {} seconds have passed",
        &[
            |_| source_number("src/gateway/front/connection_activity.rs", " discard_idle: Duration::from_secs("),
            |_| source_number("src/gateway/front/connection_activity.rs", " discard: Duration::from_secs("),
        ],
    ),
    (
        "and at most {}, are in this state at once",
        &[|_| source_number("src/gateway/front/connections/closing.rs", "const CLOSING_CONNECTIONS_MAX: usize = ")],
    ),
    (
        "at most {} days",
        &[|_| source_number("src/gateway/keys.rs", "const LONGEST_GRACE: Duration = Duration::from_secs(") / 86_400],
    ),
];

/// Numbers that only the source has.
const SOURCES: &[Phrase] = &[
    (
        "free for the others after {} seconds",
        &[|_| {
            let constant = "const SHARED_SLOT_TIMEOUT: Duration = Duration::from_secs(";
            source_number("src/gateway/store/shared_slots.rs", constant)
        }],
    ),
    (
        "wait for up to {} seconds, in the order",
        &[|_| source_number("src/gateway/limits/limiter.rs", "const ROOM_WAIT: Duration = Duration::from_secs(")],
    ),
    ("lerts are kept for {} days", &[|_| alerts_kept_days()]),
    ("a row in the database for {} days", &[|_| alerts_kept_days()]),
    (
        "or {} % of the budget if that is less",
        &[|_| source_number("src/gateway/alerts/detection.rs", "const MOST_PERCENT: u64 = ")],
    ),
    (
        "after {} seconds without an answer, the delivery",
        &[|_| source_number("src/gateway/upstream/webhook_call.rs", "const TIMEOUT: Duration = Duration::from_secs(")],
    ),
    ("set one, once and within {} hours", &[|_| link_seconds("INVITATION_LIFETIME") / 3600]),
    ("set a password, once and within {} hours", &[|_| link_seconds("RESET_LINK_LIFETIME") / 3600]),
    (
        "fields beyond {} KiB in all",
        &[|_| source_number("src/gateway/relay/image_tool.rs", "const OTHER_MEMBERS_MAX: usize = ") / 1024],
    ),
    (
        "{} days with `…` as the last",
        &[|_| source_number("src/gateway/console/usage.rs", "const DEFAULT_DAYS: u32 = ")],
    ),
    ("of up to `…` pixels. {} when", &[|_| account_default("DEFAULT_CONCURRENCY")]),
    ("The maximum number of concurrent larger images. {} when", &[|_| account_default("DEFAULT_LARGE_CONCURRENCY")]),
    (
        "sends no request within {} seconds, or none for {} seconds",
        &[
            |_| source_number("src/gateway/front/connection_activity.rs", " head: Duration::from_secs("),
            |_| source_number("src/gateway/front/connection_activity.rs", " idle: Duration::from_secs("),
        ],
    ),
    (
        "For all requests together: `…` ({}) in memory and `…` ({}) on disk",
        &[|_| uploads("memory"), |_| uploads("disk")],
    ),
    (
        "sessions: `…` ({}) in memory and `…` ({}) on disk",
        &[|_| uploads("memory_per_user"), |_| uploads("disk_per_user")],
    ),
    (
        "For each key: `…` ({}) in memory and `…` ({}) on disk",
        &[|_| uploads("memory_per_key"), |_| uploads("disk_per_key")],
    ),
    // The statuses of HTTP for a head that is refused before the document applies.
    ("a longer one gets {}.", &[|_| 431]),
    ("The only transfer coding is `…` (else {})", &[|_| 501]),
    // RFC 4291, section 2.5.4: the last 64 bits of an address are those of an interface.
    ("one IPv6 network of {} bits", &[|_| 64]),
    ("reserved for the database: `…` ({})", &[|_| uploads("min_free")]),
    (
        "the price of {} tokens of `…` for each input image",
        &[|_| source_number("src/gateway/prices/estimate.rs", "const INPUT_IMAGE_TOKENS: u64 = ")],
    ),
    ("at least one, each from {} to {}. An absent", &[|_| 0, |_| u64::from(imagate::tables::PRICE_MAX_USD)]),
    ("are published, for people: at most {} bytes", &[|_| imagate::tables::ADMIN_MAX_PRICE_TEXT_BYTES]),
    (
        "a complete answer, from {} milliseconds to {} hour.",
        &[
            |_| imagate::tables::ADMIN_MIN_IMAGE_DEADLINE_MS,
            |_| imagate::tables::ADMIN_MAX_IMAGE_DEADLINE_MS / 3_600_000,
        ],
    ),
    (
        "Exit codes are {} done, {} failed, {} wrong usage, {} wrong settings",
        &[
            |_| 0,
            |_| source_number("src/cli/failure.rs", "const FAILED: u8 = "),
            |_| source_number("src/cli/failure.rs", "const USAGE: u8 = "),
            |_| source_number("src/cli/failure.rs", "const CONFIGURATION: u8 = "),
        ],
    ),
    (
        "the exit code is {} if there are errors, and {} if the command was wrong",
        &[
            |_| source_number("src/cli/failure.rs", "const FAILED: u8 = "),
            |_| source_number("src/cli/failure.rs", "const USAGE: u8 = "),
        ],
    ),
];

/// Statuses without an error code beside them, and numbers that this project did not choose.
const STATUSES: &[Phrase] = &[
    ("refused with {} at once", &[|facts| facts.status("request_too_large")]),
    ("refused with {}", &[|facts| facts.status("invalid_request_error")]),
    ("combination is a {} that names", &[|facts| facts.status("invalid_request_error")]),
    ("with another body it is a {}", &[|facts| facts.status("invalid_request_error")]),
    ("a slower one gets {}", &[|facts| facts.status("invalid_request_error")]),
    ("A request gets a {} if it names", &[|facts| facts.status("invalid_request_error")]),
    ("with {} only, if the encoding", &[|facts| facts.status("unsupported_media_type")]),
    ("with {} only", &[|facts| facts.status("INVALID_API_KEY")]),
    ("of another user is a {}", &[|facts| facts.status("key_not_found")]),
    ("that is a {}.", &[|facts| facts.status("permission_denied")]),
    (
        "of its user or key gets {}, and beyond one of all requests {}, before anything is spent",
        &[|facts| facts.status("rate_limit_exceeded"), |facts| facts.status("service_unavailable")],
    ),
    ("A {} of `…` names what does not", &[|facts| facts.status("service_unavailable")]),
    ("outcome is unknown ({} with", &[|facts| facts.status("upstream_error")]),
    // The statuses by which an upstream refuses an account.
    ("answers {}, {}, {} or {}, or states", &[|_| 401, |_| 402, |_| 403, |_| 429]),
    ("a {} or {} of the upstream", &[|_| 502, |_| 504]),
    // The statuses of Standard Webhooks.
    ("A status from {} to {} ends the delivery, and {} gives it up", &[|_| 200, |_| 299, |_| 410]),
    ("after the {} had been sent", &[|_| 200]),
    ("{}: the key is wrong or disabled", &[|facts| facts.status("INVALID_API_KEY")]),
    ("{}: look up the request", &[|facts| facts.status("upstream_error")]),
    ("from {}.", &[|_| 0]),
    ("`…` of {} or more", &[|_| 1]),
];

/// Every phrase. The order decides between phrases that match the same words.
pub(crate) fn phrases() -> impl Iterator<Item = &'static Phrase> {
    [LIMITS, SIZES, SOURCES, SCHEMAS, STATUSES].into_iter().flatten()
}

fn replay_seconds(field: &str) -> u64 {
    source_number("src/gateway/config/resolve.rs", &format!("{field}: Duration::from_secs("))
}

fn work_units(anchor: &str) -> u64 {
    source_number("src/gateway/work/cost.rs", anchor)
}

fn alerts_kept_days() -> u64 {
    source_number("src/gateway/alerts.rs", "const KEPT_FOR: Duration = Duration::from_secs(") / 86_400
}

fn link_seconds(name: &str) -> u64 {
    source_number("src/gateway/people/links.rs", &format!("const {name}: Duration = Duration::from_secs("))
}

fn account_default(name: &str) -> u64 {
    source_number("src/gateway/config/resolve/accounts.rs", &format!("const {name}: u32 = "))
}

fn uploads(name: &str) -> u64 {
    source_number("src/gateway/config.rs", &format!("        {name}: ")) >> 20
}
