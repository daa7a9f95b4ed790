//! Background tasks of the process: each has a name and is restarted when it panics.

use std::{panic::AssertUnwindSafe, time::Duration};

use actix_rt::task::JoinHandle;
use futures_util::FutureExt;

/// Pause before a task that panicked is restarted.
const RESTART_PAUSE: Duration = Duration::from_millis(100);

/// Tasks on the current thread. They are aborted on drop.
#[derive(Default)]
pub struct BackgroundTasks {
    handles: Vec<JoinHandle<()>>,
}

impl BackgroundTasks {
    /// Runs a task until it returns. After a panic it is started again, and the log names it.
    pub fn spawn<F, Run>(&mut self, name: &'static str, task: F)
    where
        F: Fn() -> Run + 'static,
        Run: Future<Output = ()> + 'static,
    {
        self.handles.push(actix_rt::spawn(async move {
            while AssertUnwindSafe(task()).catch_unwind().await.is_err() {
                tracing::error!(task = name, "a background task panicked: restarting it");
                tokio::time::sleep(RESTART_PAUSE).await;
            }
        }));
    }
}

impl Drop for BackgroundTasks {
    fn drop(&mut self) {
        for handle in &self.handles {
            handle.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, rc::Rc};

    use tokio::sync::Notify;

    use super::*;

    #[actix_rt::test]
    async fn a_task_that_panics_is_restarted_until_it_returns() {
        let (starts, returned) = (Rc::new(Cell::new(0)), Rc::new(Notify::new()));
        let mut tasks = BackgroundTasks::default();
        tasks.spawn("test", {
            let (starts, returned) = (Rc::clone(&starts), Rc::clone(&returned));
            move || {
                let (starts, returned) = (Rc::clone(&starts), Rc::clone(&returned));
                async move {
                    starts.set(starts.get() + 1);
                    assert!(starts.get() > 2, "the first two runs panic");
                    returned.notify_one();
                }
            }
        });
        returned.notified().await;
        assert_eq!(starts.get(), 3);
    }

    #[actix_rt::test]
    async fn dropped_tasks_are_aborted() {
        let held = Rc::new(());
        let mut tasks = BackgroundTasks::default();
        tasks.spawn("test", {
            let held = Rc::clone(&held);
            move || {
                let held = Rc::clone(&held);
                async move {
                    std::future::pending::<()>().await;
                    drop(held);
                }
            }
        });
        tokio::task::yield_now().await;
        drop(tasks);
        tokio::task::yield_now().await;
        assert_eq!(Rc::strong_count(&held), 1);
    }
}
