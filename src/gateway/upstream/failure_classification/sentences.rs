//! Parts of sentences by which the statement of an answer is known if no code decides. All are in lower case, with plain
//! apostrophes.

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
    "敏感",
    "审核",
    "安全策略",
    "内容政策",
    "内容安全",
    "不合规",
];
/// Parts of sentences with which a model declines to draw.
pub(super) const DECLINES: &[&str] = &[
    "i can't",
    "i cannot",
    "i'm unable",
    "i am unable",
    "i'm not able",
    "i won't",
    "would rather not",
    "unable to create",
    "unable to generate",
    "unable to help",
    "guidelines",
    "我不能",
    "我无法",
    "无法生成",
];
/// Parts of sentences with which a model states that it has no tool, or that the tool is busy.
pub(super) const INABILITIES: &[&str] = &[
    "no tool",
    "no image tool",
    "no image generation",
    "n't have a tool",
    "not have a tool",
    "n't have access",
    "not have access",
    "tool is not",
    "tool isn't",
    "draw here",
    "is busy",
    "is overloaded",
    "at capacity",
    "rate limit",
    "usage limit",
    "try again later",
    "没有工具",
    "繁忙",
    "稍后",
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
    "密钥",
    "令牌",
];
/// Parts of sentences about a request that alone exceeds the whole window of the limit: waiting does not help, and other
/// requests are not limited.
pub(super) const OVERSIZED: &[&str] = &["request too large", "must be reduced"];
/// Parts of sentences about encrypted content that the account cannot read: one of the first and one of the second list.
pub(super) const CIPHERTEXT: [&[&str]; 2] = [
    &["encrypted content", "encrypted_content"],
    &["could not be", "cannot be", "did not match", "does not match", "decrypt", "not verified"],
];
/// Parts of sentences about stored context that the account does not have: one of each list.
pub(super) const STORED_CONTEXT: [&[&str]; 2] =
    [&["previous response", " with id "], &["not found", "does not exist", "no longer exists"]];

/// Returns a text in the form in which these parts are searched for.
pub(super) fn normalized(text: &str) -> String {
    text.trim().to_lowercase().replace('’', "'")
}

/// True if a normalized text has one of the parts.
pub(super) fn has_any(text: &str, parts: &[&str]) -> bool {
    parts.iter().any(|part| text.contains(part))
}
