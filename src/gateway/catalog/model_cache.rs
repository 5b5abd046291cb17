//! Caches the model lists of accounts. Each account has at most one fetch at a time; the older list is used meanwhile.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use super::TextModel;

/// The age at which a list is fetched again (our choice). The old list is used until the new one arrives.
const FRESH_FOR: Duration = Duration::from_secs(600);
/// The pause after a failed fetch (our choice).
const RETRY_PAUSE: Duration = Duration::from_secs(60);
/// The age up to which a list is used while fetches fail (our choice).
const USABLE_FOR: Duration = Duration::from_secs(3600);
/// The most fetches at the same time (our choice): a list may be megabytes long.
const MAX_CONCURRENT_FETCHES: usize = 4;

/// The models of one owner.
pub(super) type TextModelList = Arc<[TextModel]>;

/// The reason why a fetch gave no list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModelFetchError {
    /// The credentials of the owner were refused, so its models can no longer be used.
    Refused,
    /// A temporary failure.
    Temporary,
}

/// The cached lists, by owner.
#[derive(Debug)]
pub(super) struct ModelCache<T> {
    entries: Mutex<Vec<ModelCacheEntry<T>>>,
    fetch_permits: Semaphore,
}

#[derive(Debug)]
struct ModelCacheEntry<T> {
    owner: Weak<T>,
    /// `None` until the first fetch has ended.
    models: watch::Sender<Option<TextModelList>>,
    fetch_due: Instant,
    usable_until: Instant,
    is_fetching: bool,
}

/// A running fetch. Its drop stores the result, also after a panic, so that the next fetch may begin.
struct ModelFetch<T> {
    cache: Arc<ModelCache<T>>,
    owner: Weak<T>,
    result: Result<TextModelList, ModelFetchError>,
}

// === impl ModelCache ===

