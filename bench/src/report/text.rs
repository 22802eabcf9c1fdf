//! A report as people read it.

use std::fmt::{self, Display, Formatter};

use super::disturbance::{Disturbance, SplitsAndMerges};
use super::summary::{Errors, Flaw, FloorPair, Phase, Quantiles, Report, Saturation, Verification};
use crate::load::disturb::Disturbed;
use crate::reading::Catchup;
use crate::sweep::{Step, Sweep};

/// A time in microseconds, or `–` where there were too few samples.
struct Micros(Option<f64>);

/// A ratio, or `–`.
struct Times(Option<f64>);

impl Display for Micros {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.pad("–"),
            Some(us) if us < 1_000.0 => f.pad(&format!("{us:.1} us")),
            Some(us) if us < 1_000_000.0 => f.pad(&format!("{:.2} ms", us / 1e3)),
            Some(us) => f.pad(&format!("{:.2} s", us / 1e6)),
        }
    }
}

impl Display for Times {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.pad("–"),
            Some(ratio) => f.pad(&format!("{ratio:.2}x")),
        }
    }
}

fn row(f: &mut Formatter<'_>, name: &str, q: &Quantiles) -> fmt::Result {
    writeln!(
        f,
        "  {name:<13} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>11}",
        Micros(q.p50_us),
        Micros(q.p90_us),
        Micros(q.p99_us),
        Micros(q.p999_us),
        Micros(q.p9999_us),
        Micros(q.max_us),
        q.samples,
    )
}

fn head(f: &mut Formatter<'_>) -> fmt::Result {
    writeln!(
        f,
        "  {:<13} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>11}",
        "", "p50", "p90", "p99", "p99.9", "p99.99", "max", "samples"
    )
}

impl Display for FloorPair {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "floor: 4 KiB durable write by {}, and an echo of {} and {} bytes{}",
            self.before.method,
            self.request_bytes,
            self.reply_bytes,
            self.device_cache.as_ref().map_or_else(String::new, |cache| format!(" (device cache: {cache})")),
        )?;
        head(f)?;
        row(f, "write", &self.before.write)?;
        row(f, "echo", &self.before.echo)?;
        row(f, "sum", &self.before.sum)?;
        if let Some(after) = &self.after {
            row(f, "sum after", &after.sum)?;
        }
        Ok(())
    }
}

impl Display for Phase {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let rate = match self.offered_rate {
            Some(offered) => format!("open loop, {:.0} of {offered:.0} records/s", self.achieved_rate),
            None => format!("closed loop, {:.0} records/s", self.achieved_rate),
        };
        writeln!(
            f,
            "{}: {rate}; {} records, {:.1} MB/s in {:.1} s{}",
            self.name,
            self.records,
            mb_per_s(self.bytes, self.seconds),
            self.seconds,
            if self.saturated { "  SATURATED" } else { "" },
        )?;
        head(f)?;
        row(f, "response", &self.response)?;
        // A delivery has one time only.
        for (name, times) in [("service", &self.service), ("send delay", &self.send_delay)] {
            if times.samples > 0 {
                row(f, name, times)?;
            }
        }
        if let Some(Saturation { achieved, late }) = self.saturation() {
            let achieved = if achieved { "less than 99 % of the offered rate was achieved" } else { "" };
            let late = if late { "the client fell behind its schedule (p99 of the send delay above 1 ms)" } else { "" };
            let and = if achieved.is_empty() || late.is_empty() { "" } else { ", and " };
            writeln!(f, "  saturated: {achieved}{and}{late}")?;
        }
        if let Some(ratios) = &self.ratios {
            writeln!(f, "  response over floor: p50 {}, p99 {}", Times(ratios.p50), Times(ratios.p99))?;
        }
        for p in &self.percentiles {
            let times = [p.response_us, p.service_us, p.send_delay_us].map(Micros);
            let [response, service, send_delay] = &times;
            writeln!(f, "  p{}: response {response}, service {service}, send delay {send_delay}", p.percent)?;
        }
        if let Some(disturbance) = &self.disturbance {
            disturbance.fmt(f)?;
        }
        if let Some(splits_and_merges) = &self.splits_and_merges {
            splits_and_merges.fmt(f)?;
        }
        for act in &self.disturbed {
            act.fmt(f)?;
        }
        if let (Some(flushes), Some(each)) = (self.device_flushes, self.flushes_per_record) {
            writeln!(f, "  device flushes: {flushes}, {each:.4} a record")?;
        }
        if let Some(cpu) = self.client_cpu_us_per_record {
            writeln!(f, "  the client's thread ran {cpu:.2} us a record")?;
        }
        if let Some(steal) = self.steal.filter(|steal| *steal > 0.02) {
            writeln!(f, "  the hypervisor took {:.1} % of the time", steal * 100.0)?;
        }
        if self.stolen_intervals > 0 {
            writeln!(f, "  {} intervals of which the hypervisor took over 2 %", self.stolen_intervals)?;
        }
        self.errors.fmt(f)
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn mb_per_s(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 / 1e6 / seconds.max(f64::MIN_POSITIVE)
}

impl Display for Disturbance {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "  {} rolls, {} checkpoints; within 100 ms of one p99.9 {} of {} records, others {} of {}, ratio {}",
            self.rolls,
            self.checkpoints,
            Micros(self.near.p999_us),
            self.near.samples,
            Micros(self.others.p999_us),
            self.others.samples,
            Times(self.ratio_p999),
        )?;
        let unseen = (self.rolls + self.checkpoints).saturating_sub(self.events_seen);
        if unseen > 0 {
            writeln!(f, "  the times of {unseen} of them are known to 100 ms only")?;
        }
        if self.dropped > 0 {
            writeln!(f, "  {} records are in neither: more than can be kept", self.dropped)?;
        }
        Ok(())
    }
}

