//! Classifies the text that a model writes in place of an image: it declines, it has no tool, its tool is busy, or it
//! asks.
//!
//! A caller can make a model write anything, so no text decides alone about an account.

use super::sentences;
use crate::words::lines_of;

/// The longest beginning of a text that is kept, in characters (our choice).
const FIRST_WORDS_MAX: usize = 200;
/// Parts of sentences with which a model declines to draw.
const DECLINES: &[&str] = lines_of!("phrases/declines.txt");
/// Parts of sentences with which a model states that it has no tool.
const TOOL_MISSES: &[&str] = lines_of!("phrases/tool_misses.txt");
/// The parts of a sentence with which a model states that it cannot make images at all, so has no tool: the beginning,
/// a verb, and the images.
const INABILITIES: &[&str] = &["can't ", "cannot ", "unable to ", "not able to ", "无法", "不能"];
const ADVERBS: &[&str] = &["directly ", "actually ", "直接"];
const IMAGE_VERBS: &[&str] =
    &["generate ", "create ", "draw ", "make ", "produce ", "render ", "生成", "创建", "绘制", "画"];
const IMAGE_NOUNS: &[&str] = &["images", "pictures", "graphics", "visuals", "图片", "图像", "图"];
/// Words after the images with which a sentence is still about all images.
const ENDS: &[&str] = &[
    "here",
    "directly",
    "in this",
    "right now",
    "at the moment",
    "at this time",
    "myself",
    "yet",
    "because",
    "since",
    "as ",
    "with ",
    "from here",
    "but ",
    "or ",
    "and ",
    "for you",
];
/// Parts of sentences with which a model states that its tool is busy or its limit is reached.
const BUSY: &[&str] = lines_of!("phrases/busy.txt");

/// The statement of a text in place of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TextStatement {
    /// Anything else, such as a question.
    Other,
    /// There is an address, at which there may be an image.
    Address,
    /// The model declines to draw.
    Refusal,
    /// The tool is busy, or its limit is reached.
    Busy,
    /// The model has no tool for images.
    MissingTool,
}

/// Returns the statement of a normalized text that has no sentence of a policy. A model without a tool often begins with
/// "I can't", so a missing tool is looked for before a refusal.
pub(super) fn statement_of(text: &str) -> TextStatement {
    if sentences::has_any(text, TOOL_MISSES) || states_inability(text) {
        TextStatement::MissingTool
    } else if sentences::has_any(text, BUSY) {
        TextStatement::Busy
    } else if sentences::has_any(text, DECLINES) {
        TextStatement::Refusal
    } else if text.contains("://") {
        TextStatement::Address
    } else {
        TextStatement::Other
    }
}

/// True if a text says that no image at all can be made, such as "I can't generate images here": a certain image, or
/// images of something, can be refused.
fn states_inability(text: &str) -> bool {
    INABILITIES.iter().any(|part| text.match_indices(part).any(|(at, part)| is_any_image(&text[at + part.len()..])))
}

/// True if the rest of a sentence is about the making of images in general.
fn is_any_image(rest: &str) -> bool {
    let after_adverb = strip_any(rest, ADVERBS).unwrap_or(rest);
    let after_noun = strip_any(after_adverb, IMAGE_VERBS).and_then(|rest| strip_any(rest, IMAGE_NOUNS));
    after_noun.is_some_and(|rest| {
        let word = rest.trim_start();
        word.chars().next().is_none_or(|letter| !letter.is_alphanumeric())
            || ENDS.iter().any(|end| word.starts_with(end))
    })
}

/// Returns the text after one of the prefixes.
fn strip_any<'t>(text: &'t str, prefixes: &[&str]) -> Option<&'t str> {
    prefixes.iter().find_map(|prefix| text.strip_prefix(prefix))
}

/// Returns the first words of a text, without control characters; `None` if it has none.
pub(super) fn first_words(text: &str) -> Option<String> {
    let beginning: String = text.chars().take(4 * FIRST_WORDS_MAX).collect();
    let words = beginning.split_whitespace().collect::<Vec<_>>().join(" ");
    let words: String = words.chars().filter(|letter| !letter.is_control()).collect();
    let end = words.char_indices().nth(FIRST_WORDS_MAX).map(|(end, _)| end);
    if words.is_empty() {
        return None;
    }
    match end {
        Some(end) => Some(format!("{}…", &words[..end])),
        None => Some(words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(expected: TextStatement, texts: &[&str]) {
        for text in texts {
            assert_eq!(statement_of(&sentences::normalized(text)), expected, "{text}");
        }
    }

    #[test]
    fn a_missing_tool_is_no_refusal_and_no_question() {
        check(
            TextStatement::MissingTool,
            &[
                "I can't generate images.",
                "I’m sorry, but I can’t create images directly, but I can describe one.",
                "Unfortunately I'm unable to produce pictures here.",
                "The image generation tool is not available.",
                "Image generation isn't available in this environment.",
                "I don't have the ability to make pictures. Shall I write a prompt?",
                "As a text-based AI, I cannot draw that.",
                "我无法生成图片。",
                "抱歉，我無法直接生成圖像，但可以為您描述。",
                "我只是一个语言模型。",
            ],
        );
    }

    #[test]
    fn a_certain_image_is_refused() {
        check(
            TextStatement::Refusal,
            &[
                "I can't generate images of real people in such scenes.",
                "I cannot create that image.",
                "I'm unable to help with this request.",
                "Sorry, but that goes against our guidelines.",
                "我无法生成这张图片。",
                "抱歉，我無法為您繪製該內容。",
            ],
        );
    }

    #[test]
    fn a_busy_tool_a_question_and_an_address_are_told_apart() {
        check(
            TextStatement::Busy,
            &["You've hit your image generation limit, try again later.", "服務繁忙，請稍後再試"],
        );
        check(TextStatement::Other, &["Which style would you like?", "您想要什么风格？", "Let me know the colours."]);
        check(TextStatement::Address, &["Here: https://files.example/a.png"]);
    }

    #[test]
    fn the_first_words_are_bounded() {
        assert_eq!(first_words(" Which\n\tstyle \u{7}would?  ").as_deref(), Some("Which style would?"));
        assert_eq!(first_words(" \n"), None);
        assert!(first_words(&"风".repeat(1000)).is_some_and(|words| words.chars().count() == FIRST_WORDS_MAX + 1));
    }
}
