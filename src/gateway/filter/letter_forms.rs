//! The letters that are read as other letters, for [`super::text_folding`], beyond those that Unicode decomposes.
//!
//! Unicode's compatibility decomposition covers letters with marks, of other widths and of mathematical alphabets. The
//! tables of this module are small on purpose: letters with strokes, small capitals, letters in circles and squares,
//! and the few letters of other scripts that look like Latin ones.

/// Letters with a stroke or without a dot, which have no decomposition, and their plain letters.
const STROKED: (&str, &str) = ("øđħłŧƀɨʉ", "odhltbiu");
/// Small capitals, which Unicode treats as separate letters.
const SMALL_CAPITALS: (&str, &str) = ("ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ", "abcdefghijklmnoprstuvwyz");
/// Quotes and dashes.
const MARKS: (&str, &str) = ("‘’‛ʼ`´“”„‐‑‒–—―−", "''''''\"\"\"-------");
/// Letters of other scripts that look like Latin ones.
const LOOK_ALIKE: (&str, &str) = ("авеикмнорстухіјѕһԁԛԝӏαβεικνορτυχηω", "abeukmhopctyxijshdqwlabeikvoptuxnw");

/// Returns the plain letter for a letter in a circle, a square or parentheses, and the plain form of a quote or a dash.
/// Every other character is returned unchanged.
///
/// Unicode decomposes `⒜` to three characters, and does not decompose `🅐`.
pub(super) fn plain_form(letter: char) -> char {
    let code = u32::from(letter);
    let first = match code {
        // `Ŀ` and `ŀ` decompose to a letter and a dot, and the dot would cut the word in two.
        0x13f | 0x140 => return 'l',
        0x249c..=0x24b5 => 0x249c,
        0x1f110..=0x1f129 => 0x1f110,
        0x1f130..=0x1f149 => 0x1f130,
        0x1f150..=0x1f169 => 0x1f150,
        0x1f170..=0x1f189 => 0x1f170,
        _ => return look_up(letter, &[MARKS]).unwrap_or(letter),
    };
    char::from_u32(u32::from('a') + code - first).unwrap_or(letter)
}

/// Returns the plain letter of a lower-case letter that Unicode does not decompose further.
pub(super) fn without_marks(letter: char) -> char {
    if letter.is_ascii() { letter } else { look_up(letter, &[STROKED, SMALL_CAPITALS]).unwrap_or(letter) }
}

/// Returns the Latin letter that this letter of another script looks like.
pub(super) fn latin_look_alike(letter: char) -> Option<char> {
    look_up(letter, &[LOOK_ALIKE])
}

fn look_up(letter: char, tables: &[(&str, &str)]) -> Option<char> {
    tables
        .iter()
        .find_map(|(from, to)| from.chars().zip(to.chars()).find(|(from, _)| *from == letter))
        .map(|pair| pair.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_of_each_table_have_the_same_length() {
        for (from, to) in [STROKED, SMALL_CAPITALS, MARKS, LOOK_ALIKE] {
            assert_eq!(from.chars().count(), to.chars().count(), "{from}");
        }
    }

    #[test]
    fn enclosed_letters_and_quotes_have_a_plain_form() {
        for (text, expected) in [("⒜⒵", "az"), ("🄰🅉🅐🅩🅰🆉🄐🄩", "azazazaz"), ("‘—漢", "'-漢")]
        {
            assert_eq!(text.chars().map(plain_form).collect::<String>(), expected);
        }
        assert_eq!("øłᴛæœ漢".chars().map(without_marks).collect::<String>(), "oltæœ漢");
    }
}
