//! Parts of sentences by which the statement of an error is known if no code decides. All are in the form of
//! [`normalized`]: in lower case, with plain apostrophes, and in simplified characters.

/// Parts of sentences that refuse the content.
pub(super) const REFUSALS: &[&str] = &[
    "safety system",
    "safety_violations",
    "safety policy",
    "content policy",
    "content policies",
    "content management policy",
    "content moderation",
    "content filter",
    "moderation system",
    "usage policies",
    "usage policy",
    "our policies",
    "our guardrails",
    "sensitive words",
    "sensitive_words",
    "sensitive information",
    "inappropriate content",
    "nsfw",
    "违规",
    "违禁",
    "违反",
    "敏感",
    "审核",
    "审查",
    "安全策略",
    "安全政策",
    "安全系统",
    "安全检测",
    "内容政策",
    "内容安全",
    "使用政策",
    "使用条款",
    "不合规",
    "不当内容",
    "不良信息",
    "色情",
    "暴力",
];
/// Parts of sentences about the account.
pub(super) const ACCOUNTS: &[&str] = &[
    "your account",
    "this account",
    "your access",
    "your project",
    "your subscription",
    "your resource",
    "organization",
    "api key",
    "suspended",
    "deactivated",
    "terminated",
    "banned",
    "账号",
    "账户",
    "帐号",
    "帐户",
    "密钥",
    "令牌",
    "封禁",
];
/// Parts of sentences about a request that alone exceeds the whole window of the limit: waiting does not help, and other
/// requests are not limited.
pub(super) const OVERSIZED: &[&str] = &["request too large", "must be reduced"];
/// Beginnings of sentences about a usage window that is used up. Like those of the next lists, they count only near the
/// beginning of a sentence and outside of quotation marks, because the rest may repeat the text of a caller.
pub(super) const EXHAUSTED: &[&str] = &[
    "usage limit",
    "usage cap",
    "hit your limit",
    "reached your limit",
    "使用上限",
    "用量上限",
    "额度已用",
    "额度用尽",
];
/// Beginnings of sentences about too many requests.
pub(super) const RATE_LIMITED: &[&str] =
    &["rate limit", "too many requests", "请求过于频繁", "请求频率", "速率限制", "频率限制", "请求过多"];
/// Beginnings of sentences about a lack of capacity.
pub(super) const OVERLOADED: &[&str] = &[
    "overloaded",
    "at capacity",
    "temporarily unavailable",
    "currently unavailable",
    "暂时不可用",
    "no available channel",
    "no available account",
    "server is busy",
    "service is busy",
    "负载已饱和",
    "负载过高",
    "无可用渠道",
    "没有可用",
    "服务繁忙",
    "系统繁忙",
    "服务器繁忙",
];
/// Beginnings of sentences about an account that is not paid for.
pub(super) const UNPAID: &[&str] = &[
    "exceeded your current quota",
    "insufficient balance",
    "insufficient quota",
    "insufficient credit",
    "credit balance is too low",
    "billing hard limit",
    "余额不足",
    "额度不足",
    "欠费",
];
/// Beginnings of sentences about a model that the account does not have.
pub(super) const UNKNOWN_MODELS: &[&str] = &[
    "unknown model",
    "invalid model",
    "no such model",
    "unsupported model",
    "model not found",
    "model not supported",
    "model is not supported",
    "模型不存在",
    "模型未找到",
    "不支持该模型",
    "不支持的模型",
];
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
    &[
        "not found",
        "not available",
        "n't available",
        "not enabled",
        "n't enabled",
        "not supported",
        "not included",
        "unavailable",
        "disabled",
        "不可用",
        "未开通",
        "未启用",
        "不支持",
        "没有",
        "无法使用",
    ],
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
/// Traditional characters of the parts above and of usual errors, and their simplified forms.
const SIMPLIFIED: &[(char, char)] = &[
    ('違', '违'),
    ('規', '规'),
    ('審', '审'),
    ('內', '内'),
    ('無', '无'),
    ('圖', '图'),
    ('戶', '户'),
    ('號', '号'),
    ('賬', '账'),
    ('鑰', '钥'),
    ('權', '权'),
    ('額', '额'),
    ('餘', '余'),
    ('請', '请'),
    ('後', '后'),
    ('試', '试'),
    ('時', '时'),
    ('間', '间'),
    ('鐘', '钟'),
    ('檢', '检'),
    ('測', '测'),
    ('過', '过'),
    ('於', '于'),
    ('頻', '频'),
    ('達', '达'),
    ('條', '条'),
    ('當', '当'),
    ('務', '务'),
    ('統', '统'),
    ('暫', '暂'),
    ('畫', '画'),
    ('繪', '绘'),
    ('創', '创'),
    ('張', '张'),
    ('這', '这'),
    ('該', '该'),
    ('負', '负'),
    ('載', '载'),
    ('飽', '饱'),
    ('沒', '没'),
    ('開', '开'),
    ('啟', '启'),
    ('個', '个'),
    ('繼', '继'),
    ('續', '续'),
    ('並', '并'),
    ('態', '态'),
    ('絕', '绝'),
    ('對', '对'),
    ('將', '将'),
    ('長', '长'),
    ('樣', '样'),
    ('種', '种'),
    ('麼', '么'),
    ('風', '风'),
    ('備', '备'),
    ('帳', '帐'),
    ('製', '制'),
    ('詞', '词'),
    ('準', '准'),
    ('範', '范'),
    ('協', '协'),
    ('議', '议'),
    ('處', '处'),
    ('為', '为'),
    ('還', '还'),
    ('們', '们'),
    ('從', '从'),
    ('發', '发'),
    ('產', '产'),
    ('體', '体'),
    ('類', '类'),
    ('觸', '触'),
    ('關', '关'),
    ('閉', '闭'),
    ('確', '确'),
    ('認', '认'),
    ('證', '证'),
    ('錯', '错'),
    ('誤', '误'),
    ('訊', '讯'),
];

/// Returns a text in the form in which these parts are searched for.
pub(super) fn normalized(text: &str) -> String {
    let simplified = |letter: char| match SIMPLIFIED.iter().find(|(traditional, _)| *traditional == letter) {
        Some((_, simple)) => *simple,
        None if letter == '’' => '\'',
        None => letter,
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
            assert_eq!(normalized(part), part.trim(), "{part}");
        }
        assert_eq!(normalized("  內容違規，帳戶’ "), "内容违规，帐户'");
    }
}
