//! The exposition formats: Prometheus text 0.0.4, and protobuf with native histograms.
//!
//! `prometheus-client` encodes both. Its text is that of `OpenMetrics`, where the family of a counter has another name than
//! its samples; here the family is given the full name, which makes the same text valid in 0.0.4.

use std::fmt::Error;

use actors::metrics::{CLASSIC_BOUNDS, HistogramSnapshot, NATIVE_SCHEMA, NATIVE_ZERO_THRESHOLD};
use prometheus_client::{
    collector::Collector,
    encoding::{
        DescriptorEncoder, MetricEncoder, NativeHistogram, NativeHistogramBuckets, NoLabelSet, prometheus_protobuf,
        text,
    },
    metrics::MetricType,
    registry::Registry,
};

use super::{
    catalog::Kind,
    family::{Families, Family, Sample, Value},
};

/// The media type of text.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// The media type of protobuf.
const PROTOBUF: &str = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// The format of an exposition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    Protobuf,
}

impl Format {
    /// The format that a value of `Accept` asks for: protobuf if it is named with the highest weight, else text.
    pub fn of_accept(accept: &str) -> Self {
        let weight = |range: &str| {
            let quality = range.split(';').find_map(|part| part.trim().strip_prefix("q="));
            quality.map_or(Some(1.0), |quality| quality.trim().parse::<f64>().ok())
        };
        let is_protobuf = |range: &str| {
            let compact: String = range.chars().filter(|c| !c.is_whitespace()).collect();
            compact.starts_with("application/vnd.google.protobuf")
                && compact.contains("proto=io.prometheus.client.MetricFamily")
                && compact.contains("encoding=delimited")
        };
        let (mut protobuf, mut others) = (0.0, 0.0);
        for range in accept.split(',') {
            let best = if is_protobuf(range) { &mut protobuf } else { &mut others };
            *best = f64::max(*best, weight(range).unwrap_or(0.0));
        }
        if protobuf > 0.0 && protobuf >= others {
            Self::Protobuf
        } else {
            Self::Text
        }
    }

    /// The media type of the answer.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Text => TEXT,
            Self::Protobuf => PROTOBUF,
        }
    }

    /// Encodes the families.
    ///
    /// # Errors
    /// When the encoder fails, which plain values in memory never cause.
    pub fn encode(self, families: Families) -> Result<Vec<u8>, Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Exposition {
            families: families.0,
            format: self,
        }));
        match self {
            Self::Text => {
                let mut out = String::new();
                text::encode_registry(&mut out, &registry)?;
                Ok(out.into_bytes())
            }
            Self::Protobuf => prometheus_protobuf::encode_to_vec(&registry).map_err(|_| Error),
        }
    }
}

/// Gives the families to the encoder.
#[derive(Debug)]
struct Exposition {
    families: Vec<Family>,
    format: Format,
}

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        for Family { metric, samples } in &self.families {
            let kind = match metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            // The encoder of protobuf appends the suffix of a counter itself.
            let name = match self.format {
                Format::Protobuf => metric.name.strip_suffix("_total").unwrap_or(metric.name),
                Format::Text => metric.name,
            };
            let mut encoder = encoder.encode_descriptor(name, metric.help, None, kind)?;
            for Sample { labels, value } in samples {
                if labels.is_empty() {
                    self.encode_value(&mut encoder, metric.kind, value)?;
                } else {
                    let mut encoder = encoder.encode_family(labels)?;
                    self.encode_value(&mut encoder, metric.kind, value)?;
                }
            }
        }
        Ok(())
    }
}

impl Exposition {
    fn encode_value(&self, encoder: &mut MetricEncoder<'_>, kind: Kind, value: &Value) -> Result<(), Error> {
        let is_counter = kind == Kind::Counter && self.format == Format::Protobuf;
        match value {
            Value::Integer(value) if is_counter => encoder.encode_counter::<NoLabelSet, _, f64>(value, None),
            Value::Float(value) if is_counter => encoder.encode_counter::<NoLabelSet, _, f64>(value, None),
            Value::Integer(value) => encoder.encode_gauge(value),
            Value::Float(value) => encoder.encode_gauge(value),
            Value::Histogram(histogram) => encode_histogram(encoder, histogram),
        }
    }
}

