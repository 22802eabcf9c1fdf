//! Wakes an executor now and then, because it may sleep while tasks are ready to run.
//!
//! ```text
//!  run():  poll_io: take events, mark tasks ready, arm the preemption timer
//!          run_task_queues: need_preempt()? -> ran = false, and no task has run        <-- the timer has fired by now
//!          nothing ran -> park(), until the next event
//! ```
//! In glommio 0.9.0 (`executor/mod.rs`) `run_task_queues` gives `ran = false` when `need_preempt()` is already true, and then `run` parks
//! although tasks are ready. It is already true where the timer fires between `poll_io` and the first task: another process had the core
//! for 10 ms. What is ready then waits for the next event, for ever if there is none: two shards that meet at their start, a request of
//! the only client. With a beat, it waits for the next beat.
//!
//! A beat is itself a task that may be left ready so, with its timer spent. So there are several, each with a timer of its own: all of
//! them must meet this one after the other.
//!
//! Beats are counted, for whoever wants to know that the executor moves: one that is stuck, starved or spinning beats no more.

use std::sync::Arc;
use std::time::Duration;

use super::metrics::ShardMetrics;

/// Beats that run beside each other.
const BEATS: u32 = 4;
/// Time between two of one beat; all together beat `BEATS` times in it.
const PERIOD: Duration = Duration::from_millis(80);

/// Starts the beats of the executor that this runs on. They end with it.
pub(super) fn start(metrics: &Arc<ShardMetrics>) {
    for beat in 0..BEATS {
        let metrics = metrics.clone();
        let first = PERIOD * (beat + 1) / BEATS;
        glommio::spawn_local(async move {
            glommio::timer::sleep(first).await;
            loop {
                metrics.beat();
                glommio::timer::sleep(PERIOD).await;
            }
        })
        .detach();
    }
}
