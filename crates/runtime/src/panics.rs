//! Panics: one in a request ends that request, any other one ends the process.
//!
//! A task that died quietly would leave a process that does half of its work; a restart does all of it.

use tokio::task::futures::TaskLocalFuture;

tokio::task_local! {
    static ISOLATED: ();
}

/// From now on a panic outside of [`isolated`] work ends the process, after its message.
pub fn end_process_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        print(info);
        if ISOLATED.try_with(|()| ()).is_err() {
            std::process::abort();
        }
    }));
}

/// Work whose panic ends nothing but its own task.
pub fn isolated<F: Future>(work: F) -> TaskLocalFuture<(), F> {
    ISOLATED.scope((), work)
}

/// As [`isolated`], for work that blocks its thread.
pub fn isolated_blocking<T>(work: impl FnOnce() -> T) -> T {
    ISOLATED.sync_scope((), work)
}