fn encode_histogram(encoder: &mut MetricEncoder<'_>, histogram: &HistogramSnapshot) -> Result<(), Error> {
    let bounds = CLASSIC_BOUNDS.iter().copied().chain([f64::INFINITY]);
    let classic: Vec<_> = bounds.zip(histogram.classic.iter().copied()).collect();
    let (spans, deltas) = native_buckets(&histogram.native);
    let native = NativeHistogram {
        schema: NATIVE_SCHEMA,
        zero_threshold: NATIVE_ZERO_THRESHOLD,
        zero_count: histogram.zero,
        negative: NativeHistogramBuckets {
            spans: &[],
            deltas: &[],
        },
        positive: NativeHistogramBuckets {
            spans: &spans,
            deltas: &deltas,
        },
        created: None,
    };
    encoder.encode_histogram_with_native::<NoLabelSet>(histogram.sum, histogram.count, &classic, None, native)
}

/// The spans of consecutive buckets (distance from the span before, length), and the change of each count from the one
/// before it.
fn native_buckets(buckets: &[(i32, u64)]) -> (Vec<(i32, u32)>, Vec<i64>) {
    let (mut spans, mut deltas) = (Vec::<(i32, u32)>::new(), Vec::with_capacity(buckets.len()));
    let (mut next, mut before) = (0, 0);
    for &(index, count) in buckets {
        match spans.last_mut() {
            Some((_, len)) if index == next => *len += 1,
            _ => spans.push((index - next, 1)),
        }
        let count = count.cast_signed();
        deltas.push(count - before);
        (next, before) = (index + 1, count);
    }
    (spans, deltas)
}

#[cfg(test)]
mod tests {
    use actors::metrics::Histogram;

    use super::{super::catalog, *};

    fn families() -> Families {
        let histogram = Box::new(<Histogram>::new());
        for ns in [30_000, 30_000, 2_000_000_000] {
            histogram.observe(ns);
        }
        let mut families = Families::default();
        families.put(catalog::DISK_RECORDS, 7_u64);
        families.put_labelled(catalog::CONNECTIONS, [(["we\"b".to_owned()], Value::Integer(3))]);
        families.put_labelled(
            catalog::STORE_OPERATION_SECONDS,
            [(["append".to_owned()], histogram.snapshot().into())],
        );
        families
    }

    #[test]
    fn text_is_that_of_prometheus() {
        let text = String::from_utf8(Format::Text.encode(families()).unwrap()).unwrap();
        for line in [
            "# TYPE mcp_broker_disk_records_total counter\nmcp_broker_disk_records_total 7\n",
            "mcp_broker_connections{transport=\"we\\\"b\"} 3\n",
            "# TYPE mcp_broker_store_operation_seconds histogram\n",
            "mcp_broker_store_operation_seconds_count{operation=\"append\"} 3\n",
            "mcp_broker_store_operation_seconds_bucket{le=\"+Inf\",operation=\"append\"} 3\n",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
        assert!(!text.contains("EOF"));
    }

    #[test]
    fn protobuf_has_native_and_classic_buckets() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Exposition {
            families: families().0,
            format: Format::Protobuf,
        }));
        let encoded = prometheus_protobuf::encode(&registry).unwrap();
        assert_eq!(encoded[0].name, "mcp_broker_disk_records_total");
        let counter = encoded[0].metric[0].counter.as_ref().unwrap();
        assert!((counter.value - 7.0).abs() < f64::EPSILON);
        let histogram = encoded[2].metric[0].histogram.as_ref().unwrap();
        assert_eq!((histogram.schema, histogram.sample_count), (3, 3));
        assert_eq!(histogram.bucket.len(), CLASSIC_BOUNDS.len() + 1);
        assert_eq!(histogram.bucket.last().unwrap().cumulative_count, 3);
        // 30 µs is in bucket -120 (up to 2^-15 s, which is 30.5 µs), and 2 s in bucket 8.
        let spans = histogram.positive_span.iter().map(|span| (span.offset, span.length));
        assert_eq!(spans.collect::<Vec<_>>(), [(-120, 1), (127, 1)]);
        assert_eq!(histogram.positive_delta, [2, -1]);
        assert!(!Format::Protobuf.encode(families()).unwrap().is_empty());
    }

    #[test]
    fn the_format_follows_accept() {
        let prometheus = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;\
                          q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        assert_eq!(Format::of_accept(prometheus), Format::Protobuf);
        for accept in [
            "",
            "*/*",
            "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "application/openmetrics-text;version=1.0.0;q=0.6,application/vnd.google.protobuf;\
             proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.2",
            "application/vnd.google.protobuf;proto=other;encoding=delimited",
        ] {
            assert_eq!(Format::of_accept(accept), Format::Text, "{accept}");
        }
    }
}
