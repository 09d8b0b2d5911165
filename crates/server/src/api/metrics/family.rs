//! Metrics as data: a family has a name, a kind, a unit, and samples told apart by labels.

use std::borrow::Cow;
use std::fmt;

use andante_engine::Histogram;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

/// Labels of a sample.
pub(super) type Labels = Vec<(&'static str, String)>;

/// Samples under one name.
#[derive(Debug)]
pub(super) struct Family {
    /// Without its unit, and without `_total`.
    pub(super) name: Cow<'static, str>,
    pub(super) help: &'static str,
    pub(super) unit: Option<Unit>,
    pub(super) samples: Samples,
}

#[derive(Debug)]
pub(super) enum Samples {
    Counter(Vec<(Labels, f64)>),
    Gauge(Vec<(Labels, f64)>),
    /// With what one unit of the family is in the histogram's.
    Histogram(Vec<(Labels, Histogram)>, f64),
}

/// Microseconds of a second.
pub(super) const SECOND_US: f64 = 1e6;

impl Family {
    /// A family of our own.
    pub(super) fn ours(name: &str, help: &'static str, samples: Samples) -> Self {
        Self {
            name: Cow::Owned(format!("andante_{name}")),
            help,
            unit: None,
            samples,
        }
    }

    /// The same in seconds.
    pub(super) fn in_seconds(mut self) -> Self {
        self.unit = Some(Unit::Seconds);
        self
    }

    fn metric_type(&self) -> MetricType {
        match self.samples {
            Samples::Counter(_) => MetricType::Counter,
            Samples::Gauge(_) => MetricType::Gauge,
            Samples::Histogram(..) => MetricType::Histogram,
        }
    }
}

impl Samples {
    pub(super) fn count(count: u64) -> Self {
        Self::Counter(vec![(Labels::new(), whole(count))])
    }

    pub(super) fn value(value: f64) -> Self {
        Self::Gauge(vec![(Labels::new(), value)])
    }

    /// A time in microseconds that only grows.
    pub(super) fn time(us: u64) -> Self {
        Self::Counter(vec![(Labels::new(), seconds(us))])
    }

    pub(super) fn counts<const N: usize>(
        label: &'static str,
        counts: [(&'static str, u64); N],
    ) -> Self {
        Self::Counter(labelled(label, counts.map(|(name, n)| (name, whole(n)))))
    }

    pub(super) fn times<const N: usize>(
        label: &'static str,
        times: [(&'static str, u64); N],
    ) -> Self {
        Self::Counter(labelled(label, times.map(|(name, us)| (name, seconds(us)))))
    }

    pub(super) fn values<const N: usize>(
        label: &'static str,
        values: [(&'static str, u32); N],
    ) -> Self {
        Self::Gauge(labelled(label, values.map(|(name, n)| (name, n.into()))))
    }

    /// A gauge that is 1 and says something in its labels.
    pub(super) fn info<const N: usize>(labels: [(&'static str, &str); N]) -> Self {
        let labels = labels.map(|(label, value)| (label, value.to_owned()));
        Self::Gauge(vec![(labels.to_vec(), 1.0)])
    }

    /// Of microseconds.
    pub(super) fn durations(histogram: Histogram) -> Self {
        Self::Histogram(vec![(Labels::new(), histogram)], SECOND_US)
    }

    pub(super) fn durations_by<const N: usize>(
        label: &'static str,
        histograms: [(&'static str, Histogram); N],
    ) -> Self {
        Self::Histogram(labelled(label, histograms), SECOND_US)
    }

    pub(super) fn sizes(histogram: Histogram) -> Self {
        Self::Histogram(vec![(Labels::new(), histogram)], 1.0)
    }

    /// Adds a label to all samples, before their own.
    pub(super) fn label(&mut self, name: &'static str, value: &str) {
        let add = |labels: &mut Labels| labels.insert(0, (name, value.to_owned()));
        match self {
            Self::Counter(samples) | Self::Gauge(samples) => {
                samples.iter_mut().for_each(|(labels, _)| add(labels));
            }
            Self::Histogram(samples, _) => {
                samples.iter_mut().for_each(|(labels, _)| add(labels));
            }
        }
    }
}

fn labelled<T, const N: usize>(
    label: &'static str,
    values: [(&'static str, T); N],
) -> Vec<(Labels, T)> {
    values
        .map(|(name, value)| (vec![(label, name.to_owned())], value))
        .into()
}

pub(super) fn seconds(us: u64) -> f64 {
    us as f64 / SECOND_US
}

/// Exact below 2^53.
pub(super) fn whole(count: u64) -> f64 {
    count as f64
}

/// All families of one answer.
#[derive(Debug)]
pub(super) struct Families(pub(super) Vec<Family>);

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in &self.0 {
            let mut encoder = encoder.encode_descriptor(
                &family.name,
                family.help,
                family.unit.as_ref(),
                family.metric_type(),
            )?;
            match &family.samples {
                Samples::Counter(samples) => {
                    each(&mut encoder, samples, |encoder, value| {
                        encoder.encode_counter::<NoLabelSet, _, f64>(value, None)
                    })?;
                }
                Samples::Gauge(samples) => {
                    each(&mut encoder, samples, |encoder, value| {
                        encoder.encode_gauge(value)
                    })?;
                }
                Samples::Histogram(samples, per_unit) => {
                    each(&mut encoder, samples, |encoder, histogram| {
                        encode_histogram(encoder, histogram, *per_unit)
                    })?;
                }
            }
        }
        Ok(())
    }
}

/// Encodes every sample behind its labels.
fn each<T>(
    encoder: &mut MetricEncoder<'_>,
    samples: &[(Labels, T)],
    encode: impl Fn(&mut MetricEncoder<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (labels, value) in samples {
        if labels.is_empty() {
            encode(encoder, value)?;
        } else {
            encode(&mut encoder.encode_family(labels)?, value)?;
        }
    }
    Ok(())
}

fn encode_histogram(
    encoder: &mut MetricEncoder<'_>,
    histogram: &Histogram,
    per_unit: f64,
) -> fmt::Result {
    let bounds = histogram.bounds().iter();
    let bounds = bounds.map(|&bound| whole(bound) / per_unit);
    let counts = histogram.counts();
    // The encoder sums the buckets up.
    let buckets: Vec<(f64, u64)> = bounds
        .chain([f64::INFINITY])
        .zip(counts.iter().copied())
        .collect();
    let sum = whole(histogram.sum()) / per_unit;
    encoder.encode_histogram::<NoLabelSet>(sum, counts.iter().sum(), &buckets, None)
}
