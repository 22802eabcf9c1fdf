//! Two runs beside each other, phase by phase. Ratios are *this run over the baseline*: above 1 a time is worse and a rate better.

use std::fmt::{self, Display, Formatter};

use serde::Serialize;

use super::summary::{Phase, Report};
use crate::reading::Catchup;

/// A run against a baseline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    pub baseline_commit: String,
    pub commit: String,
    /// Whether both are measurements, under the same settings, on the same machine.
    pub valid: bool,
    /// Why not, in words.
    pub differences: Vec<String>,
    /// Floor now over floor then, p50 of the sum: what the machine alone explains.
    pub floor_p50: Option<f64>,
    pub phases: Vec<PhaseComparison>,
}

/// One phase that both runs have.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseComparison {
    pub name: String,
    pub baseline_rate: f64,
    pub rate: f64,
    pub rate_ratio: Option<f64>,
    pub p50: Pair,
    pub p99: Pair,
    pub p999: Pair,
}

/// One figure of both runs, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pair {
    pub baseline_us: Option<f64>,
    pub us: Option<f64>,
    pub ratio: Option<f64>,
}

impl Pair {
    fn new(baseline_us: Option<f64>, us: Option<f64>) -> Self {
        let ratio = us.zip(baseline_us).filter(|(_, baseline)| *baseline > 0.0).map(|(us, baseline)| us / baseline);
        Self { baseline_us, us, ratio }
    }
}

impl Comparison {
    /// Compares the phases of the same name.
    #[must_use]
    pub fn of(baseline: &Report, run: &Report) -> Self {
        let mut differences = Vec::new();
        for (whose, report) in [("the baseline", baseline), ("the run", run)] {
            differences.extend(report.flaw().map(|flaw| format!("{whose} is not a measurement: {flaw}")));
            if report.sweep.as_ref().is_some_and(|sweep| sweep.highest_rate.is_none()) {
                differences.push(format!("{whose} is a sweep that found no rate"));
            }
        }
        let machine = |report: &Report| {
            let host = &report.host;
            (host.cpu.clone(), host.cpus, host.kernel.clone(), host.wake_latency_us)
        };
        if machine(baseline) != machine(run) {
            differences.push("they were made on different machines, or on a changed one".to_owned());
        }
        differences.extend(changed_settings(baseline, run));
        let mut phases: Vec<PhaseComparison> = baseline
            .phases
            .iter()
            .filter_map(|then| Some(PhaseComparison::of(then, run.phases.iter().find(|now| now.name == then.name)?)))
            .collect();
        if let (Some(then), Some(now)) = (&baseline.catchup, &run.catchup) {
            phases.push(PhaseComparison::of_readers(then, now));
        }
        if phases.is_empty() {
            differences.push("they have no phase in common".to_owned());
        }
        let floor = |report: &Report| report.floor.as_ref().and_then(|pair| pair.before.sum.p50_us);
        Self {
            baseline_commit: baseline.commit.clone(),
            commit: run.commit.clone(),
            valid: differences.is_empty(),
            differences,
            floor_p50: Pair::new(floor(baseline), floor(run)).ratio,
            phases,
        }
    }

    /// Whether a phase has a p99 higher, or a rate lower, by more than this share.
    #[must_use]
    pub fn is_worse_by(&self, share: f64) -> bool {
        self.phases.iter().any(|phase| {
            phase.p99.ratio.is_some_and(|ratio| ratio > 1.0 + share)
                || phase.rate_ratio.is_some_and(|ratio| ratio < 1.0 - share)
        })
    }
}

impl PhaseComparison {
    /// What was read has a rate and no times.
    fn of_readers(then: &Catchup, now: &Catchup) -> Self {
        let (baseline_rate, rate) = (then.records_a_second, now.records_a_second);
        let none = Pair::new(None, None);
        Self {
            name: "catching up".to_owned(),
            baseline_rate,
            rate,
            rate_ratio: (baseline_rate > 0.0).then(|| rate / baseline_rate),
            p50: none,
            p99: none,
            p999: none,
        }
    }

    fn of(then: &Phase, now: &Phase) -> Self {
        let (a, b) = (&then.response, &now.response);
        Self {
            name: then.name.clone(),
            baseline_rate: then.achieved_rate,
            rate: now.achieved_rate,
            rate_ratio: (then.achieved_rate > 0.0).then(|| now.achieved_rate / then.achieved_rate),
            p50: Pair::new(a.p50_us, b.p50_us),
            p99: Pair::new(a.p99_us, b.p99_us),
            p999: Pair::new(a.p999_us, b.p999_us),
        }
    }
}

