//! Finds words and phrases in one pass over a text.
//!
//! The module decides where a word begins and ends, and that `sci-fi`, `sci_fi` and `sci fi` are the same phrase. It
//! must not know how letters are written: its input is text as [`super::text_folding`] reads it.

use std::borrow::Cow;
use std::collections::HashMap;

use super::{letter_forms, text_folding};

/// This number of single letters in a row is a word that was spelled out.
const MIN_SPELLED_LETTERS: usize = 3;

/// A tree of phrases: each edge is one word.
#[derive(Debug, Default)]
pub(super) struct PhraseTree {
    children: HashMap<Box<str>, PhraseTree>,
    /// The rule that ends at this node.
    rule: Option<usize>,
}

/// The rule has no visible character.
#[derive(Debug)]
pub(super) struct EmptyRuleError;

// === impl PhraseTree ===

impl PhraseTree {
    pub(super) fn is_empty(&self) -> bool {
        self.children.is_empty()
    }

    /// Adds a rule; of two equal ones the first is kept.
    pub(super) fn add(&mut self, text: &str, rule: usize) -> Result<(), EmptyRuleError> {
        let text = text_folding::normalize_rule(text);
        let tokens = tokenize(&text);
        if tokens.is_empty() {
            return Err(EmptyRuleError);
        }
        let end = tokens.into_iter().fold(self, |words, token| words.children.entry(token.into()).or_default());
        end.rule.get_or_insert(rule);
        Ok(())
    }

    /// Returns the first rule that matches in the text.
    pub(super) fn find(&self, text: &str) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        let tokens = tokenize(text);
        self.find_in_tokens(&tokens).or_else(|| self.find_in_tokens(&join_spelled_words(&tokens)?))
    }

    fn find_in_tokens<T: AsRef<str>>(&self, tokens: &[T]) -> Option<usize> {
        (0..tokens.len()).find_map(|start| self.match_prefix(&tokens[start..]))
    }

    /// Returns the shortest rule that is a prefix of the tokens.
    fn match_prefix<T: AsRef<str>>(&self, tokens: &[T]) -> Option<usize> {
        let mut words = self;
        for token in tokens {
            words = words.children.get(token.as_ref())?;
            if words.rule.is_some() {
                break;
            }
        }
        words.rule
    }
}

/// Returns the words of a text, and each sign between them that is more than a gap.
fn tokenize(text: &str) -> Vec<Cow<'_, str>> {
    let mut tokens = Vec::new();
    let mut begin = None;
    for (at, letter) in text.char_indices() {
        let alone = stands_alone(letter);
        if !alone && is_word_character(letter) {
            begin.get_or_insert(at);
            continue;
        }
        tokens.extend(begin.take().map(|begin| normalize_word(&text[begin..at])));
        if alone || !matches!(letter, ' ' | '-' | '_') {
            tokens.push(Cow::Borrowed(&text[at..at + letter.len_utf8()]));
        }
    }
    tokens.extend(begin.map(|begin| normalize_word(&text[begin..])));
    tokens
}

fn is_word_character(letter: char) -> bool {
    // In the scripts of India a word contains signs that are no letters.
    letter.is_alphanumeric() || matches!(letter, '\u{900}'..='\u{dff}')
}

/// True for scripts without spaces between words: each character is a token.
const fn stands_alone(letter: char) -> bool {
    matches!(letter,
        '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{3005}'..='\u{3007}'
        | '\u{3040}'..='\u{312f}' | '\u{31a0}'..='\u{31ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}'
        | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// Normalizes a word: one of Latin letters and of letters that only look like them is a Latin word.
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

/// Returns the tokens with spelled-out words joined (`l i k e`, `t.h.i.s`); `None` if there are none.
fn join_spelled_words<'a>(tokens: &[Cow<'a, str>]) -> Option<Vec<Cow<'a, str>>> {
    let mut whole: Vec<Cow<'_, str>> = Vec::with_capacity(tokens.len());
    let (mut at, mut any) = (0, false);
    while at < tokens.len() {
        let (spelled, taken) = leading_spelled_word(&tokens[at..]);
        if spelled.len() < MIN_SPELLED_LETTERS {
            whole.push(tokens[at].clone());
            at += 1;
        } else {
            whole.push(Cow::Owned(spelled));
            (at, any) = (at + taken, true);
        }
    }
    any.then_some(whole)
}

/// Returns the single letters at the beginning, and the number of tokens that they and the dots between them have.
fn leading_spelled_word(tokens: &[Cow<'_, str>]) -> (String, usize) {
    let (mut letters, mut taken) = (String::new(), 0);
    for (index, token) in tokens.iter().enumerate() {
        match token.as_bytes() {
            [letter] if letter.is_ascii_alphabetic() => {
                letters.push(char::from(*letter));
                taken = index + 1;
            }
            [b'.' | b'*' | b'/' | b'|' | b'+' | b','] if taken == index && index > 0 => {}
            _ => break,
        }
    }
    (letters, taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_ends_where_a_reader_sees_its_end() {
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
    fn letters_of_another_script_are_read_as_latin_only_beside_latin_ones() {
        assert_eq!(tokenize("pаypаl сор хор"), ["paypal", "сор", "хор"]);
        assert_eq!(tokenize("жara"), ["жara"]);
    }

    #[test]
    fn letters_that_stand_alone_are_a_word_beside_the_ones_they_are() {
        let of = |text: &str| join_spelled_words(&tokenize(text)).map(|tokens| tokens.join("|"));
        assert_eq!(of("a b a d word").as_deref(), Some("abad|word"));
        assert_eq!(of("say b.a.d. now").as_deref(), Some("say|bad|.|now"));
        assert_eq!(of("b*a*d"), Some("bad".to_owned()));
        assert_eq!(of("plan b or c"), None);
        assert_eq!(of(". . ."), None);
    }
}
