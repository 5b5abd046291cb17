//! Rules about names, versions and words.

use super::rules;

rules! {
    M030 "skill-name" Static Warning
    "Skill names follow the rules of Agent Skills."
    "A skill is installed into a folder of its name, and agents call it by it. Agent Skills allows 1 to 64 small \
     letters, digits and hyphens, no hyphen at an end and no two in a row; letters outside of ASCII in NFKC form. \
     `Image_Generation` becomes `image-generation`."

    M031 "name-case" Static Warning
    "No two skill names differ only in case or Unicode form."
    "On file systems that ignore case, and that is most laptops, both are installed into the same folder, and one \
     overwrites the other. Rename one of them."

    M032 "name-lookalike" Static Warning
    "No two skill names look alike."
    "`pdf-tools` and `pdf-too1s`, or a Cyrillic letter in a Latin word, are told apart by programs and not by people. \
     This is how a bad skill takes the place of a good one. Hyphens do not count either."

    M033 "version" Static Warning
    "Versions are semantic versions."
    "Installers choose the newest version that fits, and need an order for that: `MAJOR.MINOR.PATCH` with three \
     numbers (semver.org), without a `v` in front and without zeros in front of a number. `v1.2` becomes `1.2.0`."

    M034 "words" Static Warning
    "Titles and descriptions are trimmed, not empty, and not too long."
    "Agents decide by the description whether to use a skill, and cut it at 1,024 characters (Agent Skills). Blanks \
     around a text and line breaks in a title are shown differently everywhere."

    M035 "hidden-characters" Static Warning
    "No text holds control, invisible or direction-changing characters."
    "They make a text look different from what a program, or a language model, reads: a description can hide \
     instructions that no reviewer sees. Remove them; joiners inside of words and emoji are not reported."

    M036 "release-twice" Static Error
    "No release of a skill, its name and version, has two contents."
    "Two entries with one name and version promise two packages with different checksums for one release. Build metadata \
     behind `+` does not make another version. It is an error because it makes an install ambiguous: one installer takes \
     the first and another the last, and both find the checksum right. Remove one entry, or raise its version."

    M037 "entry-twice" Static Warning
    "Every release of a skill stands once."
    "Two entries for one name and version with one checksum install the same, so nothing is unsafe. But they are changed one \
     at a time, and from then on one release has two contents. Remove one of them."
}
