//! Receivers of OTLP: gRPC over HTTP/2, and protobuf over HTTP/1.1. Both keep the spans that they get.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use bytes::Bytes;
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value},
    trace::v1 as otlp,
};
use prost::Message;
use socket2::{Domain, Socket, Type};
use test_client::http::{MessageReader, Request};

use crate::support::eventually;

/// A span as the collector got it.
#[derive(Clone, Debug)]
pub struct Span {
    pub name: String,
    pub trace: String,
    pub id: String,
    /// Empty for the first span of a trace.
    pub parent: String,
    /// Trace and span of each link.
    pub links: Vec<(String, String)>,
    pub attributes: Vec<(String, String)>,
    pub state: String,
    pub is_failed: bool,
    pub started_ns: u64,
    pub ended_ns: u64,
    /// The attributes of the process.
    pub resource: Vec<(String, String)>,
}

impl Span {
    pub fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The replica that made it.
    pub fn instance(&self) -> &str {
        let found = self.resource.iter().find(|(name, _)| name == "service.instance.id");
        found.map(|(_, value)| value.as_str()).unwrap()
    }
}

#[derive(Default)]
struct Received {
    spans: Vec<Span>,
    /// The headers of the requests.
    headers: Vec<(String, String)>,
    /// Everything that came, as bytes.
    raw: Vec<u8>,
}

/// A receiver of OTLP.
pub struct Collector {
    address: SocketAddr,
    is_grpc: bool,
    received: Arc<Mutex<Received>>,
    /// The port of an absent receiver.
    _bound: Option<Socket>,
}

impl Collector {
    /// A receiver over HTTP/1.1.
    pub fn http() -> Self {
        Self::start(false, |stream, received| {
            let _ = serve_http(&stream, &received);
        })
    }

    /// A receiver over gRPC.
    pub fn grpc() -> Self {
        Self::start(true, |stream, received| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let _ = serve_grpc(stream, &received).await;
            });
        })
    }

    /// A receiver that accepts connections and never answers.
    pub fn hanging(is_grpc: bool) -> Self {
        Self::start(is_grpc, |mut stream, _| {
            let mut bytes = [0; 4096];
            while stream.read(&mut bytes).is_ok_and(|len| len > 0) {}
        })
    }

    /// An address where nothing listens.
    pub fn absent(is_grpc: bool) -> Self {
        // No other program gets the port, and connections to it are refused.
        let bound = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        bound.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        Self {
            address: bound.local_addr().unwrap().as_socket().unwrap(),
            is_grpc,
            received: Arc::default(),
            _bound: Some(bound),
        }
    }

    fn start(is_grpc: bool, serve: fn(TcpStream, Arc<Mutex<Received>>)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::<Mutex<Received>>::default();
        let shared = Arc::clone(&received);
        // The thread ends with the process of the test.
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                thread::spawn(move || serve(stream, shared));
            }
        });
        Self {
            address,
            is_grpc,
            received,
            _bound: None,
        }
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn protocol(&self) -> &'static str {
        if self.is_grpc { "grpc" } else { "http/protobuf" }
    }

    /// The spans so far.
    pub fn spans(&self) -> Vec<Span> {
        self.received
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .spans
            .clone()
    }

    /// The value of a header of a request.
    pub fn header(&self, name: &str) -> Option<String> {
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        let found = received
            .headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.clone())
    }

    /// Whether a text was in anything that came.
    pub fn has_seen(&self, text: &str) -> bool {
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        received.raw.windows(text.len()).any(|bytes| bytes == text.as_bytes())
    }

    /// Waits for spans that are like this.
    pub fn awaits_where(&self, is_like_this: impl Fn(&Span) -> bool) -> Vec<Span> {
        eventually("a span", || {
            let found: Vec<_> = self.spans().into_iter().filter(&is_like_this).collect();
            (!found.is_empty()).then_some(found)
        })
    }

    /// Waits for spans of these names in one trace, and returns those of the trace in this order.
    pub fn awaits<const N: usize>(&self, trace: &str, names: [&str; N]) -> [Span; N] {
        eventually(&format!("spans {names:?} of {trace}"), || {
            let spans = self.spans();
            let of_trace: Vec<_> = spans.into_iter().filter(|span| span.trace == trace).collect();
            let find = |name: &str| of_trace.iter().find(|span| span.name == name).cloned();
            let found: Vec<_> = names.into_iter().filter_map(find).collect();
            found.try_into().ok()
        })
    }
}

