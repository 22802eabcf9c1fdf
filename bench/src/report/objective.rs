//! What a run is expected to keep: `p99<1ms,p99.9<5ms,rate>20000`.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::summary::{Phase, samples_min};

/// All of these must hold in every phase.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Objectives(pub Vec<Objective>);

/// One bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Objective {
    /// A quantile of the response time lies below so many microseconds.
    Response { quantile: Quantile, below_us: f64 },
    /// More records a second than this are stored.
    Rate { above: f64 },
}

/// A place in a distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quantile {
    /// Above 0, below 100.
    Percent(f64),
    Max,
}

/// Why an objective is not understood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ObjectiveError {
    #[error("`{0}` is no objective: write p99<1ms or rate>20000")]
    Shape(String),
    #[error("`{0}` is no percentile: write p50, p99.9, or max")]
    Quantile(String),
    #[error("`{0}` is no time: write 250us, 1ms or 2s")]
    Time(String),
    #[error("`{0}` is no rate")]
    Rate(String),
}

impl FromStr for Objectives {
    type Err = ObjectiveError;

    fn from_str(text: &str) -> Result<Self, ObjectiveError> {
        text.split(',').map(|part| part.trim().parse()).collect::<Result<_, _>>().map(Self)
    }
}

impl FromStr for Objective {
    type Err = ObjectiveError;

    fn from_str(text: &str) -> Result<Self, ObjectiveError> {
        if let Some(rate) = text.strip_prefix("rate>") {
            let above = rate.parse().map_err(|_| ObjectiveError::Rate(rate.to_owned()))?;
            return Ok(Self::Rate { above });
        }
        let (name, time) = text.split_once('<').ok_or_else(|| ObjectiveError::Shape(text.to_owned()))?;
        let quantile = match name {
            "max" => Quantile::Max,
            _ => {
                let percent = name.strip_prefix('p').and_then(|percent| percent.parse().ok());
                let percent = percent.filter(|percent| *percent > 0.0 && *percent < 100.0);
                Quantile::Percent(percent.ok_or_else(|| ObjectiveError::Quantile(name.to_owned()))?)
            }
        };
        Ok(Self::Response { quantile, below_us: micros(time)? })
    }
}

fn micros(text: &str) -> Result<f64, ObjectiveError> {
    let wrong = || ObjectiveError::Time(text.to_owned());
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(wrong)?);
    let scale = match unit {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        _ => return Err(wrong()),
    };
    number.parse::<f64>().map(|number| number * scale).map_err(|_| wrong())
}

impl Objectives {
    /// The percentiles that must be measured to judge them.
    pub fn percentiles(&self) -> impl Iterator<Item = f64> {
        self.0.iter().filter_map(|objective| match objective {
            Objective::Response { quantile: Quantile::Percent(percent), .. } => Some(*percent),
            Objective::Response { quantile: Quantile::Max, .. } | Objective::Rate { .. } => None,
        })
    }

    /// The samples that a load needs at the least for all of them to be measured.
    #[must_use]
    pub fn samples_min(&self) -> f64 {
        self.percentiles().map(samples_min).fold(1.0, f64::max)
    }

    /// Whether a phase keeps all of them.
    #[must_use]
    pub fn kept(&self, phase: &Phase) -> bool {
        self.0.iter().all(|objective| objective.kept(phase))
    }
}

impl Objective {
    /// Whether the phase keeps it. A percentile that was not measured is not kept.
    #[must_use]
    pub fn kept(&self, phase: &Phase) -> bool {
        match *self {
            Self::Rate { above } => phase.achieved_rate > above,
            Self::Response { quantile, below_us } => {
                let q = &phase.response;
                let measured = match quantile {
                    Quantile::Max => q.max_us,
                    Quantile::Percent(50.0) => q.p50_us,
                    Quantile::Percent(90.0) => q.p90_us,
                    Quantile::Percent(99.0) => q.p99_us,
                    Quantile::Percent(99.9) => q.p999_us,
                    Quantile::Percent(99.99) => q.p9999_us,
                    #[expect(clippy::float_cmp, reason = "both are the number that was asked for")]
                    Quantile::Percent(percent) => {
                        phase.percentiles.iter().find(|p| p.percent == percent).and_then(|p| p.response_us)
                    }
                };
                measured.is_some_and(|us| us < below_us)
            }
        }
    }
}

impl fmt::Display for Objectives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, objective) in self.0.iter().enumerate() {
            write!(f, "{}{objective}", if index > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

/// Microseconds in the largest unit that leaves a whole number, as they can be written again.
struct Bound(f64);

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("s", 1e6), ("ms", 1e3), ("us", 1.0)];
        let (unit, scale) = units.into_iter().find(|(_, scale)| self.0 % scale == 0.0).unwrap_or(("us", 1.0));
        write!(f, "{}{unit}", self.0 / scale)
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate { above } => write!(f, "rate>{above}"),
            Self::Response { quantile, below_us } => match quantile {
                Quantile::Max => write!(f, "max<{}", Bound(*below_us)),
                Quantile::Percent(percent) => write!(f, "p{percent}<{}", Bound(*below_us)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::recorder::Recorder;
    use crate::report::summary::Percentile;

    #[test]
    fn objectives_parse_and_are_judged_against_a_phase() {
        let objectives: Objectives = "p99<1ms, max<2s,rate>10".parse().expect("valid");
        let mut times = Recorder::default();
        (0..1_000).for_each(|_| times.record(0, 0, 900_000));
        times.record(0, 0, 3_000_000_000);
        let phase = Phase::new("load", 1.0, None, 11.0, &times);
        let kept: Vec<bool> = objectives.0.iter().map(|o| o.kept(&phase)).collect();
        assert_eq!(kept, [true, false, true]);
        let asked_for: Objective = "p99.5<1s".parse().expect("valid");
        assert!(!asked_for.kept(&phase), "it was not measured");
        let percentiles = vec![Percentile::of(99.0, &times), Percentile::of(98.5, &times)];
        let phase = Phase { percentiles, ..phase };
        assert!("p98.5<1ms".parse::<Objective>().expect("valid").kept(&phase));
        let unmeasured: Objective = "p99.99<1s".parse().expect("valid");
        assert!(!unmeasured.kept(&phase), "a thousand samples have no p99.99");
    }

    #[test]
    fn objectives_are_shown_as_they_can_be_written_again() {
        for text in ["p99<5ms", "p99.9<250us", "max<2s,rate>20000", "p50<0.5us", "p50<1500us"] {
            let objectives: Objectives = text.parse().expect("valid");
            assert_eq!(objectives.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_objective_is_named() {
        let error = |text: &str| text.parse::<Objectives>().expect_err("invalid");
        assert_eq!(error("p99"), ObjectiveError::Shape("p99".into()));
        assert_eq!(error("p100<1ms"), ObjectiveError::Quantile("p100".into()));
        assert_eq!(error("p99<1"), ObjectiveError::Time("1".into()));
        assert_eq!(error("p99<1m"), ObjectiveError::Time("1m".into()));
        assert_eq!(error("rate>x"), ObjectiveError::Rate("x".into()));
    }
}
