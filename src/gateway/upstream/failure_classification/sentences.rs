//! Parts of sentences by which the statement of an error is known if no code decides. All are in the form of
//! [`normalized`]: in lower case, with plain apostrophes, and in simplified characters.

use crate::words::lines_of;

/// Parts of sentences that refuse the content.
pub(super) const REFUSALS: &[&str] = lines_of!("phrases/refusals.txt");
/// Parts of sentences about the account.
pub(super) const ACCOUNTS: &[&str] = lines_of!("phrases/accounts.txt");
/// Parts of sentences about a request that alone exceeds the whole window of the limit: waiting does not help, and other
/// requests are not limited.
pub(super) const OVERSIZED: &[&str] = &["request too large", "must be reduced"];
/// Beginnings of sentences about a usage window that is used up. Like those of the next lists, they count only near the
/// beginning of a sentence and outside of quotation marks, because the rest may repeat the text of a caller.
pub(super) const EXHAUSTED: &[&str] = lines_of!("phrases/exhausted.txt");
/// Beginnings of sentences about too many requests.
pub(super) const RATE_LIMITED: &[&str] =
    &["rate limit", "too many requests", "请求过于频繁", "请求频率", "速率限制", "频率限制", "请求过多"];
/// Beginnings of sentences about a lack of capacity.
pub(super) const OVERLOADED: &[&str] = lines_of!("phrases/overloaded.txt");
/// Beginnings of sentences about an account that is not paid for.
pub(super) const UNPAID: &[&str] = lines_of!("phrases/unpaid.txt");
/// Beginnings of sentences about a model that the account does not have.
pub(super) const UNKNOWN_MODELS: &[&str] = lines_of!("phrases/unknown_models.txt");
/// A model that is named between two parts of a sentence, such as "The model `x` does not exist".
pub(super) const UNKNOWN_NAMED_MODEL: [&[&str]; 2] =
    [&["the model"], &["does not exist", "not found", "do not have access", "don't have access"]];
/// A channel of a relay for a model: none has the model.
pub(super) const UNSERVED_MODEL: [&[&str]; 2] = [&["no available channel", "无可用渠道"], &["model", "模型"]];
/// Words with which a tool is not missing for ever.
pub(super) const FOR_NOW: &[&str] = &["temporarily", "currently", "right now", "try again", "暂时", "稍后"];
/// The tool for images, and a statement that it is missing: one of each list.
pub(super) const MISSING_TOOL: [&[&str]; 2] = [
    &["image generation", "image_generation", "image_gen", "image tool", "tool choice", "图像生成", "图片生成", "绘图"],
    lines_of!("phrases/missing_tool.txt"),
];
/// Parts of sentences about encrypted content that the account cannot read: one of the first and one of the second list.
pub(super) const CIPHERTEXT: [&[&str]; 2] = [
    &["encrypted content", "encrypted_content"],
    &["could not be", "cannot be", "did not match", "does not match", "decrypt", "not verified"],
];
/// Parts of sentences about stored context that the account does not have: one of each list.
pub(super) const STORED_CONTEXT: [&[&str]; 2] =
    [&["previous response", " with id "], &["not found", "does not exist", "no longer exists"]];

/// The characters within which a sentence begins with its statement (our choice): an error repeats the text of a caller
/// only after words of its own.
const BEGINNING: usize = 80;
/// Quotation marks, and the marks that end the quotation.
const QUOTATIONS: [(char, char); 6] = [('"', '"'), ('\'', '\''), ('`', '`'), ('“', '”'), ('「', '」'), ('‘', '\'')];
/// Traditional characters of the parts above and of usual errors, each with its simplified form.
const SIMPLIFIED: &[&str] = lines_of!("phrases/simplified.txt");

/// Returns a text in the form in which these parts are searched for.
pub(super) fn normalized(text: &str) -> String {
    let simplified = |letter: char| match letter {
        '’' => '\'',
        letter => SIMPLIFIED.iter().find_map(|pair| pair.strip_prefix(letter)?.chars().next()).unwrap_or(letter),
    };
    text.trim().to_lowercase().chars().map(simplified).collect()
}

/// True if a normalized text has one of the parts.
pub(super) fn has_any(text: &str, parts: &[&str]) -> bool {
    parts.iter().any(|part| text.contains(part))
}

/// True if a normalized text has a part of each list.
pub(super) fn has_each(text: &str, lists: [&[&str]; 2]) -> bool {
    lists.into_iter().all(|parts| has_any(text, parts))
}

/// Returns the beginning of a normalized text without what stands in quotation marks. An apostrophe within a word is no
/// quotation mark.
pub(super) fn unquoted_beginning(text: &str) -> String {
    let (mut beginning, mut last, mut until) = (String::new(), ' ', None);
    for letter in text.chars().take(BEGINNING) {
        let opens = QUOTATIONS.iter().find(|(open, _)| *open == letter && !last.is_alphanumeric());
        match (until, opens) {
            (Some(end), _) if letter == end => until = None,
            (Some(_), _) => {}
            (None, Some((_, end))) => until = Some(*end),
            (None, None) => beginning.push(letter),
        }
        last = letter;
    }
    beginning
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quotation_is_no_part_of_the_beginning() {
        assert_eq!(unquoted_beginning("you've hit 'x y' and \"rate limit\" now"), "you've hit  and  now");
        assert_eq!(unquoted_beginning("a “b” 「c」d"), "a  d");
        assert!(unquoted_beginning(&"word ".repeat(100)).len() <= BEGINNING);
    }

    #[test]
    fn every_part_is_in_the_form_that_is_searched() {
        let lists = [REFUSALS, ACCOUNTS, OVERSIZED, EXHAUSTED, RATE_LIMITED, OVERLOADED, UNPAID, UNKNOWN_MODELS];
        let pairs = [UNKNOWN_NAMED_MODEL, UNSERVED_MODEL, MISSING_TOOL, CIPHERTEXT, STORED_CONTEXT];
        for part in lists.into_iter().chain(pairs.into_iter().flatten()).flatten() {
            assert!(!part.is_empty());
            assert_eq!(normalized(part), part.trim(), "{part}");
        }
        assert_eq!(normalized("  內容違規，帳戶’ "), "内容违规，帐户'");
    }
}
