//! Rules about times.

use super::rules;

rules! {
    M010 "generated-at" Static Warning
    "`generated_at` is a time of RFC 3339 with its offset."
    "Readers compare manifests by this time, to see which is newer. A date alone, a local time or a number of seconds \
     cannot be compared with certainty. Write it as `2026-11-21T03:00:00Z`."

    M011 "updated-at" Static Warning
    "`updated_at` is a time of RFC 3339 with its offset."
    "Installers show when a skill last changed and sort by it. Write it as `2026-11-20T18:30:00Z`, or leave the field \
     out."

    M012 "future-time" Static Warning
    "No time lies in the future."
    "A time more than five minutes ahead of the clock of whoever checks comes from a wrong clock or a wrong time zone, \
     and makes every manifest after it look older. Write the time in UTC, and check the clock of the machine."

    M013 "updated-later" Static Warning
    "No skill was updated later than the manifest was generated."
    "A manifest describes what was there when it was made, so no `updated_at` can lie after `generated_at`. Generate \
     the manifest again after the last change."

    M014 "time-form" Static Note
    "Times are written in UTC, as `2026-11-21T03:00:00Z`."
    "One form makes times sort as text and keeps differences between two manifests small. `+00:00`, small letters and \
     local offsets are right, but not in this form."
}
