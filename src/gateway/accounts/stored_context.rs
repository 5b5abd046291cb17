//! Decides which account continues a conversation, and whether its caller may name what an upstream has stored.
//!
//! A response, a conversation or an encrypted item belongs to the account that made it, and to the user for whom it was
//! made: no other account has it, and no other user may name it. Besides, the upstream caches the beginning of a
//! conversation at the account that served it last. The bindings are in the store, so that all nodes decide alike; the
//! decision itself is pure.

use std::collections::HashMap;

use super::Accounts;
use crate::gateway::config::StoredContextPolicy;
use crate::gateway::keys::Caller;
use crate::gateway::rules::{ContextValue, ServingAccounts};
use crate::gateway::store::{AccountBinding, BindingDigest, StoreError, Timestamp, UtcDay};

/// The maximum number of bindings that are renewed for the values that a request sends again (our choice): the newest
/// values decide, so the bindings of older ones may expire.
const RENEWED_MAX: usize = 32;

/// A value of a request that can belong to a user and an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContextPart {
    /// Its path in the request.
    pub(crate) param: String,
    /// Its digest.
    pub(crate) digest: BindingDigest,
    /// True if the request only names what the upstream stores; false if it sends the content, which the account that
    /// made it can read.
    pub(crate) is_stored: bool,
}

/// The refusal of a part of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContextRefusal {
    /// The path of the part in the request.
    pub(crate) param: String,
    /// True if the part was made for the caller, but its account no longer serves the group; false if it is not known as
    /// the caller's.
    pub(crate) is_gone: bool,
}

/// The accounts for a request, or the refusal of a part that the caller may not name.
type ContextDecision = Result<ServingAccounts, ContextRefusal>;

/// The facts about the caller on which the decision depends.
struct ContextRules<'a> {
    /// The policy of the group, which is asked only if a part is not known.
    policy: &'a dyn Fn() -> StoredContextPolicy,
    is_owner: &'a dyn Fn(&str) -> bool,
    /// True for the name of an account that serves the group, whether it can at this moment or not.
    serves: &'a dyn Fn(&str) -> bool,
    today: UtcDay,
}

/// The binding of a value, as far as it concerns the caller.
enum KnownBinding<'a> {
    Own(&'a AccountBinding),
    Foreign,
}

// === impl Accounts ===

impl Accounts {
    /// Returns the accounts to which these parts of a request, oldest first, and its conversation belong.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read.
    pub(crate) async fn serving_accounts(
        &self,
        caller: &Caller,
        parts: &[ContextPart],
        session: Option<&[u8]>,
        policy: &(dyn Fn() -> StoredContextPolicy + Sync),
    ) -> Result<ContextDecision, StoreError> {
        let session = session.map(|session| BindingDigest::of_session(caller.binding_owner(), session));
        let digests: Vec<_> =
            parts.iter().map(|part| &part.digest).chain(&session).map(BindingDigest::as_str).collect();
        if digests.is_empty() {
            return Ok(Ok(ServingAccounts::default()));
        }
        let bindings = self.store.find_bindings(&digests).await?;
        let serving = self.text_model_accounts(caller.group_name());
        let rules = ContextRules {
            policy,
            is_owner: &|owner| caller.is_binding_owner(owner),
            serves: &|name| serving.iter().any(|account| account.name() == name),
            today: Timestamp::now().into(),
        };
        Ok(decide(parts, session, &bindings, &rules))
    }
}

/// Decides on a request. The newest part counts, because only its account can have read all parts before it; the
/// conversation counts if no part is bound.
fn decide(
    parts: &[ContextPart],
    session: Option<BindingDigest>,
    bindings: &[AccountBinding],
    rules: &ContextRules<'_>,
) -> ContextDecision {
    let known = known_bindings(bindings, rules);
    let (mut accounts, mut renewed) = (ServingAccounts::default(), 0);
    for part in parts.iter().rev() {
        let refuse = |is_gone| Err(ContextRefusal { param: part.param.clone(), is_gone });
        match known.get(&part.digest) {
            Some(KnownBinding::Foreign) => return refuse(false),
            None if part.is_stored && (rules.policy)() == StoredContextPolicy::Own => return refuse(false),
            None => {}
            Some(KnownBinding::Own(binding)) => {
                let serves = (rules.serves)(&binding.account);
                if part.is_stored && !serves {
                    return refuse(true);
                }
                let account = if part.is_stored { &mut accounts.only } else { &mut accounts.home };
                if account.is_none() && serves {
                    *account = Some(binding.account.clone());
                }
                renewed += usize::from(!part.is_stored);
                if part.is_stored || renewed <= RENEWED_MAX {
                    accounts.values.push(context_value(part.digest.clone(), Some(binding), rules.today));
                }
            }
        }
    }
    if let Some(digest) = session {
        let binding = match known.get(&digest) {
            Some(KnownBinding::Own(binding)) => Some(*binding),
            Some(KnownBinding::Foreign) | None => None,
        };
        let last = binding.map(|binding| &binding.account).filter(|account| (rules.serves)(account));
        accounts.home = accounts.home.or_else(|| last.cloned());
        accounts.values.push(context_value(digest, binding, rules.today));
    }
    Ok(accounts)
}

/// Returns the binding of each value. That of the caller goes before those of others: some upstreams use an id twice.
fn known_bindings<'a>(
    bindings: &'a [AccountBinding],
    rules: &ContextRules<'_>,
) -> HashMap<&'a BindingDigest, KnownBinding<'a>> {
    let mut known = HashMap::new();
    for binding in bindings {
        if (rules.is_owner)(&binding.owner) {
            known.insert(&binding.digest, KnownBinding::Own(binding));
        } else {
            known.entry(&binding.digest).or_insert(KnownBinding::Foreign);
        }
    }
    known
}

fn context_value(digest: BindingDigest, binding: Option<&AccountBinding>, today: UtcDay) -> ContextValue {
    let stored_account = binding.filter(|binding| binding.used_on == today).map(|binding| binding.account.clone());
    ContextValue { digest, stored_account }
}

#[cfg(test)]
mod tests;
