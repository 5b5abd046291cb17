//! Rules about names, versions and texts for people, and about releases that are listed twice.

use super::rules;

rules! {
    M030 "skill-name" Static Warning
    "Skill names follow the rules of Agent Skills."
    "A skill is installed into a folder with its name, and agents call it by this name. Agent Skills allows 1 to 64 \
     lower-case letters, digits and hyphens, no hyphen at the start or end, and no two hyphens in a row; letters \
     outside ASCII must be in NFKC form. Write `image-generation` instead of `Image_Generation`."

    M031 "name-case" Static Warning
    "No two skill names differ only in case or Unicode form."
    "On file systems that ignore case, which most laptops have, both skills are installed into the same folder, and \
     one overwrites the other. Rename one of them."

    M032 "name-lookalike" Static Warning
    "No two skill names look alike."
    "Programs distinguish `pdf-tools` from `pdf-too1s`, and a Cyrillic letter from a Latin one; people do not. A \
     malicious skill can take the place of a good one in this way. The comparison ignores hyphens."

    M033 "version" Static Warning
    "Versions are semantic versions."
    "Installers choose the newest version that matches, so versions need an order: `MAJOR.MINOR.PATCH` with three \
     numbers (semver.org), without a leading `v` and without leading zeros. Write `1.2.0` instead of `v1.2`."

    M034 "words" Static Warning
    "Titles and descriptions are trimmed, not empty, and not too long."
    "Agents decide by the description whether to use a skill, and cut it off at 1,024 characters (Agent Skills). \
     Whitespace around a text and line breaks in a title are displayed differently everywhere."

    M035 "hidden-characters" Static Warning
    "No text contains control, invisible or direction-changing characters."
    "Such characters make a text look different from what a program or a language model reads: a description can hide \
     instructions from its reviewers. Remove them. Joiners inside words and emoji are allowed."

    M036 "release-twice" Static Error
    "No release (name and version) of a skill has two contents."
    "Two entries with the same name and version state two packages with different checksums for one release. Build \
     metadata after `+` does not make another version. It is an error because it makes an installation ambiguous: one \
     installer takes the first entry and another the last, and both find a matching checksum. Remove one entry, or \
     raise its version."

    M037 "entry-twice" Static Warning
    "Every release of a skill is listed once."
    "Two entries with the same name, version and checksum install the same content, so nothing is unsafe. But sooner \
     or later only one of them is changed, and then one release has two contents. Remove one of them."
}
