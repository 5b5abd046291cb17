//! Finds words and phrases in one pass over a text.
//!
//! The module decides where a word begins and ends, and that `sci-fi`, `sci_fi` and `sci fi` are the same phrase. It
//! must not know how letters are written: its input is text that [`super::text_folding`] has normalized.

use std::borrow::Cow;

use aho_corasick::{AhoCorasick, MatchKind};

use super::{FilterError, letter_forms, text_folding};

/// The smallest number of single letters in a row that counts as a spelled-out word (our choice).
const MIN_SPELLED_LETTERS: usize = 3;

/// Finds all phrases at once.
#[derive(Debug)]
pub(super) struct PhraseMatcher {
    /// Its patterns are the tokens of the phrases, as [`join_tokens`] writes them.
    matcher: AhoCorasick,
    /// The rule of each pattern.
    rules: Vec<usize>,
}

// === impl PhraseMatcher ===

impl PhraseMatcher {
    /// Builds the matcher for these phrases. If two are equal, the first is kept.
    ///
    /// # Errors
    ///
    /// Returns an error for a phrase without a visible character, and for phrases that need too much memory.
    pub(super) fn new(group: &str, phrases: &[String]) -> Result<Self, FilterError> {
        let pattern = |(index, phrase): (usize, &String)| {
            let text = text_folding::normalize_rule(phrase);
            let tokens = tokenize(&text);
            if tokens.is_empty() {
                return Err(FilterError::Word { group: group.to_owned(), index });
            }
            Ok((join_tokens(&tokens), index))
        };
        let mut patterns = phrases.iter().enumerate().map(pattern).collect::<Result<Vec<_>, _>>()?;
        // Of the phrases that begin at the same word, the shortest matches.
        patterns.sort_by_key(|(pattern, _)| pattern.len());
        let (patterns, rules): (Vec<String>, Vec<usize>) = patterns.into_iter().unzip();
        let matcher = AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(patterns);
        let matcher =
            matcher.map_err(|source| FilterError::Words { group: group.to_owned(), source: Box::new(source) })?;
        Ok(Self { matcher, rules })
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the rule that matches first in the text.
    pub(super) fn find(&self, text: &str) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        let tokens = tokenize(text);
        self.find_in_tokens(&tokens).or_else(|| self.find_in_tokens(&join_spelled_words(&tokens)?))
    }

    fn find_in_tokens(&self, tokens: &[Cow<'_, str>]) -> Option<usize> {
        self.matcher.find(&join_tokens(tokens)).map(|found| self.rules[found.pattern()])
    }
}

/// Returns the tokens as one text in which each token has a space on both sides. No token contains a space.
fn join_tokens(tokens: &[Cow<'_, str>]) -> String {
    format!(" {} ", tokens.join(" "))
}

/// Returns the words of a text, and each character between them that is not a space, `-` or `_`.
fn tokenize(text: &str) -> Vec<Cow<'_, str>> {
    let mut tokens = Vec::new();
    let mut start = None;
    for (offset, letter) in text.char_indices() {
        let is_token = is_token_by_itself(letter);
        if !is_token && is_word_character(letter) {
            start.get_or_insert(offset);
            continue;
        }
        tokens.extend(start.take().map(|start| normalize_word(&text[start..offset])));
        if is_token || !matches!(letter, ' ' | '-' | '_') {
            tokens.push(Cow::Borrowed(&text[offset..offset + letter.len_utf8()]));
        }
    }
    tokens.extend(start.map(|start| normalize_word(&text[start..])));
    tokens
}

fn is_word_character(letter: char) -> bool {
    // In the scripts of India, a word contains signs that are not letters.
    letter.is_alphanumeric() || matches!(letter, '\u{900}'..='\u{dff}')
}

/// True for characters of scripts without spaces between words: each such character is a token.
const fn is_token_by_itself(letter: char) -> bool {
    matches!(letter,
        '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{3005}'..='\u{3007}'
        | '\u{3040}'..='\u{312f}' | '\u{31a0}'..='\u{31ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}'
        | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// Normalizes a word. If a word has a Latin letter, and all its other letters look like Latin letters, they are
/// replaced by these.
fn normalize_word(text: &str) -> Cow<'_, str> {
    let latin = || {
        text.chars().map(|letter| if letter.is_ascii() { Some(letter) } else { letter_forms::latin_look_alike(letter) })
    };
    if text.is_ascii()
        || !text.bytes().any(|byte| byte.is_ascii_alphabetic())
        || !latin().all(|letter| letter.is_some())
    {
        return Cow::Borrowed(text);
    }
    latin().flatten().collect()
}

/// Returns the tokens with each spelled-out word (`l i k e`, `t.h.i.s`) joined to one token; `None` if no word is
/// spelled out.
fn join_spelled_words<'a>(tokens: &[Cow<'a, str>]) -> Option<Vec<Cow<'a, str>>> {
    let mut joined: Vec<Cow<'_, str>> = Vec::with_capacity(tokens.len());
    let (mut index, mut has_spelled_word) = (0, false);
    while index < tokens.len() {
        let (spelled, consumed) = leading_spelled_word(&tokens[index..]);
        if spelled.len() < MIN_SPELLED_LETTERS {
            joined.push(tokens[index].clone());
            index += 1;
        } else {
            joined.push(Cow::Owned(spelled));
            (index, has_spelled_word) = (index + consumed, true);
        }
    }
    has_spelled_word.then_some(joined)
}

/// Returns the single letters at the beginning, and the number of tokens that the letters and the separators between
/// them take.
fn leading_spelled_word(tokens: &[Cow<'_, str>]) -> (String, usize) {
    let (mut letters, mut consumed) = (String::new(), 0);
    for (index, token) in tokens.iter().enumerate() {
        match token.as_bytes() {
            [letter] if letter.is_ascii_alphabetic() => {
                letters.push(char::from(*letter));
                consumed = index + 1;
            }
            [b'.' | b'*' | b'/' | b'|' | b'+' | b','] if consumed == index && index > 0 => {}
            _ => break,
        }
    }
    (letters, consumed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_split_into_words_and_separators() {
        for (text, expected) in [
            ("a red_fox, sci-fi!", vec!["a", "red", "fox", ",", "sci", "fi", "!"]),
            ("c++ & don't", vec!["c", "+", "+", "&", "don", "'", "t"]),
            ("4k 1920x1080", vec!["4k", "1920x1080"]),
            ("漢字 かな ไทย", vec!["漢", "字", "か", "な", "ไ", "ท", "ย"]),
            ("क्षेत्र नमस्ते", vec!["क्षेत्र", "नमस्ते"]),
            ("한국어 사전", vec!["한국어", "사전"]),
            (" - _ ", vec![]),
        ] {
            assert_eq!(tokenize(text), expected, "{text}");
        }
    }

    #[test]
    fn look_alike_letters_are_replaced_only_beside_latin_letters() {
        assert_eq!(tokenize("pаypаl сор хор"), ["paypal", "сор", "хор"]);
        assert_eq!(tokenize("жara"), ["жara"]);
    }

    #[test]
    fn spelled_out_letters_are_joined_to_a_word() {
        let join = |text: &str| join_spelled_words(&tokenize(text)).map(|tokens| tokens.join("|"));
        assert_eq!(join("a b a d word").as_deref(), Some("abad|word"));
        assert_eq!(join("say b.a.d. now").as_deref(), Some("say|bad|.|now"));
        assert_eq!(join("b*a*d"), Some("bad".to_owned()));
        assert_eq!(join("plan b or c"), None);
        assert_eq!(join(". . ."), None);
    }
}
