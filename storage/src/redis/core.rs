//! What the storage shares with its background tasks: the client, and the pipeline of each open project.

use std::{collections::HashMap, sync::Arc};

use actors::{
    locked::Locked,
    model::{ProjectId, ProjectRecord},
    storage::{Op, ServerFigures, StoreEpoch},
};

use super::{client::RedisClient, operation::Operation, pipeline::Pipeline, reply::Reply};

/// What the storage shares with its background tasks.
pub(super) struct RedisCore {
    pub client: Arc<RedisClient>,
    pipelines: Locked<HashMap<ProjectId, Arc<Pipeline>>>,
}

impl RedisCore {
    /// A core without pipelines.
    pub fn new(client: RedisClient) -> Self {
        Self {
            client: Arc::new(client),
            pipelines: Locked::default(),
        }
    }

    /// The pipeline of a project, new where it has none.
    pub fn pipeline(&self, project: &ProjectId) -> Arc<Pipeline> {
        let mut pipelines = self.pipelines.lock();
        let pipeline = pipelines
            .entry(project.clone())
            .or_insert_with(|| Arc::new(Pipeline::new(Arc::clone(&self.client), project.clone())));
        Arc::clone(pipeline)
    }

    /// The projects that have a pipeline.
    pub fn open_projects(&self) -> Vec<ProjectId> {
        let pipelines = self.pipelines.lock();
        pipelines.keys().cloned().collect()
    }

    /// The pipelines of all open projects.
    pub fn pipelines(&self) -> Vec<Arc<Pipeline>> {
        let pipelines = self.pipelines.lock();
        pipelines.values().cloned().collect()
    }

    /// The projects whose breaker is open.
    pub fn unavailable_projects(&self) -> Vec<ProjectId> {
        let pipelines = self.pipelines.lock();
        let unavailable = pipelines
            .values()
            .filter(|pipeline| pipeline.breaker.open_reason().is_some());
        unavailable.map(|pipeline| pipeline.project.clone()).collect()
    }

    /// Present figures of the connection and the pipelines.
    pub fn figures(&self) -> ServerFigures {
        let mut figures = ServerFigures {
            is_connected: self.client.connection.is_cluster() || self.client.connection.is_connected(),
            open_breakers: usize::from(self.client.breaker.open_reason().is_some()),
            ..ServerFigures::default()
        };
        let is_cluster = self.client.connection.is_cluster();
        let pipelines = self.pipelines.lock();
        for pipeline in pipelines.values() {
            let (len, bytes) = pipeline.queued();
            figures.queued += len;
            figures.queued_bytes += bytes;
            figures.queued_max = figures.queued_max.max(len);
            figures.open_breakers += usize::from(is_cluster && pipeline.breaker.open_reason().is_some());
        }
        figures
    }

    /// Whether any project is available, and the reasons why others are not.
    pub fn health(&self) -> (bool, Vec<String>) {
        let own = self.client.breaker.open_reason();
        if !self.client.connection.is_cluster() {
            return (own.is_none(), own.into_iter().collect());
        }
        let pipelines = self.pipelines.lock();
        let all = pipelines
            .values()
            .map(|pipeline| pipeline.breaker.open_reason())
            .chain([own]);
        let (unavailable, available): (Vec<_>, Vec<_>) = all.partition(Option::is_some);
        (!available.is_empty(), unavailable.into_iter().flatten().collect())
    }

    /// Carries out an operation of a project.
    pub fn run(&self, project: &ProjectId, operation: Operation, at: Option<StoreEpoch>) -> Op<Reply> {
        Box::pin(self.pipeline(project).submit(operation, at))
    }

    /// Whether a project has lost data after this epoch. False for one without a pipeline.
    pub fn has_rolled_back(&self, project: &ProjectId, at: StoreEpoch) -> bool {
        let pipelines = self.pipelines.lock();
        pipelines.get(project).is_some_and(|pipeline| at < pipeline.epoch())
    }

    /// Reads the record by an operation of the project, so that the read belongs to a known data set.
    pub fn project(&self, project: &ProjectId) -> Op<Option<Arc<ProjectRecord>>> {
        let reply = self.run(project, Operation::new("project"), None);
        Box::pin(async move { reply.await?.record() })
    }
}
