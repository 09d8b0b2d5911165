//! What was measured, by file, threads and test.

use serde_json::Value;

use super::files::ModelFile;
use super::runner::Runner;

pub(super) const MEMORY: &str = "peak memory MiB";
pub(super) const FIRST_TOKEN: &str = "start to first token ms";

/// One figure.
pub(super) struct Sample {
    test: String,
    value: f64,
    /// Whether less is better.
    is_cost: bool,
    ceiling: Option<(f64, String)>,
}

/// Figures as they are measured.
pub(super) fn brief(samples: &[Sample]) -> String {
    let each = samples.iter();
    let each: Vec<_> = each
        .map(|sample| format!("{} {:.1}", sample.test, sample.value))
        .collect();
    each.join(", ")
}

impl Sample {
    /// A line of `andante bench --json` or of the peers' driver; `None` where it is none of a test.
    pub(super) fn of_speed(line: &Value) -> Option<Self> {
        let ceiling = line["ceiling_tokens_per_s"].as_f64();
        Some(Self {
            test: line["test"].as_str()?.to_owned(),
            value: line["tokens_per_s"][0].as_f64()?,
            is_cost: false,
            ceiling: ceiling.zip(line["limit"].as_str().map(str::to_owned)),
        })
    }

    pub(super) fn cost(test: &str, value: f64) -> Self {
        Self {
            test: test.to_owned(),
            value,
            is_cost: true,
            ceiling: None,
        }
    }

    pub(super) fn value(&self) -> f64 {
        self.value
    }
}

/// One test of one file with so many threads.
pub(super) struct Row {
    pub(super) file: String,
    pub(super) threads: usize,
    pub(super) test: String,
    pub(super) is_cost: bool,
    /// By the runner's name: the value of every round.
    pub(super) values: Vec<(&'static str, Vec<f64>)>,
    pub(super) ceilings: Vec<f64>,
    pub(super) limit: String,
}

#[derive(Default)]
pub(super) struct Results {
    pub(super) rows: Vec<Row>,
}

impl Results {
    pub(super) fn add(
        &mut self,
        file: &ModelFile,
        threads: usize,
        runner: &Runner,
        samples: Vec<Sample>,
    ) {
        for sample in samples {
            let row = self.row(&file.name, threads, &sample);
            if let Some((ceiling, limit)) = sample.ceiling {
                row.ceilings.push(ceiling);
                row.limit = limit;
            }
            match row.values.iter_mut().find(|(name, _)| *name == runner.name) {
                Some((_, values)) => values.push(sample.value),
                None => row.values.push((runner.name, vec![sample.value])),
            }
        }
    }

    fn row(&mut self, file: &str, threads: usize, sample: &Sample) -> &mut Row {
        let found = self
            .rows
            .iter()
            .position(|row| row.file == file && row.threads == threads && row.test == sample.test);
        let index = found.unwrap_or_else(|| {
            self.rows.push(Row {
                file: file.to_owned(),
                threads,
                test: sample.test.clone(),
                is_cost: sample.is_cost,
                values: Vec::new(),
                ceilings: Vec::new(),
                limit: String::new(),
            });
            self.rows.len() - 1
        });
        &mut self.rows[index]
    }
}

impl Row {
    pub(super) fn values(&self, name: &str) -> &[f64] {
        let found = self.values.iter().find(|(other, _)| *other == name);
        found.map_or(&[], |(_, values)| values)
    }

    /// Andante's median over that of the best peer; above 1 is faster, or for a cost dearer.
    pub(super) fn ratio(&self) -> Option<f64> {
        self.ratio_of(median)
    }

    /// The same for one round.
    pub(super) fn ratio_in_round(&self, round: usize) -> Option<f64> {
        self.ratio_of(|values| values.get(round).copied())
    }

    fn ratio_of(&self, figure: impl Fn(&[f64]) -> Option<f64>) -> Option<f64> {
        let ours = figure(self.values("andante"))?;
        let peers = self.values.iter().filter(|(name, _)| *name != "andante");
        let best = peers
            .filter_map(|(_, values)| figure(values))
            .reduce(if self.is_cost { f64::min } else { f64::max })?;
        Some(ours / best)
    }
}

/// `None` of nothing.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        length if length % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::{Row, median};

    fn row(is_cost: bool) -> Row {
        Row {
            file: String::new(),
            threads: 1,
            test: String::new(),
            is_cost,
            values: vec![
                ("andante", vec![30.0, 10.0, 20.0]),
                ("llama.cpp", vec![5.0, 8.0, 6.0]),
                ("ik_llama.cpp", vec![9.0, 10.0]),
            ],
            ceilings: Vec::new(),
            limit: String::new(),
        }
    }

    #[test]
    fn ratios_are_to_the_better_peer() {
        assert_eq!(row(false).ratio(), Some(20.0 / 9.5));
        assert_eq!(row(true).ratio(), Some(20.0 / 6.0));
        assert_eq!(row(false).ratio_in_round(0), Some(30.0 / 9.0));
        assert_eq!(row(false).ratio_in_round(2), Some(20.0 / 6.0));
        assert_eq!(row(false).ratio_in_round(3), None);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }
}
