//! A few seeds, and what makes seeds worth anything: that one gives the same run every time.

use sealog_sim::scenario::{Options, run};

fn options() -> Options {
    Options { events_min: 3_000, operations_min: 100, ..Options::default() }
}

#[test]
fn a_seed_gives_the_same_digest_every_time_and_another_seed_another() {
    let digest = |seed| {
        let report = run(seed, &options());
        assert!(report.violation.is_none(), "seed {seed}: {:?}", report.violation);
        (report.digest, report.events)
    };
    let first = digest(7);
    assert_eq!(first, digest(7));
    assert_ne!(first, digest(8));
}

#[test]
fn listening_to_a_seed_does_not_change_it() {
    let silent = run(11, &options());
    let kept = run(11, &Options { keeps: true, ..options() });
    assert_eq!(silent.digest, kept.digest);
    assert!(silent.last.is_empty() && !kept.last.is_empty());
}

#[test]
fn some_seeds_keep_every_promise() {
    for seed in 100..120 {
        let report = run(seed, &options());
        assert!(report.violation.is_none(), "seed {seed}: {:?}", report.violation);
        assert!(report.crashes > 0 && report.records > 0);
    }
}

/// With the options of a run by hand.
#[test]
fn seeds_in_full_length_keep_every_promise() {
    for seed in [345, 1_796_081_005_000_500] {
        let report = run(seed, &Options::default());
        assert!(report.violation.is_none(), "seed {seed}: {:?}", report.violation);
    }
}