/// A number of things.
fn count(number: u64, one: &str) -> String {
    format!("{number} {one}{}", if number == 1 { "" } else { "s" })
}

impl Display for SplitsAndMerges {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "  {}, {}; within 50 ms of one p99 {} of {} records, others {} of {}, ratio {}; greatest p99 of one {}; stall: median {}, greatest {}",
            count(self.splits, "split"),
            count(self.merges, "merge"),
            Micros(self.near.p99_us),
            self.near.samples,
            Micros(self.others.p99_us),
            self.others.samples,
            Times(self.ratio_p99),
            Micros(self.act_p99_max_us),
            Micros(self.stall_median_us),
            Micros(self.stall_max_us),
        )
    }
}

impl Display for Disturbed {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "  {} at {:.3} s: ", self.what, self.at_seconds)?;
        if self.successors.is_empty() {
            f.write_str(&count(self.ranges, "range"))?;
        } else {
            write!(f, "{} into {}", self.parents.join(" and "), self.successors.join(" and "))?;
        }
        write!(f, " in {:.2} ms", self.seconds * 1e3)?;
        match &self.error {
            None => writeln!(f, "; p99 near it {}, stall {}", Micros(self.near_p99_us), Micros(self.stall_us)),
            Some(error) => writeln!(f, ", then: {error}"),
        }
    }
}

impl Display for Errors {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if *self == Self::default() {
            return Ok(());
        }
        let Self { not_stored, unknown, disconnects, by_cause } = self;
        let broke = if *disconnects == 1 { "connection" } else { "connections" };
        writeln!(f, "  errors: {not_stored} records not stored, {unknown} unknown; {disconnects} {broke} broke")?;
        for (cause, count) in by_cause {
            writeln!(f, "    {count} records: {cause}")?;
        }
        Ok(())
    }
}

/// The runs that the phases of the same names are the medians of.
struct Runs<'a>(&'a [Phase]);

impl Display for Runs<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut names: Vec<&str> = Vec::new();
        for run in self.0 {
            if !names.contains(&run.name.as_str()) {
                names.push(&run.name);
            }
        }
        for name in names {
            let runs: Vec<&Phase> = self.0.iter().filter(|run| run.name == name).collect();
            if runs.len() < 2 {
                continue;
            }
            writeln!(f, "{name}: all {} runs, of which the median by p99 is shown above:", runs.len())?;
            for (number, run) in (1..).zip(runs) {
                let (p50, p99) = (Micros(run.response.p50_us), Micros(run.response.p99_us));
                let saturated = if run.saturated { "  SATURATED" } else { "" };
                let (rate, samples) = (run.achieved_rate, run.response.samples);
                writeln!(
                    f,
                    "  run {number}: {rate:>10.0} records/s, p50 {p50:>10}, p99 {p99:>10} of {samples} samples{saturated}"
                )?;
            }
        }
        Ok(())
    }
}

impl Display for Verification {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "verification: {}: {} acknowledged, {} read back: {} lost, {} duplicated, {} reordered, {} damaged, {} unexpected; {} unknown",
            if self.passed() { "passed" } else { "FAILED" },
            self.acknowledged,
            self.read,
            self.lost,
            self.duplicated,
            self.reordered,
            self.damaged,
            self.unexpected,
            self.unknown,
        )?;
        for (cause, count) in &self.gaps {
            writeln!(f, "  {count} gaps told: {cause}")?;
        }
        Ok(())
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "settings: {}", self.settings)?;
        if let Some(floor) = &self.floor {
            floor.fmt(f)?;
        }
        for phase in &self.phases {
            phase.fmt(f)?;
        }
        Runs(&self.runs).fmt(f)?;
        if let Some(sweep) = &self.sweep {
            sweep.fmt(f)?;
        }
        if let Some(catchup) = &self.catchup {
            write!(f, "catching up: {catchup}")?;
        }
        if let Some(mixed) = &self.mixed {
            let (alone, beside) = (Micros(mixed.alone_p99_us), Micros(mixed.beside_p99_us));
            let ratio = Times(mixed.ratio_p99);
            writeln!(
                f,
                "median p99 of {} rounds: alone {alone}, beside a reader {beside}, ratio {ratio}",
                mixed.rounds
            )?;
            write!(f, "  the reader: {}", mixed.reader)?;
        }
        if let Some(verification) = &self.verification {
            verification.fmt(f)?;
        }
        match self.flaw() {
            None => Ok(()),
            Some(flaw) => writeln!(f, "NOT A MEASUREMENT: {flaw}"),
        }
    }
}

