//! Caches the fetched lists of models: one fetch at a time for each owner, and the older answer while it runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use super::TextModel;

/// After this time an answer is fetched again, while the old one is still used (ours): models change from month to
/// month.
const FRESH: Duration = Duration::from_secs(600);
/// The pause after a failed fetch (ours).
const RETRY: Duration = Duration::from_secs(60);
/// The time for which an old answer is used while fetches from its owner fail (ours).
const USABLE: Duration = Duration::from_secs(3600);
/// The most fetches at the same time (ours): a list may have megabytes.
const FLIGHTS: usize = 4;

/// The models of one owner.
pub(super) type TextModelList = Arc<[TextModel]>;

/// The reason why there is no new answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModelFetchError {
    /// The credentials of the owner were refused, so its models can no longer be used.
    Refused,
    /// A temporary failure.
    Trouble,
}

/// The cached lists, by owner.
#[derive(Debug)]
pub(super) struct ModelCache<T> {
    books: Mutex<Vec<ModelCacheEntry<T>>>,
    flights: Semaphore,
}

#[derive(Debug)]
struct ModelCacheEntry<T> {
    owner: Weak<T>,
    /// `None` until the first fetch has ended.
    models: watch::Sender<Option<TextModelList>>,
    due: Instant,
    usable_until: Instant,
    under_way: bool,
}

/// A fetch. However it ends, the next one may begin.
struct ModelFetch<T> {
    shelf: Arc<ModelCache<T>>,
    owner: Weak<T>,
    result: Result<TextModelList, ModelFetchError>,
}

// === impl ModelCache ===