fn serve_http(mut stream: &TcpStream, received: &Mutex<Received>) -> std::io::Result<()> {
    let mut reader = MessageReader::new(stream);
    while let Some(request) = Request::read(&mut reader)? {
        assert_eq!(request.line(), "POST /v1/traces");
        let headers = request.headers.into_iter();
        let headers = headers.map(|(name, value)| (name, String::from_utf8(value).unwrap()));
        accept(received, headers.collect(), &request.body);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n")?;
    }
    Ok(())
}

async fn serve_grpc(stream: TcpStream, received: &Mutex<Received>) -> Result<(), h2::Error> {
    stream.set_nonblocking(true).unwrap();
    let stream = tokio::net::TcpStream::from_std(stream).unwrap();
    let mut connection = h2::server::handshake(stream).await?;
    while let Some(request) = connection.accept().await {
        let (request, mut respond) = request?;
        assert_eq!(
            request.uri().path(),
            "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
        );
        let headers = request.headers().iter();
        let headers = headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap_or_default().to_owned()));
        let headers: Vec<_> = headers.collect();
        let mut body = request.into_body();
        // The body arrives while the connection is polled.
        let mut message = Vec::new();
        let mut read = std::pin::pin!(async {
            while let Some(chunk) = body.data().await {
                let chunk = chunk?;
                let _ = body.flow_control().release_capacity(chunk.len());
                message.extend_from_slice(&chunk);
            }
            Ok::<_, h2::Error>(message)
        });
        let message = std::future::poll_fn(|cx| {
            let _ = connection.poll_closed(cx);
            read.as_mut().poll(cx)
        })
        .await?;
        // Before the message: whether it is compressed, and its length.
        accept(received, headers, &message[5..]);
        let head = http_response();
        let mut answer = respond.send_response(head, false)?;
        answer.send_data(Bytes::from_static(&[0; 5]), false)?;
        let mut trailers = h2_headers();
        trailers.insert("grpc-status", "0".parse().unwrap());
        answer.send_trailers(trailers)?;
    }
    Ok(())
}

fn http_response() -> http::Response<()> {
    let response = http::Response::builder().header("content-type", "application/grpc");
    response.body(()).unwrap()
}

fn h2_headers() -> http::HeaderMap {
    http::HeaderMap::new()
}

fn accept(received: &Mutex<Received>, headers: Vec<(String, String)>, body: &[u8]) {
    let request = ExportTraceServiceRequest::decode(body).unwrap();
    let mut received = received.lock().unwrap_or_else(PoisonError::into_inner);
    received.raw.extend_from_slice(body);
    received.headers.extend(headers);
    for resource in request.resource_spans {
        let attributes = resource.resource.map(|resource| texts(resource.attributes));
        let process = attributes.unwrap_or_default();
        let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
        received
            .spans
            .extend(spans.map(|span| read_span(span, process.clone())));
    }
}

fn read_span(span: otlp::Span, resource: Vec<(String, String)>) -> Span {
    let links = span.links.iter();
    Span {
        links: links.map(|link| (hex(&link.trace_id), hex(&link.span_id))).collect(),
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        name: span.name,
        attributes: texts(span.attributes),
        state: span.trace_state,
        is_failed: span.status.is_some_and(|status| status.code == 2),
        started_ns: span.start_time_unix_nano,
        ended_ns: span.end_time_unix_nano,
        resource,
    }
}

fn texts(attributes: Vec<KeyValue>) -> Vec<(String, String)> {
    let text = |pair: KeyValue| {
        let value = match pair.value.and_then(|value| value.value) {
            Some(any_value::Value::StringValue(text)) => text,
            Some(any_value::Value::IntValue(number)) => number.to_string(),
            other => format!("{other:?}"),
        };
        (pair.key, value)
    };
    attributes.into_iter().map(text).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<Vec<_>>()
        .concat()
}
