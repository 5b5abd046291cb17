//! The tables of letters that are read as other letters, for [`super::fold`].
//!
//! The tables are small on purpose: the variants of Latin letters, and the few letters of other scripts that look like
//! Latin ones.

/// From U+00E0: Latin letters without their marks; a dot stands for a character that does not change.
const LATIN_1: &str = "aaaaaa.ceeeeiiii.nooooo.ouuuuy.y";
/// From U+0100, in pairs of upper and lower case: the lower-case letter.
const LATIN_A: &str = "aaaaaaccccccccddddeeeeeeeeeegggggggghhhhiiiiiiiiii..jjkk.llllllllllnnnnnnn..oooooo..rrrrrrssssssssttttttuuuuuuuuuuuuwwyyyzzzzzzs";
/// From U+1E00.
const LATIN_MORE: &str = "aabbbbbbccddddddddddeeeeeeeeeeffgghhhhhhhhhhiiiikkkkkkllllllllmmmmmmnnnnnnnnoooooooopppprrrrrrrrssssssssssttttttttuuuuuuuuuuvvvvwwwwwwwwwwxxxxyyzzzzzzhtwyas....aaaaaaaaaaaaaaaaaaaaaaaaeeeeeeeeeeeeeeeeiiiioooooooooooooooooooooooouuuuuuuuuuuuuuyyyyyyyy";

/// Letters written as symbols.
const SYMBOLS: (&str, &str) = ("ℂℊℋℌℍℎℐℑℒℓℕℙℚℛℜℝℤℨKℬℭℯℰℱℳℴªº", "cghhhhiillnpqrrrzzkbceefmoao");
/// Small capitals, which are letters of their own.
const SMALL_CAPITALS: (&str, &str) = ("ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ", "abcdefghijklmnoprstuvwyz");
/// Quotes and dashes.
const MARKS: (&str, &str) = ("‘’‛ʼ`´“”„‐‑‒–—―−", "''''''\"\"\"-------");
/// Letters with marks that are not in the tables above.
const MARKED: (&str, &str) = (
    "ơưǎǐǒǔǖǘǚǜǟǡǣǧǩǫǭǯǰǵǹǻǽǿȁȃȅȇȉȋȍȏȑȓȕȗșțȟȧȩȫȭȯȱȳ΅ΐάέήίΰϊϋόύώϓϔйѐёѓїќѝўƀɨʉ",
    "ouaiouuuuuaaægkooʒjgnaæøaaeeiioorruusthaeooooy¨ιαεηιυιυουωϒϒиеегікиуbiu",
);
/// Letters of other scripts that look like Latin ones.
const LOOK_ALIKE: (&str, &str) = ("авеикмнорстухіјѕһԁԛԝӏαβεικνορτυχηω", "abeukmhopctyxijshdqwlabeikvoptuxnw");

/// Returns the plain form of a letter variant: full width, mathematical, in a circle or a square.
pub(super) fn plain(letter: char) -> char {
    let code = u32::from(letter);
    let from = |first: u32, letters: u32| (code - first) % letters;
    let found = match code {
        0xff01..=0xff5e => 0x21 + from(0xff01, 94),
        0x1d400..=0x1d6a3 => alphabet(from(0x1d400, 52) % 26),
        0x1d7ce..=0x1d7ff => 0x30 + from(0x1d7ce, 10),
        0x249c..=0x24b5 => alphabet(from(0x249c, 26)),
        0x24b6..=0x24e9 => alphabet(from(0x24b6, 26)),
        0x1f110..=0x1f129 => alphabet(from(0x1f110, 26)),
        0x1f130..=0x1f149 => alphabet(from(0x1f130, 26)),
        0x1f150..=0x1f169 => alphabet(from(0x1f150, 26)),
        0x1f170..=0x1f189 => alphabet(from(0x1f170, 26)),
        0x60 | 0xaa..=0xba | 0x250..=0x2bf | 0x1d00..=0x1d7f | 0x2000..=0x22ff | 0xa730..=0xa7ff => {
            return looked_up(letter, &[SYMBOLS, SMALL_CAPITALS, MARKS]).unwrap_or(letter);
        }
        _ => code,
    };
    char::from_u32(found).unwrap_or(letter)
}

const fn alphabet(index: u32) -> u32 {
    0x61 + index
}

/// Returns a lower-case letter without its marks.
pub(super) fn base(letter: char) -> char {
    let code = u32::from(letter);
    let (table, first) = match code {
        0..=0x7f => return letter,
        0xe0..=0xff => (LATIN_1, 0xe0),
        0x100..=0x17f => (LATIN_A, 0x100),
        0x1e00..=0x1eff => (LATIN_MORE, 0x1e00),
        0x180..=0x24f | 0x250..=0x2af | 0x370..=0x45f => return looked_up(letter, &[MARKED]).unwrap_or(letter),
        _ => return letter,
    };
    let found = usize::try_from(code - first).ok().and_then(|index| table.as_bytes().get(index));
    found.filter(|found| **found != b'.').map_or(letter, |found| char::from(*found))
}

/// Returns the Latin letter that this letter of another script looks like.
pub(super) fn look_alike(letter: char) -> Option<char> {
    looked_up(letter, &[LOOK_ALIKE])
}

fn looked_up(letter: char, tables: &[(&str, &str)]) -> Option<char> {
    tables
        .iter()
        .find_map(|(from, to)| from.chars().zip(to.chars()).find(|(from, _)| *from == letter))
        .map(|pair| pair.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_letter_of_a_table_has_its_other() {
        for (from, to) in [SYMBOLS, SMALL_CAPITALS, MARKS, MARKED, LOOK_ALIKE] {
            assert_eq!(from.chars().count(), to.chars().count(), "{from}");
        }
        assert_eq!((LATIN_1.len(), LATIN_A.len(), LATIN_MORE.len()), (32, 128, 250));
    }

    #[test]
    fn every_plain_form_is_the_letter_it_is_named_after() {
        for (text, expected) in
            [("Ａｚ～！", "Az~!"), ("𝐀𝐳𝒜𝔷𝟘𝟿", "azaz09"), ("⒜⒵ⒶⓏⓐⓩ", "azazaz"), ("🄰🅉🅐🅩🅰🆉🄐🄩", "azazazaz")]
        {
            assert_eq!(text.chars().map(plain).collect::<String>(), expected);
        }
        assert_eq!("ñşộứžł".chars().map(base).collect::<String>(), "nsouzl");
        assert_eq!("æœ÷×漢".chars().map(base).collect::<String>(), "æœ÷×漢");
    }
}
