//! Rules about times.

use super::rules;

rules! {
    M010 "generated-at" Static Warning
    "`generated_at` is an RFC 3339 time with an offset."
    "Readers compare this time to find the newer of two manifests. A date alone, a local time or a number of seconds \
     cannot be compared with certainty. Write it as `2026-11-21T03:00:00Z`."

    M011 "updated-at" Static Warning
    "`updated_at` is an RFC 3339 time with an offset."
    "Installers show when a skill last changed and sort by it. Write it as `2026-11-20T18:30:00Z`, or leave the field \
     out."

    M012 "future-time" Static Warning
    "No time is in the future."
    "A time that is more than five minutes ahead of the checking machine comes from a wrong clock or a wrong time \
     zone, and makes every later manifest look older. Write the time in UTC, and check the clock of the machine."

    M013 "updated-later" Static Warning
    "No skill was updated later than the manifest was generated."
    "A manifest describes the skills at the time when it was made, so no `updated_at` can be after `generated_at`. \
     Generate the manifest again after the last change."

    M014 "time-form" Static Note
    "Times are written in UTC, as `2026-11-21T03:00:00Z`."
    "With one form, times sort as text, and the differences between two manifests stay small. `+00:00`, lower-case \
     letters and local offsets are valid, but not in this form."
}
