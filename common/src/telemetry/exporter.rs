//! The OTLP exporter: gRPC on a thread of its own, or HTTP with the client that the broker has anyway. Each export ends
//! within a bounded time, and what the collector does not take is counted.

use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use actors::clock;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{WithHttpConfig, WithTonicConfig, tonic_types::transport::ClientTlsConfig};
use opentelemetry_sdk::{
    Resource,
    error::{OTelSdkError, OTelSdkResult},
    trace::{SpanData, SpanExporter},
};
use tokio::runtime;

use super::{
    counts::SpanCounts,
    settings::{self, OtlpProtocol},
};
use crate::http_client;

/// Bytes of an answer of the collector that are read.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;
/// Time that an export may take beyond the timeout of the exporter, for the library to notice it by itself.
const EXTRA_TIME: Duration = Duration::from_secs(1);
/// Time between two lines of the log about a collector that takes nothing, in milliseconds.
const WARNING_INTERVAL_MS: u64 = 60_000;

/// Why the exporter cannot be set up.
pub struct ExporterError(pub String);

/// An exporter whose exports are bounded in time, and counted.
pub struct BoundedExporter {
    inner: opentelemetry_otlp::SpanExporter,
    /// The runtime of gRPC; HTTP needs none.
    grpc: Option<runtime::Handle>,
    timeout: Duration,
    counts: Arc<SpanCounts>,
    /// When the log said last that the collector takes nothing, in milliseconds of the monotonic clock; 0 for never.
    warned_at_ms: AtomicU64,
}

impl BoundedExporter {
    /// The exporter that the variables `OTEL_EXPORTER_OTLP_*` describe.
    ///
    /// # Errors
    /// A value cannot be used; the text names its variable.
    pub fn from_environment() -> Result<Self, ExporterError> {
        let (inner, grpc) = match settings::protocol() {
            OtlpProtocol::Grpc => {
                let runtime = start_runtime()?;
                let entered = runtime.enter();
                let exporter = opentelemetry_otlp::SpanExporter::builder()
                    .with_tonic()
                    .with_tls_config(ClientTlsConfig::new().with_enabled_roots())
                    .build();
                drop(entered);
                (exporter, Some(runtime))
            }
            OtlpProtocol::HttpProtobuf => {
                let exporter = opentelemetry_otlp::SpanExporter::builder()
                    .with_http()
                    .with_http_client(UreqClient::new(settings::timeout()))
                    .build();
                (exporter, None)
            }
        };
        Ok(Self {
            // What follows the first quotation mark is the value, which may be secret.
            inner: inner.map_err(|error| {
                let text = error.to_string();
                ExporterError(text.split('\'').next().unwrap_or_default().trim_end().to_owned())
            })?,
            grpc,
            timeout: settings::timeout() + EXTRA_TIME,
            counts: Arc::default(),
            warned_at_ms: AtomicU64::new(0),
        })
    }

    /// The counts that the exports change.
    pub fn counts(&self) -> Arc<SpanCounts> {
        Arc::clone(&self.counts)
    }

    async fn export_in_time(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let Some(runtime) = &self.grpc else {
            return self.inner.export(batch).await;
        };
        // The library's own timeout begins when the connection is open.
        let bounded = {
            let _entered = runtime.enter();
            tokio::time::timeout(self.timeout, self.inner.export(batch))
        };
        bounded.await.unwrap_or(Err(OTelSdkError::Timeout(self.timeout)))
    }

    fn warn(&self, spans: usize, error: &OTelSdkError) {
        let now = clock::mono_ms();
        let before = self.warned_at_ms.load(Ordering::Relaxed);
        if before == 0 || now.saturating_sub(before) >= WARNING_INTERVAL_MS {
            self.warned_at_ms.store(now, Ordering::Relaxed);
            tracing::warn!(%error, dropped = spans, "spans were dropped: the collector did not accept them");
        }
    }
}

impl fmt::Debug for BoundedExporter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The exporter holds headers, which may be secret.
        out.write_str("BoundedExporter")
    }
}

impl SpanExporter for BoundedExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let result = self.export_in_time(batch).await;
        self.counts.leave(spans, result.is_ok());
        if let Err(error) = &result {
            self.warn(spans, error);
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

/// Starts the runtime of gRPC on a thread that lasts as long as the process.
fn start_runtime() -> Result<runtime::Handle, ExporterError> {
    let failed = |error: std::io::Error| ExporterError(format!("no thread for the exporter: {error}"));
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    let handle = runtime.handle().clone();
    let run = move || runtime.block_on(std::future::pending::<()>());
    let thread = std::thread::Builder::new().name("otlp-grpc".to_owned()).spawn(run);
    thread.map(|_| handle).map_err(failed)
}

/// The HTTP client of the exporter. It blocks the thread of the exporter, which does nothing else.
#[derive(Debug)]
struct UreqClient(ureq::Agent);

impl UreqClient {
    fn new(timeout: Duration) -> Self {
        Self(http_client::config().timeout_global(Some(timeout)).build().into())
    }

    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let response = self.0.run(request.map(|body| body.to_vec()))?;
        let (parts, mut body) = response.into_parts();
        let body = body.with_config().limit(ANSWER_BYTES_MAX).read_to_vec()?;
        Ok(Response::from_parts(parts, body.into()))
    }
}

impl HttpClient for UreqClient {
    fn send_bytes<'life0, 'async_trait>(
        &'life0 self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(std::future::ready(self.send(request)))
    }
}