impl<T: Send + Sync + 'static> ModelCache<T> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { entries: Mutex::default(), fetch_permits: Semaphore::new(MAX_CONCURRENT_FETCHES) })
    }

    /// Returns a receiver of the models of this owner; it holds `None` until the first fetch has ended. If a fetch is
    /// due, runs `fetch` in a task of its own.
    pub(super) fn get_or_fetch(
        self: &Arc<Self>,
        owner: &Arc<T>,
        fetch: impl Future<Output = Result<Vec<TextModel>, ModelFetchError>> + Send + 'static,
    ) -> watch::Receiver<Option<TextModelList>> {
        let now = Instant::now();
        let owner = Arc::downgrade(owner);
        let mut entries = self.lock();
        entries.retain(|entry| entry.owner.strong_count() > 0);
        let at = entries.iter().position(|entry| entry.owner.ptr_eq(&owner)).unwrap_or_else(|| {
            entries.push(ModelCacheEntry::new(owner.clone(), now));
            entries.len() - 1
        });
        let entry = &mut entries[at];
        if entry.fetch_due <= now && !entry.is_fetching {
            entry.is_fetching = true;
            let fetch_guard = ModelFetch { cache: Arc::clone(self), owner, result: Err(ModelFetchError::Temporary) };
            Handle::current().spawn(async move {
                let cache = Arc::clone(&fetch_guard.cache);
                // The semaphore is never closed.
                let _permit = cache.fetch_permits.acquire().await;
                fetch_guard.finish(fetch.await.map(TextModelList::from));
            });
        }
        entry.models.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ModelCacheEntry<T>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl ModelCacheEntry ===

impl<T> ModelCacheEntry<T> {
    fn new(owner: Weak<T>, now: Instant) -> Self {
        Self { owner, models: watch::Sender::new(None), fetch_due: now, usable_until: now, is_fetching: false }
    }

    fn finish_fetch(&mut self, result: Result<TextModelList, ModelFetchError>, now: Instant) {
        self.is_fetching = false;
        match result {
            Ok(models) => {
                (self.fetch_due, self.usable_until) = (now + FRESH_FOR, now + USABLE_FOR);
                self.models.send_replace(Some(models));
            }
            Err(failed) => {
                self.fetch_due = now + RETRY_PAUSE;
                let is_usable = failed == ModelFetchError::Temporary && now < self.usable_until;
                if !is_usable {
                    self.models.send_replace(Some(TextModelList::default()));
                }
            }
        }
    }
}

// === impl ModelFetch ===

impl<T> ModelFetch<T> {
    fn finish(mut self, result: Result<TextModelList, ModelFetchError>) {
        self.result = result;
    }
}

impl<T> Drop for ModelFetch<T> {
    fn drop(&mut self) {
        let result = std::mem::replace(&mut self.result, Err(ModelFetchError::Temporary));
        let mut entries = self.cache.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.iter_mut().find(|entry| entry.owner.ptr_eq(&self.owner)) {
            entry.finish_fetch(result, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Notify;
    use tokio::time::advance;

    use super::*;

    type Answer = Result<Vec<TextModel>, ModelFetchError>;

    #[expect(clippy::unnecessary_wraps, reason = "an answer like the bad ones")]
    fn good(id: &str) -> Answer {
        Ok(vec![TextModel::from_name(id)])
    }

    fn ids(models: Option<&TextModelList>) -> Option<Vec<&str>> {
        models.map(|models| models.iter().map(|model| model.id.as_str()).collect())
    }

    /// One owner that is asked whenever a fetch is due, and that counts the fetches.
    struct ModelCacheFixture {
        cache: Arc<ModelCache<()>>,
        owner: Arc<()>,
        fetches: Arc<AtomicUsize>,
    }

    impl ModelCacheFixture {
        fn new() -> Self {
            Self { cache: ModelCache::new(), owner: Arc::new(()), fetches: Arc::default() }
        }

        fn get_or_fetch(&self, answer: Answer) -> watch::Receiver<Option<TextModelList>> {
            let fetches = Arc::clone(&self.fetches);
            self.cache.get_or_fetch(&self.owner, async move {
                fetches.fetch_add(1, Ordering::SeqCst);
                answer
            })
        }

        /// Returns the known models after all tasks that can run have run.
        async fn models_after_fetch(&self, answer: Answer) -> Vec<String> {
            let mut models = self.get_or_fetch(answer);
            tokio::task::yield_now().await;
            let models = models.wait_for(Option::is_some).await.unwrap();
            ids(models.as_ref()).unwrap().into_iter().map(str::to_owned).collect()
        }

        fn fetches(&self) -> usize {
            self.fetches.load(Ordering::SeqCst)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn all_who_ask_at_once_wait_for_one_fetch() {
        let (fixture, gate) = (ModelCacheFixture::new(), Arc::new(Notify::new()));
        let opened = Arc::clone(&gate);
        let mut first = fixture.cache.get_or_fetch(&fixture.owner, async move {
            opened.notified().await;
            good("a")
        });
        let mut others: Vec<_> = (0..100).map(|_| fixture.get_or_fetch(good("b"))).collect();
        tokio::task::yield_now().await;
        assert!(first.borrow().is_none(), "nothing is known before the fetch has ended");
        gate.notify_one();
        assert_eq!(ids(first.wait_for(Option::is_some).await.unwrap().as_ref()), Some(vec!["a"]));
        for other in &mut others {
            assert_eq!(ids(other.wait_for(Option::is_some).await.unwrap().as_ref()), Some(vec!["a"]));
        }
        assert_eq!(fixture.fetches(), 0, "nobody else has fetched");
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_answer_serves_while_the_next_is_fetched() {
        let fixture = ModelCacheFixture::new();
        assert_eq!(fixture.models_after_fetch(good("a")).await, ["a"]);
        advance(FRESH_FOR - Duration::from_secs(1)).await;
        assert_eq!((fixture.models_after_fetch(good("b")).await, fixture.fetches()), (vec!["a".to_owned()], 1));
        advance(Duration::from_secs(1)).await;
        let models = fixture.get_or_fetch(good("b"));
        assert_eq!(ids(models.borrow().as_ref()), Some(vec!["a"]), "the old one at once");
        assert_eq!((fixture.models_after_fetch(good("c")).await, fixture.fetches()), (vec!["b".to_owned()], 2));
    }

    #[tokio::test(start_paused = true)]
    async fn trouble_leaves_the_old_answer_for_an_hour_and_is_not_asked_about_at_each_request() {
        let fixture = ModelCacheFixture::new();
        fixture.models_after_fetch(good("a")).await;
        advance(FRESH_FOR).await;
        for _ in 0..10 {
            assert_eq!(fixture.models_after_fetch(Err(ModelFetchError::Temporary)).await, ["a"]);
        }
        assert_eq!(fixture.fetches(), 2);
        advance(USABLE_FOR).await;
        fixture.models_after_fetch(Err(ModelFetchError::Temporary)).await;
        assert!(fixture.models_after_fetch(Err(ModelFetchError::Temporary)).await.is_empty());
        advance(RETRY_PAUSE).await;
        fixture.models_after_fetch(good("b")).await;
        assert_eq!(fixture.models_after_fetch(good("b")).await, ["b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_account_that_is_no_longer_let_in_lists_nothing() {
        let fixture = ModelCacheFixture::new();
        fixture.models_after_fetch(good("a")).await;
        advance(FRESH_FOR).await;
        fixture.models_after_fetch(Err(ModelFetchError::Refused)).await;
        assert!(fixture.models_after_fetch(good("a")).await.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_fetch_that_panics_is_a_failure_like_others() {
        let fixture = ModelCacheFixture::new();
        let mut models = fixture.cache.get_or_fetch(&fixture.owner, async { panic!("a fault of our own") });
        assert_eq!(ids(models.wait_for(Option::is_some).await.unwrap().as_ref()), Some(Vec::new()));
        advance(RETRY_PAUSE).await;
        fixture.models_after_fetch(good("a")).await;
        assert_eq!(fixture.models_after_fetch(good("a")).await, ["a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_belongs_to_an_account_that_is_gone_is_forgotten() {
        let fixture = ModelCacheFixture::new();
        fixture.models_after_fetch(good("a")).await;
        let other = Arc::new(());
        drop(Arc::clone(&fixture.cache).get_or_fetch(&other, async { good("b") }));
        assert_eq!(fixture.cache.lock().len(), 2);
        drop(other);
        fixture.models_after_fetch(good("a")).await;
        assert_eq!(fixture.cache.lock().len(), 1);
    }
}