/// Settings that make another load. Where the records go, which percentiles are told, and what is read back behind it, does not.
fn changed_settings(baseline: &Report, run: &Report) -> Vec<String> {
    let plain = |report: &Report| serde_json::to_value(&report.settings).expect("settings are plain data");
    let (then, now) = (plain(baseline), plain(run));
    let names = then.as_object().into_iter().flatten().map(|(name, _)| name);
    names
        .filter(|name| {
            !["topic", "percentiles", "seed", "timeout_ms", "verify"].contains(&name.as_str())
                && then[*name] != now[*name]
        })
        .map(|name| format!("{name} was {} and is {}", then[name], now[name]))
        .collect()
}

impl Display for Comparison {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "baseline {}, run {}", self.baseline_commit, self.commit)?;
        for phase in &self.phases {
            writeln!(
                f,
                "{}: {:.0} -> {:.0} records/s ({})",
                phase.name,
                phase.baseline_rate,
                phase.rate,
                Change(phase.rate_ratio)
            )?;
            let times = [("p50", phase.p50), ("p99", phase.p99), ("p99.9", phase.p999)];
            for (name, pair) in times.into_iter().filter(|(_, pair)| pair.baseline_us.or(pair.us).is_some()) {
                let us = |us: Option<f64>| us.map_or_else(|| "–".to_owned(), |us| format!("{us:.1} us"));
                writeln!(
                    f,
                    "  {name:<6} {:>14} -> {:>14} ({})",
                    us(pair.baseline_us),
                    us(pair.us),
                    Change(pair.ratio)
                )?;
            }
        }
        writeln!(f, "floor p50: {}", Change(self.floor_p50))?;
        for difference in &self.differences {
            writeln!(f, "NOT COMPARABLE: {difference}")?;
        }
        Ok(())
    }
}

/// A ratio as a change in percent, or `–`.
struct Change(Option<f64>);

impl Display for Change {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(ratio) => write!(f, "{:+.1} %", (ratio - 1.0) * 100.0),
            None => f.write_str("–"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::files::tests::report;
    use crate::sweep::Sweep;

    #[test]
    fn a_run_against_itself_has_not_changed() {
        let comparison = Comparison::of(&report(), &report());
        assert!(comparison.valid && !comparison.is_worse_by(0.0), "{comparison}");
        assert_eq!(comparison.phases[0].p99.ratio, Some(1.0));
    }

    #[test]
    fn a_slower_run_is_worse_beyond_the_tolerance_only() {
        let mut slower = report();
        slower.phases[0].response.p99_us = slower.phases[0].response.p99_us.map(|us| us * 1.2);
        let comparison = Comparison::of(&report(), &slower);
        assert!(comparison.is_worse_by(0.1) && !comparison.is_worse_by(0.25));
        assert!(!Comparison::of(&slower, &report()).is_worse_by(0.1), "faster is not worse");
    }

    #[test]
    fn readers_are_compared_by_their_rates() {
        let reading = |rate| {
            let mut report = report();
            report.phases.clear();
            report.catchup = Some(Catchup { records_a_second: rate, ..Catchup::default() });
            report
        };
        let comparison = Comparison::of(&reading(100.0), &reading(80.0));
        assert!(comparison.valid && comparison.is_worse_by(0.1) && !comparison.is_worse_by(0.3), "{comparison}");
        assert!(!Comparison::of(&report(), &reading(1.0)).valid, "nothing in common");
    }

    #[test]
    fn another_load_and_a_saturated_run_are_no_baseline() {
        let mut other = report();
        other.settings.value_bytes += 1;
        other.phases[0].saturated = true;
        let comparison = Comparison::of(&report(), &other);
        assert!(!comparison.valid);
        assert_eq!(comparison.differences.len(), 2, "{:?}", comparison.differences);
        let mut vain = report();
        vain.sweep = Some(Sweep { objective: String::new(), highest_rate: None, steps: Vec::new() });
        assert!(!Comparison::of(&report(), &vain).valid, "a sweep that found nothing");
        let mut elsewhere = report();
        elsewhere.settings.topic = "another".to_owned();
        assert!(Comparison::of(&report(), &elsewhere).valid, "a topic's name changes nothing");
    }
}