impl Display for Sweep {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            let (p50, p99) = (Micros(step.response.p50_us), Micros(step.response.p99_us));
            let judged = match step {
                Step { kept: true, .. } => "kept".to_owned(),
                Step { saturated: true, .. } => format!("missed: saturated, {:.0} records/s", step.achieved_rate),
                Step { errors: 1.., .. } => format!("missed: {} records not stored or unknown", step.errors),
                Step { .. } => "missed".to_owned(),
            };
            let (rate, samples) = (step.offered_rate, step.response.samples);
            writeln!(f, "  {rate:>10.0} records/s: p50 {p50:>10}, p99 {p99:>10} of {samples:>9} samples  {judged}")?;
        }
        match self.highest_rate {
            Some(rate) => writeln!(f, "highest rate that keeps {}: {rate:.0} records/s", self.objective),
            None => {
                let least = self.steps.iter().map(|step| step.offered_rate).fold(f64::INFINITY, f64::min);
                writeln!(
                    f,
                    "no rate keeps {}; the lowest that was tried is {least:.0} records/s, which a longer --duration lowers",
                    self.objective
                )
            }
        }
    }
}

impl Display for Catchup {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} records in {:.1} s: {:.0} records/s, {:.1} MB/s{}",
            self.records,
            self.seconds,
            self.records_a_second,
            self.bytes_a_second / 1e6,
            if self.gaps > 0 { format!("; {} gaps told", self.gaps) } else { String::new() },
        )
    }
}

impl Display for Flaw {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotDisturbed => "a disturbance that was asked for did not come to pass",
            Self::Saturated => "the load was not what was asked for (saturated)",
            Self::FloorMoved => "the floors before and after differ by more than a quarter",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_shown_in_the_unit_that_fits_and_a_missing_one_as_a_dash() {
        let shown: Vec<String> =
            [None, Some(9.96), Some(1_234.0), Some(2_500_000.0)].map(|us| Micros(us).to_string()).to_vec();
        assert_eq!(shown, ["–", "10.0 us", "1.23 ms", "2.50 s"]);
    }

    #[test]
    fn runs_are_told_under_their_names_and_errors_with_their_causes() {
        use crate::load::recorder::Recorder;
        let run = |name: &str, rate| Phase::new(name, 1.0, None, rate, &Recorder::default());
        let runs = [run("alone", 1.0), run("beside a reader", 2.0), run("alone", 3.0)];
        let told = Runs(&runs).to_string();
        let lines: Vec<&str> = told.lines().collect();
        assert!(lines[0].starts_with("alone: all 2 runs") && lines.len() == 3, "a single run is shown already: {told}");
        assert!(lines[2].starts_with("  run 2:          3 records/s"), "{told}");
        let by_cause = [("overloaded".to_owned(), 3)].into();
        let errors = Errors { not_stored: 3, unknown: 0, disconnects: 1, by_cause };
        let told = errors.to_string();
        assert_eq!(told, "  errors: 3 records not stored, 0 unknown; 1 connection broke\n    3 records: overloaded\n");
        assert_eq!(Errors::default().to_string(), "");
    }

    #[test]
    fn an_act_is_told_with_what_it_made_of_what_and_its_stall() {
        use crate::load::disturb::Act;
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let split = Disturbed {
            what: Act::Split,
            at_seconds: 1.0,
            seconds: 0.005_25,
            ranges: 1,
            parents: names(&["r1"]),
            successors: names(&["r2", "r3"]),
            error: None,
            near_p99_us: Some(750.0),
            stall_us: Some(9_130.0),
        };
        let told = "  split at 1.000 s: r1 into r2 and r3 in 5.25 ms; p99 near it 750.0 us, stall 9.13 ms\n";
        assert_eq!(split.to_string(), told);
        let (none, error) = (Vec::new(), Some("there is nothing to merge".to_owned()));
        let merge = Disturbed { what: Act::Merge, ranges: 0, parents: none.clone(), successors: none, error, ..split };
        assert_eq!(merge.to_string(), "  merge at 1.000 s: 0 ranges in 5.25 ms, then: there is nothing to merge\n");
    }
}
