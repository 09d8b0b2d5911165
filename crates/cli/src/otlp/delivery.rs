//! How spans reach the collector: the HTTP client that fetches models.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};

/// Most that a batch may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The way to the collector.
#[derive(Debug)]
pub(super) struct Delivery {
    agent: ureq::Agent,
    /// Whether the last batch was lost. Of many in a row, the first is told.
    fails: AtomicBool,
}

impl Delivery {
    pub(super) fn new() -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            // The exporter looks at the status.
            .http_status_as_error(false)
            .build();
        Self {
            agent: config.into(),
            fails: AtomicBool::new(false),
        }
    }

    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ureq::Error> {
        let (head, body) = self.agent.run(request.map(Vec::from))?.into_parts();
        let body = body.into_with_config().read_to_vec()?;
        Ok(Response::from_parts(head, body.into()))
    }

    /// Tells when batches begin to be lost, and when they no longer are.
    fn note(&self, address: &str, lost: Option<String>) {
        let failed = self.fails.swap(lost.is_some(), Ordering::Relaxed);
        match lost {
            Some(why) if !failed => tracing::warn!("spans do not reach {address}: {why}"),
            None if failed => tracing::info!("spans reach {address} again"),
            _ => {}
        }
    }
}

#[async_trait]
impl HttpClient for Delivery {
    // Blocks, on the exporter's own thread.
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let address = request.uri().to_string();
        let answer = self.send(request);
        self.note(
            &address,
            match &answer {
                Ok(answer) if answer.status().is_success() => None,
                Ok(answer) => Some(format!("it answers {}", answer.status())),
                Err(error) => Some(error.to_string()),
            },
        );
        Ok(answer?)
    }
}
