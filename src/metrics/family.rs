//! What one scrape has of each metric.

use actors::metrics::HistogramSnapshot;

use super::catalog::Metric;

/// The samples of one metric.
#[derive(Clone, Debug)]
pub struct Family {
    pub metric: Metric,
    pub samples: Vec<Sample>,
}

/// One series at one moment.
#[derive(Clone, Debug)]
pub struct Sample {
    pub labels: Vec<(&'static str, String)>,
    pub value: Value,
}

/// The value of a sample.
#[derive(Clone, Debug)]
pub enum Value {
    Integer(u64),
    Float(f64),
    Histogram(Box<HistogramSnapshot>),
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Integer(value)
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Self {
        Self::Integer(value as u64)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Integer(value.into())
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<HistogramSnapshot> for Value {
    fn from(value: HistogramSnapshot) -> Self {
        Self::Histogram(Box::new(value))
    }
}

/// The families of one scrape, in the order in which they are written.
#[derive(Debug, Default)]
pub struct Families(pub Vec<Family>);

impl Families {
    /// Adds a metric without labels.
    pub fn put(&mut self, metric: Metric, value: impl Into<Value>) {
        self.put_labelled(metric, [([], value.into())]);
    }

    /// Adds a metric with a sample for each set of label values. One without samples is left out.
    pub fn put_labelled<const N: usize>(
        &mut self,
        metric: Metric,
        samples: impl IntoIterator<Item = ([String; N], Value)>,
    ) {
        debug_assert_eq!(metric.labels.len(), N, "{}", metric.name);
        let samples: Vec<_> = samples
            .into_iter()
            .map(|(values, value)| Sample {
                labels: metric.labels.iter().copied().zip(values).collect(),
                value,
            })
            .collect();
        if !samples.is_empty() {
            self.0.push(Family { metric, samples });
        }
    }
}