impl<T: Send + Sync + 'static> ModelCache<T> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { books: Mutex::default(), flights: Semaphore::new(FLIGHTS) })
    }

    /// Returns the known models of this owner, now or as soon as there are any. Runs `fetch` if one is due, in a task
    /// of its own.
    pub(super) fn look(
        self: &Arc<Self>,
        owner: &Arc<T>,
        fetch: impl Future<Output = Result<Vec<TextModel>, ModelFetchError>> + Send + 'static,
    ) -> watch::Receiver<Option<TextModelList>> {
        let now = Instant::now();
        let owner = Arc::downgrade(owner);
        let mut books = self.lock();
        books.retain(|book| book.owner.strong_count() > 0);
        let at = books.iter().position(|book| book.owner.ptr_eq(&owner)).unwrap_or_else(|| {
            books.push(ModelCacheEntry::new(owner.clone(), now));
            books.len() - 1
        });
        let book = &mut books[at];
        if book.due <= now && !book.under_way {
            book.under_way = true;
            let flight = ModelFetch { shelf: Arc::clone(self), owner, result: Err(ModelFetchError::Trouble) };
            Handle::current().spawn(async move {
                let shelf = Arc::clone(&flight.shelf);
                // The semaphore is never closed.
                let _turn = shelf.flights.acquire().await;
                flight.end(fetch.await.map(TextModelList::from));
            });
        }
        book.models.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ModelCacheEntry<T>>> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl ModelCacheEntry ===

impl<T> ModelCacheEntry<T> {
    fn new(owner: Weak<T>, now: Instant) -> Self {
        Self { owner, models: watch::Sender::new(None), due: now, usable_until: now, under_way: false }
    }

    fn end(&mut self, result: Result<TextModelList, ModelFetchError>, now: Instant) {
        self.under_way = false;
        match result {
            Ok(models) => {
                (self.due, self.usable_until) = (now + FRESH, now + USABLE);
                self.models.send_replace(Some(models));
            }
            Err(failed) => {
                self.due = now + RETRY;
                let is_usable = failed == ModelFetchError::Trouble && now < self.usable_until;
                if !is_usable {
                    self.models.send_replace(Some(TextModelList::default()));
                }
            }
        }
    }
}

// === impl ModelFetch ===

impl<T> ModelFetch<T> {
    fn end(mut self, result: Result<TextModelList, ModelFetchError>) {
        self.result = result;
    }
}

impl<T> Drop for ModelFetch<T> {
    fn drop(&mut self) {
        let result = std::mem::replace(&mut self.result, Err(ModelFetchError::Trouble));
        let mut books = self.shelf.books.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(book) = books.iter_mut().find(|book| book.owner.ptr_eq(&self.owner)) {
            book.end(result, Instant::now());
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
        Ok(vec![TextModel::named(id)])
    }

    fn ids(models: Option<&TextModelList>) -> Option<Vec<&str>> {
        models.map(|models| models.iter().map(|model| model.id.as_str()).collect())
    }

    /// One owner that is asked whenever a fetch is due, and that counts the fetches.
    struct ModelCacheFixture {
        shelf: Arc<ModelCache<()>>,
        owner: Arc<()>,
        fetches: Arc<AtomicUsize>,
    }

    impl ModelCacheFixture {
        fn new() -> Self {
            Self { shelf: ModelCache::new(), owner: Arc::new(()), fetches: Arc::default() }
        }

        fn look(&self, answer: Answer) -> watch::Receiver<Option<TextModelList>> {
            let fetches = Arc::clone(&self.fetches);
            self.shelf.look(&self.owner, async move {
                fetches.fetch_add(1, Ordering::SeqCst);
                answer
            })
        }

        /// Returns the known models after all tasks that can run have run.
        async fn settled(&self, answer: Answer) -> Vec<String> {
            let mut models = self.look(answer);
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
        let (desk, gate) = (ModelCacheFixture::new(), Arc::new(Notify::new()));
        let opened = Arc::clone(&gate);
        let mut first = desk.shelf.look(&desk.owner, async move {
            opened.notified().await;
            good("a")
        });
        let mut others: Vec<_> = (0..100).map(|_| desk.look(good("b"))).collect();
        tokio::task::yield_now().await;
        assert!(first.borrow().is_none(), "nothing is known before the fetch has ended");
        gate.notify_one();
        assert_eq!(ids(first.wait_for(Option::is_some).await.unwrap().as_ref()), Some(vec!["a"]));
        for other in &mut others {
            assert_eq!(ids(other.wait_for(Option::is_some).await.unwrap().as_ref()), Some(vec!["a"]));
        }
        assert_eq!(desk.fetches(), 0, "nobody else has fetched");
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_answer_serves_while_the_next_is_fetched() {
        let desk = ModelCacheFixture::new();
        assert_eq!(desk.settled(good("a")).await, ["a"]);
        advance(FRESH - Duration::from_secs(1)).await;
        assert_eq!((desk.settled(good("b")).await, desk.fetches()), (vec!["a".to_owned()], 1));
        advance(Duration::from_secs(1)).await;
        let models = desk.look(good("b"));
        assert_eq!(ids(models.borrow().as_ref()), Some(vec!["a"]), "the old one at once");
        assert_eq!((desk.settled(good("c")).await, desk.fetches()), (vec!["b".to_owned()], 2));
    }

    #[tokio::test(start_paused = true)]
    async fn trouble_leaves_the_old_answer_for_an_hour_and_is_not_asked_about_at_each_request() {
        let desk = ModelCacheFixture::new();
        desk.settled(good("a")).await;
        advance(FRESH).await;
        for _ in 0..10 {
            assert_eq!(desk.settled(Err(ModelFetchError::Trouble)).await, ["a"]);
        }
        assert_eq!(desk.fetches(), 2);
        advance(USABLE).await;
        desk.settled(Err(ModelFetchError::Trouble)).await;
        assert!(desk.settled(Err(ModelFetchError::Trouble)).await.is_empty());
        advance(RETRY).await;
        desk.settled(good("b")).await;
        assert_eq!(desk.settled(good("b")).await, ["b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_account_that_is_no_longer_let_in_lists_nothing() {
        let desk = ModelCacheFixture::new();
        desk.settled(good("a")).await;
        advance(FRESH).await;
        desk.settled(Err(ModelFetchError::Refused)).await;
        assert!(desk.settled(good("a")).await.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_fetch_that_panics_is_a_failure_like_others() {
        let desk = ModelCacheFixture::new();
        let mut models = desk.shelf.look(&desk.owner, async { panic!("a fault of our own") });
        assert_eq!(ids(models.wait_for(Option::is_some).await.unwrap().as_ref()), Some(Vec::new()));
        advance(RETRY).await;
        desk.settled(good("a")).await;
        assert_eq!(desk.settled(good("a")).await, ["a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_belongs_to_an_account_that_is_gone_is_forgotten() {
        let desk = ModelCacheFixture::new();
        desk.settled(good("a")).await;
        let other = Arc::new(());
        drop(Arc::clone(&desk.shelf).look(&other, async { good("b") }));
        assert_eq!(desk.shelf.lock().len(), 2);
        drop(other);
        desk.settled(good("a")).await;
        assert_eq!(desk.shelf.lock().len(), 1);
    }
}
